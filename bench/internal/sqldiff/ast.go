package sqldiff

// Type is a class of SQL types as the generator tells them apart.
type Type int

// The types. Approx is double precision computed inexactly and Elapsed an
// interval that was computed, Listed an array: they may be selected, but not
// compared.
const (
	Bool Type = iota
	Small
	Int
	Big
	Double
	Approx
	Dec
	Text
	Date
	Stamp
	Clock
	Span
	Elapsed
	UUID
	Bytes
	Listed
)

// typeNames are accepted by both engines.
var typeNames = [...]string{
	Bool: "BOOLEAN", Small: "SMALLINT", Int: "INTEGER", Big: "BIGINT", Double: "FLOAT8", Approx: "FLOAT8",
	Dec: "DECIMAL(18,4)", Text: "TEXT", Date: "DATE", Stamp: "TIMESTAMP", Clock: "TIME", Span: "INTERVAL", Elapsed: "INTERVAL",
	UUID: "UUID", Bytes: "BYTEA", Listed: "INTEGER[]",
}

// unordered types must not be compared, grouped or ordered by.
func (t Type) unordered() bool { return t == Approx || t == Elapsed || t == Listed }

// String is the SQL name.
func (t Type) String() string { return typeNames[t] }

// Expr is an expression: two templates, in which $1 to $9 stand for arguments
// and # for the subquery.
type Expr struct {
	Type  Type
	Skein string
	Duck  string // "" is the same as Skein
	Args  []*Expr
	Sub   *Query
	// Lazy expressions need not evaluate all their arguments.
	Lazy bool
	// Leaf expressions are constants, which a prepared statement may have as
	// parameters.
	Leaf bool
	// Whole expressions are aggregates and window calls, which a shrinker must
	// not take apart.
	Whole bool
}

// Query is a query expression with what can surround it.
type Query struct {
	With   []CTE
	Select *Select
	Set    *SetOp // instead of Select
	Order  []Order
	Limit  int  // -1 without
	Offset int  // 0 without
	Ties   bool // of the last row within the limit are kept, too
	// Prepared queries have their constants as parameters in Skein.
	Prepared bool
}

// CTE is a WITH query; its columns are c1, c2, ...
type CTE struct {
	Name         string
	Query        *Query
	Recursive    bool
	Materialized string // "", "MATERIALIZED" or "NOT MATERIALIZED"
}

// SetOp combines two queries.
type SetOp struct {
	Op          string // "UNION", "INTERSECT ALL", ...
	Left, Right *Query
}

// Order names an output column, counted from 1.
type Order struct {
	Column int
	Desc   bool
	Nulls  string // "", "FIRST" or "LAST"
}

// Select is one SELECT; its output columns are named c1, c2, ...
type Select struct {
	Distinct   bool
	DistinctOn []int // output columns
	Items      []*Expr
	From       *From // nil without
	Where      *Expr
	Grouping   string // "", "ROLLUP", "CUBE" or "GROUPING SETS"
	Group      []*Expr
	Having     *Expr
}

// From is a table, a derived table or a join.
type From struct {
	Table string // or CTE
	Alias string
	Query *Query
	// Lateral queries refer to what stands left of them.
	Lateral bool

	Join        string // "JOIN", "LEFT JOIN", ..., "CROSS JOIN"
	Left, Right *From
	On          *Expr
	Using       string
}

func (e *Expr) clone() *Expr {
	if e == nil {
		return nil
	}
	c := *e
	c.Args = cloneAll(e.Args)
	c.Sub = e.Sub.Clone()
	return &c
}

func cloneAll(es []*Expr) []*Expr {
	out := make([]*Expr, len(es))
	for i, e := range es {
		out[i] = e.clone()
	}
	return out
}

// Clone copies a query deeply.
func (q *Query) Clone() *Query {
	if q == nil {
		return nil
	}
	c := *q
	c.With = make([]CTE, len(q.With))
	for i, w := range q.With {
		c.With[i] = w
		c.With[i].Query = w.Query.Clone()
	}
	c.Order = append([]Order(nil), q.Order...)
	if q.Set != nil {
		c.Set = &SetOp{q.Set.Op, q.Set.Left.Clone(), q.Set.Right.Clone()}
	}
	if s := q.Select; s != nil {
		n := *s
		n.DistinctOn = append([]int(nil), s.DistinctOn...)
		n.Items, n.Group = cloneAll(s.Items), cloneAll(s.Group)
		n.Where, n.Having = s.Where.clone(), s.Having.clone()
		n.From = s.From.clone()
		c.Select = &n
	}
	return &c
}

func (f *From) clone() *From {
	if f == nil {
		return nil
	}
	c := *f
	c.Query, c.Left, c.Right, c.On = f.Query.Clone(), f.Left.clone(), f.Right.clone(), f.On.clone()
	return &c
}

// width is the number of output columns.
func (q *Query) width() int {
	if q.Set != nil {
		return q.Set.Left.width()
	}
	return len(q.Select.Items)
}

// types are those of the output columns.
func (q *Query) types() []Type {
	if q.Set != nil {
		return q.Set.Left.types()
	}
	out := make([]Type, len(q.Select.Items))
	for i, e := range q.Select.Items {
		out[i] = e.Type
	}
	return out
}

// ordered reports whether the order of rows is fully determined.
func (q *Query) ordered() bool {
	seen := make(map[int]bool)
	for _, o := range q.Order {
		seen[o.Column] = true
	}
	return len(seen) > 0 && len(seen) == q.width()
}

// walk calls fn for every expression of a query, subqueries included.
func (q *Query) walk(fn func(*Expr)) {
	if q == nil {
		return
	}
	for _, w := range q.With {
		w.Query.walk(fn)
	}
	if q.Set != nil {
		q.Set.Left.walk(fn)
		q.Set.Right.walk(fn)
		return
	}
	s := q.Select
	for _, list := range [][]*Expr{s.Items, s.Group, {s.Where, s.Having}} {
		for _, e := range list {
			e.walk(fn)
		}
	}
	s.From.walk(fn)
}

func (e *Expr) walk(fn func(*Expr)) {
	if e == nil {
		return
	}
	fn(e)
	for _, a := range e.Args {
		a.walk(fn)
	}
	e.Sub.walk(fn)
}

func (f *From) walk(fn func(*Expr)) {
	if f == nil {
		return
	}
	f.Query.walk(fn)
	f.Left.walk(fn)
	f.Right.walk(fn)
	f.On.walk(fn)
}

// tables collects the names of the tables that a query reads.
func (q *Query) tables(into map[string]bool) {
	if q == nil {
		return
	}
	for _, w := range q.With {
		w.Query.tables(into)
	}
	if q.Set != nil {
		q.Set.Left.tables(into)
		q.Set.Right.tables(into)
		return
	}
	q.Select.From.tables(into)
	for _, list := range [][]*Expr{q.Select.Items, q.Select.Group, {q.Select.Where, q.Select.Having}} {
		for _, e := range list {
			e.walk(func(x *Expr) { x.Sub.tables(into) })
		}
	}
}

func (f *From) tables(into map[string]bool) {
	if f == nil {
		return
	}
	if f.Table != "" {
		into[f.Table] = true
	}
	f.Query.tables(into)
	f.Left.tables(into)
	f.Right.tables(into)
	f.On.walk(func(x *Expr) { x.Sub.tables(into) })
}
