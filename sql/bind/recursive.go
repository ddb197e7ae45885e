package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// workingTable is what a recursive term reads under the name of its own query:
// the rows of the round before.
type workingTable struct {
	id     planner.CommonID
	name   string
	fields []arrow.Field
}

func (w *workingTable) scan() *output {
	fields := append([]arrow.Field(nil), w.fields...)
	return &output{node: &planner.WorkingScan{ID: w.id, Name: w.name, Fields: arrow.NewSchema(w.fields, nil)}, fields: fields}
}

// isRecursive reports whether a WITH query names itself, and checks that it does
// so where it may.
func (b *binder) isRecursive(c *cte) (bool, error) {
	if !c.recursive {
		return false, nil
	}
	anywhere := &selfReferences{binder: b, name: c.name, counting: true}
	_ = anywhere.search(c.query.ProtoReflect(), "")
	if anywhere.count == 0 {
		return false, nil
	}
	q := c.query
	if q.Op != pgquery.SetOperation_SETOP_UNION {
		return false, b.errorAt(sqlstate.InvalidRecursion, c.location,
			"the recursive query %q must have the form: non-recursive term UNION [ALL] recursive term", c.name)
	}
	for clause, there := range map[string]bool{
		"ORDER BY": len(q.SortClause) > 0, "LIMIT": q.LimitCount != nil, "OFFSET": q.LimitOffset != nil,
		"FOR UPDATE or FOR SHARE": len(q.LockingClause) > 0,
	} {
		if there {
			return false, b.unsupported(c.location, "%s in a recursive query", clause)
		}
	}
	check := &selfReferences{binder: b, name: c.name}
	if err := check.search(q.Larg.ProtoReflect(), "its non-recursive term"); err != nil {
		return false, err
	}
	if err := check.search(q.Rarg.ProtoReflect(), ""); err != nil {
		return false, err
	}
	if q.WithClause != nil {
		if err := check.search(q.WithClause.ProtoReflect(), "a subquery"); err != nil {
			return false, err
		}
	}
	return true, nil
}

// selfReferences looks for a WITH query's name in its own text.
type selfReferences struct {
	*binder
	name     string
	counting bool // wherever they are
	count    int
}

// search goes through syntax. place names where references may not be; it is
// empty where they may.
func (s *selfReferences) search(m protoreflect.Message, place string) error {
	switch n := m.Interface().(type) {
	case *pgquery.RangeVar:
		return s.reference(n, place)
	case *pgquery.SelectStmt:
		return s.selectStmt(n, place)
	case *pgquery.JoinExpr:
		return s.join(n, place)
	case *pgquery.SubLink:
		if n.Testexpr != nil {
			if err := s.search(n.Testexpr.ProtoReflect(), place); err != nil {
				return err
			}
		}
		if place == "" {
			place = "a subquery"
		}
		return s.search(n.Subselect.ProtoReflect(), place)
	}
	return s.fields(m, place)
}

// fields goes through all parts of a syntax node.
func (s *selfReferences) fields(m protoreflect.Message, place string) error {
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() != protoreflect.MessageKind {
			return true
		}
		if !f.IsList() {
			err = s.search(v.Message(), place)
			return err == nil
		}
		for i := range v.List().Len() {
			if err = s.search(v.List().Get(i).Message(), place); err != nil {
				return false
			}
		}
		return true
	})
	return err
}

func (s *selfReferences) reference(r *pgquery.RangeVar, place string) error {
	if r.Schemaname != "" || r.Relname != s.name {
		return nil
	}
	s.count++
	switch {
	case s.counting:
		return nil
	case place != "":
		return s.errorAt(sqlstate.InvalidRecursion, r.Location, "the recursive reference to query %q must not be within %s", s.name, place)
	case s.count > 1:
		return s.errorAt(sqlstate.InvalidRecursion, r.Location, "there must not be more than one recursive reference to query %q", s.name)
	}
	return nil
}

// selectStmt knows that another WITH query may take the name, and that the
// operands of INTERSECT and EXCEPT need all rows at once.
func (s *selfReferences) selectStmt(q *pgquery.SelectStmt, place string) error {
	for _, n := range q.GetWithClause().GetCtes() {
		if n.GetCommonTableExpr().GetCtename() == s.name {
			return nil
		}
	}
	if place != "" {
		return s.fields(q.ProtoReflect(), place)
	}
	left, right := "", ""
	switch q.Op {
	case pgquery.SetOperation_SETOP_INTERSECT:
		if q.All {
			left, right = "INTERSECT", "INTERSECT"
		}
	case pgquery.SetOperation_SETOP_EXCEPT:
		right = "EXCEPT"
		if q.All {
			left = right
		}
	default:
		return s.fields(q.ProtoReflect(), place)
	}
	if err := s.search(q.Larg.ProtoReflect(), left); err != nil {
		return err
	}
	return s.search(q.Rarg.ProtoReflect(), right)
}

