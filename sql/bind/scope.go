package bind

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// scopeColumn is a column that expressions can name: ordinal index of the
// input they are over.
type scopeColumn struct {
	name  string
	index int
	dt    arrow.DataType
	null  bool
}

// relation is one named entry of FROM.
type relation struct {
	alias    string
	schema   string // of a table without an alias, "" otherwise
	columns  []scopeColumn
	location int32
	table    *catalog.Table // nil if it is not a table
}

// scope is what names mean in one SELECT: its relations, and the columns as
// `*` lists them, where a column joined by USING stands once.
type scope struct {
	relations []*relation
	columns   []scopeColumn
}

// joined is the scope of left and right side by side.
func (b *binder) joined(left, right *scope, width int) (*scope, error) {
	out := &scope{
		relations: append([]*relation(nil), left.relations...),
		columns:   append([]scopeColumn(nil), left.columns...),
	}
	for _, r := range right.relations {
		for _, l := range left.relations {
			if r.alias != "" && l.alias == r.alias && (l.schema == r.schema || l.schema == "" || r.schema == "") {
				return nil, b.errorAt(sqlstate.DuplicateAlias, r.location, "the table name %q is used more than once", r.alias).
					WithHint("Give one of them another alias.")
			}
		}
		out.relations = append(out.relations, &relation{
			alias: r.alias, schema: r.schema, columns: shifted(r.columns, width), location: r.location, table: r.table,
		})
	}
	out.columns = append(out.columns, shifted(right.columns, width)...)
	return out, nil
}

func shifted(columns []scopeColumn, by int) []scopeColumn {
	out := append([]scopeColumn(nil), columns...)
	for i := range out {
		out[i].index += by
	}
	return out
}

func (b *binder) column(c scopeColumn, location int32) planner.Expr {
	return b.at(&planner.Column{Index: c.index, Name: c.name, DataType: c.dt, Null: c.null}, location)
}

// find returns the columns of a name, without those that are the same column.
func find(columns []scopeColumn, name string) []scopeColumn {
	var out []scopeColumn
	for _, c := range columns {
		if c.name == name {
			out = append(out, c)
		}
	}
	return out
}

// columnRef resolves a possibly qualified column name.
func (b *binder) columnRef(ref *pgquery.ColumnRef, s *scope) (planner.Expr, error) {
	for _, f := range ref.Fields {
		if f.GetString_() == nil {
			return nil, b.unsupported(ref.Location, "* as a value")
		}
	}
	found, err := b.ownColumn(ref, s)
	if err == nil || b.frame == nil {
		return found, err
	}
	switch sqlstate.CodeOf(err) {
	case sqlstate.UndefinedColumn, sqlstate.UndefinedTable:
	default:
		return nil, err
	}
	outer, known, outerErr := b.outerColumn(ref)
	switch {
	case outerErr == nil && outer != nil:
		return outer, nil
	case known:
		return nil, outerErr
	}
	return nil, err
}

// ownColumn resolves a column name within one query.
func (b *binder) ownColumn(ref *pgquery.ColumnRef, s *scope) (planner.Expr, error) {
	parts := stringsOf(ref.Fields)
	if len(parts) == 1 {
		return b.plainColumn(parts[0], s, ref.Location)
	}
	r, err := b.relation(parts[:len(parts)-1], s, ref.Location)
	if err != nil {
		return nil, err
	}
	name := parts[len(parts)-1]
	switch matches := find(r.columns, name); len(matches) {
	case 1:
		return b.column(matches[0], ref.Location), nil
	case 0:
		return nil, b.noColumn(r.alias+"."+name, name, r.columns, ref.Location)
	}
	return nil, b.errorAt(sqlstate.AmbiguousColumn, ref.Location, "the column reference %q is ambiguous", r.alias+"."+name)
}

func (b *binder) plainColumn(name string, s *scope, location int32) (planner.Expr, error) {
	switch matches := find(s.columns, name); len(matches) {
	case 1:
		return b.column(matches[0], location), nil
	case 0:
	default:
		return nil, b.errorAt(sqlstate.AmbiguousColumn, location, "the column reference %q is ambiguous", name).
			WithHint("Qualify it with the name of its table.")
	}
	for _, r := range s.relations {
		if r.alias == name {
			return nil, b.unsupported(location, "a whole row as a value")
		}
	}
	return nil, b.noColumn(name, name, s.columns, location)
}

func (b *binder) noColumn(shown, name string, columns []scopeColumn, location int32) error {
	err := b.errorAt(sqlstate.UndefinedColumn, location, "column %q does not exist", shown)
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	if near := nearest(name, names); near != "" {
		err = err.WithHint("Perhaps you meant %q.", near)
	}
	return err
}

// relation finds the FROM entry that [schema.]alias names.
func (b *binder) relation(parts []string, s *scope, location int32) (*relation, error) {
	if len(parts) > 2 {
		return nil, b.unsupported(location, "a column of another database")
	}
	alias := parts[len(parts)-1]
	names := make([]string, 0, len(s.relations))
	var found *relation
	for _, r := range s.relations {
		names = append(names, r.alias)
		if r.alias != alias || (len(parts) == 2 && !r.in(parts[0])) {
			continue
		}
		if found != nil {
			return nil, b.errorAt(sqlstate.AmbiguousAlias, location, "table reference %q is ambiguous", alias).
				WithHint("Qualify it with the schema, or give the tables aliases.")
		}
		found = r
	}
	if found != nil {
		return found, nil
	}
	err := b.errorAt(sqlstate.UndefinedTable, location, "there is no FROM entry for table %q", strings.Join(parts, "."))
	if near := nearest(alias, names); near != "" {
		err = err.WithHint("Perhaps you meant %q.", near)
	}
	return nil, err
}

// in reports whether the relation is a table of a schema.
func (r *relation) in(schema string) bool {
	return r.schema == schema || (schema == tempSchema && strings.HasPrefix(r.schema, catalog.TempSchemaPrefix))
}

// star expands * or alias.* into columns.
func (b *binder) star(ref *pgquery.ColumnRef, s *scope) ([]scopeColumn, error) {
	qualifier := stringsOf(ref.Fields[:len(ref.Fields)-1])
	if len(qualifier) == 0 {
		if len(s.relations) == 0 {
			return nil, b.errorAt(sqlstate.SyntaxError, ref.Location, "SELECT * without FROM has no columns")
		}
		return s.columns, nil
	}
	r, err := b.relation(qualifier, s, ref.Location)
	if err != nil {
		return nil, err
	}
	return r.columns, nil
}

// isStar reports whether a column reference ends in *.
func isStar(n *pgquery.Node) (*pgquery.ColumnRef, bool) {
	ref := n.GetColumnRef()
	if ref == nil || len(ref.Fields) == 0 {
		return nil, false
	}
	return ref, ref.Fields[len(ref.Fields)-1].GetAStar() != nil
}
