package bind

import (
	"cmp"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
)

const (
	// databaseName is the one database, or catalog in the standard's words.
	databaseName = "skein"
	// userName is who everybody is where nobody has to say who they are.
	userName = "anonymous"
	// ownerName is who everything belongs to.
	ownerName = "skein"
	// versionText begins as PostgreSQL's does, whose clients read it.
	versionText = "PostgreSQL 17.0 (Skein)"
)

// infoFunc is a function about the server and what is in it. Arguments are bound,
// and so checked, before it is asked.
type infoFunc struct {
	least, most int // arguments
	result      func(b *binder, args []planner.Expr, location int32) (planner.Expr, error)
}

// infoFuncs are the functions by which clients of PostgreSQL read its catalog.
// What has no comments or other owners here answers what it does there then.
func infoFuncs(name string) (infoFunc, bool) {
	switch name {
	case "version":
		return infoFunc{0, 0, constantly(versionText)}, true
	case "current_database":
		return infoFunc{0, 0, constantly(databaseName)}, true
	case "current_schema":
		return infoFunc{0, 0, func(b *binder, _ []planner.Expr, location int32) (planner.Expr, error) {
			return b.at(&planner.Literal{Value: b.currentSchema(), DataType: catalog.Text}, location), nil
		}}, true
	case "pg_get_userbyid":
		return infoFunc{1, 1, constantly(ownerName)}, true
	case "pg_encoding_to_char":
		return infoFunc{1, 1, constantly("UTF8")}, true
	case "obj_description":
		return infoFunc{1, 2, constantly(nil)}, true
	case "col_description", "shobj_description":
		return infoFunc{2, 2, constantly(nil)}, true
	case "pg_get_expr":
		return infoFunc{2, 3, func(b *binder, args []planner.Expr, _ int32) (planner.Expr, error) {
			return b.convert(args[0], catalog.Text)
		}}, true
	case "pg_table_is_visible", "pg_type_is_visible", "pg_function_is_visible":
		return infoFunc{1, 1, constantly(true)}, true
	case "has_schema_privilege", "has_table_privilege", "has_database_privilege":
		return infoFunc{2, 3, constantly(true)}, true
	case "has_column_privilege":
		return infoFunc{3, 4, constantly(true)}, true
	case "format_type":
		return infoFunc{2, 2, (*binder).formatType}, true
	}
	return infoFunc{}, false
}

// constantly answers the same text or truth value for all arguments, NULL of
// type text for nil.
func constantly(value any) func(*binder, []planner.Expr, int32) (planner.Expr, error) {
	dt := catalog.Text
	if _, ok := value.(bool); ok {
		dt = catalog.Boolean
	}
	return func(b *binder, _ []planner.Expr, location int32) (planner.Expr, error) {
		return b.at(&planner.Literal{Value: value, DataType: dt}, location), nil
	}
}

// infoCall binds a call of one of infoFuncs.
func (b *binder) infoCall(name string, fn infoFunc, args []planner.Expr, location int32) (planner.Expr, error) {
	if len(args) < fn.least || len(args) > fn.most {
		return b.call(name, args, location) // which says that there is no such function
	}
	return fn.result(b, args, location)
}

// typeOIDs are the identifiers of PostgreSQL's types by the names that
// format_type gives them.
var typeOIDs = []struct {
	oid  int64
	name string
}{
	{16, "boolean"}, {17, "bytea"}, {20, "bigint"}, {21, "smallint"}, {23, "integer"}, {25, "text"}, {700, "real"},
	{701, "double precision"}, {1043, "character varying"}, {1082, "date"}, {1083, "time without time zone"},
	{1114, "timestamp without time zone"}, {1184, "timestamp with time zone"}, {1186, "interval"}, {1700, "numeric"}, {2950, "uuid"},
}

// formatType is the name of a type, and its parameters where it is a VARCHAR or
// a DECIMAL: a CASE over the identifiers that pg_type has.
func (b *binder) formatType(args []planner.Expr, location int32) (planner.Expr, error) {
	oid, err := b.convert(args[0], catalog.BigInt)
	if err != nil {
		return nil, err
	}
	mod, err := b.convert(args[1], catalog.BigInt)
	if err != nil {
		return nil, err
	}
	number := func(n int64) planner.Expr { return &planner.Literal{Value: n, DataType: catalog.BigInt} }
	text := func(s string) planner.Expr { return &planner.Literal{Value: s, DataType: catalog.Text} }
	var failed error
	call := func(name string, args ...planner.Expr) planner.Expr {
		e, err := b.call(name, args, location)
		if err != nil && failed == nil {
			failed = err
		}
		return e
	}
	print := func(e planner.Expr) planner.Expr { return &planner.Cast{Arg: e, DataType: catalog.Text} }
	out := &planner.Case{DataType: catalog.Text, Else: text("???")}
	for _, t := range typeOIDs {
		name := text(t.name)
		parameters := planner.Expr(nil)
		switch t.name {
		case "character varying":
			parameters = print(call("-", mod, number(4)))
		case "numeric":
			precision := print(call("/", call("-", mod, number(4)), number(1<<16)))
			scale := print(call("%", call("-", mod, number(4)), number(1<<16)))
			parameters = call("||", call("||", precision, text(",")), scale)
		}
		if parameters != nil && failed == nil {
			whole := call("||", call("||", call("||", name, text("(")), parameters), text(")"))
			name = &planner.Case{
				Whens:    []planner.When{{Cond: call(">=", mod, number(4)), Then: whole}},
				Else:     name,
				DataType: catalog.Text,
			}
		}
		if failed != nil {
			return nil, failed
		}
		out.Whens = append(out.Whens, planner.When{Cond: call("=", oid, number(t.oid)), Then: name})
	}
	if failed != nil {
		return nil, failed
	}
	return b.at(out, location), nil
}

// who binds CURRENT_USER and its like, and what else PostgreSQL writes without
// parentheses; false for others.
func (b *binder) who(f *pgquery.SQLValueFunction) (planner.Expr, bool) {
	text := ""
	switch f.Op {
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_USER, pgquery.SQLValueFunctionOp_SVFOP_SESSION_USER,
		pgquery.SQLValueFunctionOp_SVFOP_USER, pgquery.SQLValueFunctionOp_SVFOP_CURRENT_ROLE:
		text = cmp.Or(b.session.User, userName)
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG:
		text = databaseName
	default:
		return nil, false
	}
	return b.at(&planner.Literal{Value: text, DataType: catalog.Text}, f.Location), true
}
