package bind

import (
	"slices"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"skein/sqlstate"
)

// onlyFields refuses a syntax node that sets anything but the named protobuf
// fields, which are those that its caller handles. Locations and enums that
// merely say "default" do not count.
func (b *binder) onlyFields(m protoreflect.ProtoMessage, handled ...string) error {
	var refused *sqlstate.Error
	r := m.ProtoReflect()
	r.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		if name == "location" || slices.Contains(handled, name) {
			return true
		}
		if f.Kind() == protoreflect.EnumKind && neutralEnum(string(f.Enum().Values().ByNumber(v.Enum()).Name())) {
			return true
		}
		refused = b.unsupported(fieldLocation(f, v), "%s", construct(string(r.Descriptor().Name()), name))
		return false
	})
	if refused != nil {
		if refused.Position == 0 {
			refused = refused.At(b.stmt.Position(messageLocation(r)))
		}
		return refused
	}
	return nil
}

// neutralEnum reports whether an enum value is what the grammar sets when the
// text says nothing.
func neutralEnum(value string) bool {
	switch value {
	case "LIMIT_OPTION_DEFAULT", "LIMIT_OPTION_COUNT", "SETOP_NONE", "ONCOMMIT_NOOP", "OVERRIDING_NOT_SET",
		"DEFELEM_UNSPEC", "CTEMATERIALIZE_DEFAULT", "COERCE_EXPLICIT_CALL", "COERCE_SQL_SYNTAX", "DROP_RESTRICT":
		return true
	}
	return false
}

// construct names what a field of a syntax node stands for, in SQL's words.
func construct(message, field string) string {
	switch message + "." + field {
	case "SelectStmt.into_clause":
		return "SELECT INTO"
	case "SelectStmt.window_clause":
		return "WINDOW"
	case "SelectStmt.locking_clause":
		return "FOR UPDATE or FOR SHARE"
	case "SelectStmt.limit_option":
		return "FETCH FIRST ... WITH TIES"
	case "SelectStmt.group_distinct":
		return "GROUP BY DISTINCT"
	case "SortBy.use_op", "SortBy.sortby_dir":
		return "ORDER BY ... USING"
	case "FuncCall.agg_order":
		return "ORDER BY in an aggregate"
	case "FuncCall.agg_filter":
		return "FILTER on a function that is not an aggregate"
	case "FuncCall.agg_within_group":
		return "WITHIN GROUP"
	case "FuncCall.func_variadic":
		return "VARIADIC"
	case "FuncCall.agg_distinct":
		return "DISTINCT in a function that is not an aggregate"
	case "RangeVar.catalogname":
		return "a table of another database"
	case "JoinExpr.alias", "JoinExpr.join_using_alias":
		return "an alias of a join"
	case "InferClause.where_clause":
		return "ON CONFLICT (...) WHERE"
	case "TruncateStmt.restart_seqs":
		return "RESTART IDENTITY"
	case "InsertStmt.override":
		return "OVERRIDING"
	case "CreateStmt.inh_relations":
		return "INHERITS"
	case "CreateStmt.of_typename":
		return "CREATE TABLE OF"
	case "CreateStmt.oncommit":
		return "ON COMMIT"
	case "CreateStmt.tablespacename":
		return "TABLESPACE"
	case "CreateStmt.access_method":
		return "USING (table access method)"
	case "ColumnDef.coll_clause", "PartitionElem.collation":
		return "COLLATE"
	case "PartitionElem.opclass":
		return "an operator class in PARTITION BY"
	case "PartitionElem.expr":
		return "an expression in PARTITION BY"
	case "ColumnDef.compression":
		return "COMPRESSION"
	case "ColumnDef.storage_name":
		return "STORAGE"
	case "Constraint.deferrable", "Constraint.initdeferred":
		return "a deferrable constraint"
	case "Constraint.including":
		return "INCLUDE"
	case "Constraint.options":
		return "WITH on a constraint"
	case "Constraint.indexspace":
		return "USING INDEX TABLESPACE"
	case "TypeName.setof":
		return "SETOF"
	case "TypeName.pct_type":
		return "%TYPE"
	case "TypeName.array_bounds":
		return "an array type"
	}
	return strings.ToUpper(strings.ReplaceAll(field, "_", " "))
}

// fieldLocation is where the first node in a field stands, -1 if unknown.
func fieldLocation(f protoreflect.FieldDescriptor, v protoreflect.Value) int32 {
	if f.Kind() != protoreflect.MessageKind {
		return -1
	}
	if f.IsList() {
		if v.List().Len() == 0 {
			return -1
		}
		v = v.List().Get(0)
	}
	return messageLocation(v.Message())
}

// messageLocation is the location of a node or of what it wraps.
func messageLocation(m protoreflect.Message) int32 {
	if f := m.Descriptor().Fields().ByName("location"); f != nil {
		return int32(m.Get(f).Int())
	}
	if n, ok := m.Interface().(*pgquery.Node); ok {
		return locationOf(n)
	}
	return -1
}

// locationOf is the location of a node's own token, -1 if it has none.
func locationOf(n *pgquery.Node) int32 {
	if n.GetNode() == nil {
		return -1
	}
	location := int32(-1)
	n.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		inner := v.Message()
		if l := inner.Descriptor().Fields().ByName("location"); l != nil {
			location = int32(inner.Get(l).Int())
		}
		return false
	})
	return location
}

// refuseNode refuses a kind of syntax node, named in SQL's words.
func (b *binder) refuseNode(n *pgquery.Node, prefix string) error {
	name := "this syntax"
	n.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name = nodeName(string(v.Message().Descriptor().Name()))
		return false
	})
	return b.unsupported(locationOf(n), "%s%s", prefix, name)
}

// nodeName is the SQL of a syntax node's type: "CreateIndexStmt" becomes
// CREATE INDEX unless another word is more to the point.
func nodeName(message string) string {
	switch message {
	case "SubLink":
		return "a subquery in an expression"
	case "A_ArrayExpr":
		return "ARRAY[...]"
	case "A_Indirection":
		return "a subscript or field selection"
	case "RowExpr":
		return "a row constructor"
	case "CollateClause":
		return "COLLATE"
	case "GroupingSet":
		return "GROUPING SETS, ROLLUP or CUBE"
	case "GroupingFunc":
		return "GROUPING"
	case "SQLValueFunction":
		return "CURRENT_DATE, CURRENT_TIMESTAMP or their like"
	case "NamedArgExpr":
		return "a named argument"
	case "MultiAssignRef":
		return "multiple assignment"
	case "CurrentOfExpr":
		return "WHERE CURRENT OF"
	case "RangeFunction":
		return "a function in FROM"
	case "RangeTableSample":
		return "TABLESAMPLE"
	case "RangeTableFunc":
		return "XMLTABLE"
	case "IndexStmt":
		return "CREATE INDEX"
	case "ViewStmt":
		return "CREATE VIEW"
	case "TransactionStmt":
		return "BEGIN, COMMIT or ROLLBACK"
	case "CreateTableAsStmt":
		return "CREATE TABLE AS"
	case "RuleStmt":
		return "CREATE RULE"
	case "DefineStmt":
		return "CREATE"
	case "CreatedbStmt":
		return "CREATE DATABASE"
	}
	var out strings.Builder
	for i, r := range strings.TrimSuffix(strings.TrimSuffix(message, "Stmt"), "Expr") {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte(' ')
		}
		out.WriteRune(r)
	}
	return strings.ToUpper(out.String())
}

func objectName(t pgquery.ObjectType) string {
	return strings.ReplaceAll(strings.TrimPrefix(t.String(), "OBJECT_"), "_", " ")
}