// join knows that the side which an outer join fills in needs all rows at once.
func (s *selfReferences) join(j *pgquery.JoinExpr, place string) error {
	left, right := place, place
	if place == "" {
		switch j.Jointype {
		case pgquery.JoinType_JOIN_LEFT:
			right = "an outer join"
		case pgquery.JoinType_JOIN_RIGHT:
			left = "an outer join"
		case pgquery.JoinType_JOIN_FULL:
			left, right = "an outer join", "an outer join"
		}
	}
	if err := s.search(j.Larg.ProtoReflect(), left); err != nil {
		return err
	}
	if err := s.search(j.Rarg.ProtoReflect(), right); err != nil {
		return err
	}
	if j.Quals == nil {
		return nil
	}
	return s.search(j.Quals.ProtoReflect(), place)
}

// recursion binds a WITH query that names itself.
func (b *binder) recursion(c *cte) (*output, error) {
	q := c.query
	restore, err := b.with(q.WithClause)
	defer restore()
	if err != nil {
		return nil, err
	}
	seed, err := b.selectStmt(q.Larg, nil)
	if err != nil {
		return nil, err
	}
	width := len(seed.fields)
	fields := append([]arrow.Field(nil), seed.fields...)
	if err := b.renameFields(c, fields); err != nil {
		return nil, err
	}
	for i := range fields {
		fields[i].Nullable = true
		fields[i].Type = recursiveType(fields[i].Type)
	}
	c.working = &workingTable{id: b.newCommonID(), name: c.name, fields: fields}
	step, err := b.selectStmt(q.Rarg, typesOf(fields))
	working := c.working
	c.working = nil
	if err != nil {
		return nil, err
	}
	if len(step.fields) != width {
		return nil, b.errorAt(sqlstate.SyntaxError, c.location, "each UNION query must have the same number of columns")
	}
	node := &planner.Recursive{ID: working.id, Name: c.name, Distinct: !q.All, Fields: arrow.NewSchema(fields, nil)}
	if node.Seed, err = b.asColumns(c, seed, fields); err != nil {
		return nil, err
	}
	if node.Step, err = b.asColumns(c, step, fields); err != nil {
		return nil, err
	}
	return &output{node: node, fields: fields}, nil
}

// recursiveType is the type of a column of a recursion that begins with a type:
// a DECIMAL gets all the digits that there may be before the point, and some more
// behind it, for the rounds to come.
func recursiveType(dt arrow.DataType) arrow.DataType {
	if !isDecimal(dt) {
		return dt
	}
	return catalog.Decimal(catalog.MaxDecimalPrecision, max(int(asDecimal(dt).Scale), defaultScale))
}

func typesOf(fields []arrow.Field) []arrow.DataType {
	out := make([]arrow.DataType, len(fields))
	for i, f := range fields {
		out[i] = f.Type
	}
	return out
}

// asColumns converts the rows of a recursion's term to its columns. A type that
// the first term cannot hold is an error.
func (b *binder) asColumns(c *cte, rows *output, fields []arrow.Field) (planner.Node, error) {
	p := &planner.Project{Input: rows.node}
	for i, f := range rows.fields {
		e := planner.Expr(fieldColumn(i, f))
		if common, ok := commonType(f.Type, fields[i].Type); !ok || !isDecimal(common) && !arrow.TypeEqual(common, fields[i].Type) {
			return nil, b.errorAt(sqlstate.DatatypeMismatch, c.location,
				"column %d of the recursive query %q has type %s in its non-recursive term but %s in its recursive term",
				i+1, c.name, catalog.TypeName(fields[i].Type), catalog.TypeName(f.Type)).
				WithHint("Cast the column of the non-recursive term to the type that both can have.")
		}
		converted, err := b.convert(e, fields[i].Type)
		if err != nil {
			return nil, err
		}
		p.Exprs, p.Names = append(p.Exprs, converted), append(p.Names, fields[i].Name)
	}
	return p, nil
}

// readsItself reports whether a recursive query that is being bound stands in a
// FROM list itself, not in a subquery there.
func (b *binder) readsItself(items []*pgquery.Node) bool {
	for _, n := range items {
		if j := n.GetJoinExpr(); j != nil && b.readsItself([]*pgquery.Node{j.Larg, j.Rarg}) {
			return true
		}
		r := n.GetRangeVar()
		if r == nil || r.Schemaname != "" {
			continue
		}
		for i := len(b.ctes) - 1; i >= 0; i-- {
			if b.ctes[i].name == r.Relname {
				if b.ctes[i].working != nil {
					return true
				}
				break
			}
		}
	}
	return false
}
