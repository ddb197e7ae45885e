package exec

import (
	"fmt"
	"runtime/debug"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// Evaluator computes one expression over batches. It owns scratch memory, so
// it serves one goroutine at a time.
type Evaluator struct {
	root node
	text string // the expression, for errors
}

// node is one compiled expression.
type node interface {
	// typ is the physical type of the result.
	typ() arrow.DataType
	// eval computes the rows of b in sel (nil: all b.Len). The result has
	// b.Len positions, those outside sel are unspecified, and is valid until
	// the next eval of the same node.
	eval(b *columnar.Batch, sel []int32) (*columnar.Vector, error)
}

// chooser is a boolean node that can narrow a selection directly.
type chooser interface {
	// choose appends the rows of sel (nil: all) for which the node is true.
	// dst may share memory with sel if it starts where sel does.
	choose(b *columnar.Batch, sel, dst []int32) ([]int32, error)
}

// Compile prepares an expression over batches of the given schema, whose types
// may be public or physical. It fails for functions that the registry does not
// have and for parameters that have no value yet.
func Compile(e planner.Expr, input *arrow.Schema) (*Evaluator, error) {
	c := compiler{input: input}
	root, err := c.compile(e)
	if err != nil {
		return nil, err
	}
	return &Evaluator{root: root, text: e.String()}, nil
}

// Type is the physical type of the results.
func (e *Evaluator) Type() arrow.DataType { return e.root.typ() }

// Eval computes the expression for the rows that b selects. The result has
// b.Len positions of which only those are meaningful, it may be Const, share
// memory with b, or be dictionary-encoded, and it is valid until the next Eval
// and as long as b is. Errors of unselected rows are not raised.
func (e *Evaluator) Eval(b *columnar.Batch) (v *columnar.Vector, err error) {
	defer e.recover(&err)
	return e.root.eval(b, b.Sel)
}

// Filter appends to sel the rows that b selects and for which the expression,
// a boolean, is true. sel must not share memory with b.Sel.
func (e *Evaluator) Filter(b *columnar.Batch, sel []int32) (out []int32, err error) {
	defer e.recover(&err)
	if e.root.typ().ID() != arrow.BOOL {
		return nil, internalf("the filter %s is not boolean", e.text)
	}
	return choose(e.root, b, b.Sel, sel)
}

// recover turns a panic of a kernel into an error of this evaluation, so that a
// defect fails one query instead of the process.
func (e *Evaluator) recover(err *error) {
	if r := recover(); r != nil {
		*err = sqlstate.New(sqlstate.InternalError, "evaluating %s: %v", e.text, r).
			WithDetail("%s", debug.Stack())
	}
}

// choose narrows through the node itself if it can, else through its values.
func choose(n node, b *columnar.Batch, sel, dst []int32) ([]int32, error) {
	if c, ok := n.(chooser); ok {
		return c.choose(b, sel, dst)
	}
	v, err := n.eval(b, sel)
	if err != nil {
		return nil, err
	}
	return chooseTrue(v, b.Len, sel, dst), nil
}

// chooseTrue appends the rows where a boolean vector is true.
func chooseTrue(v *columnar.Vector, n int, sel, dst []int32) []int32 {
	if v.Const {
		if v.Len > 0 && !v.IsNull(0) && v.Data[0] != 0 {
			return appendRows(dst, sel, n)
		}
		return dst
	}
	base := len(dst)
	if sel == nil {
		dst = chooseAll(cmpNE, v.Data[:n], 0, dst)
	} else {
		dst = chooseSome(cmpNE, v.Data, 0, sel, dst)
	}
	return dropNulls(v.Valid, dst, base)
}

// dropNulls removes from dst[base:] the rows that a bitmap calls null.
func dropNulls(valid []byte, dst []int32, base int) []int32 {
	if valid == nil {
		return dst
	}
	k := base
	for _, i := range dst[base:] {
		dst[k] = i
		k += int(valid[i>>3] >> (i & 7) & 1)
	}
	return dst[:k]
}

type compiler struct {
	input *arrow.Schema
}

func (c *compiler) compile(e planner.Expr) (node, error) {
	switch x := e.(type) {
	case *planner.Column:
		return c.column(x)
	case *planner.Literal:
		v, err := ConstVector(x, 1)
		if err != nil {
			return nil, err
		}
		return &literalNode{v: *v}, nil
	case *planner.Call:
		return c.call(x)
	case *planner.Cast:
		return c.cast(x)
	case *planner.Case:
		return c.caseWhen(x)
	case *planner.InList:
		return c.inList(x)
	case *planner.Param:
		return nil, sqlstate.New(sqlstate.UndefinedParameter, "parameter $%d has no value", x.Ordinal)
	case nil:
		return nil, internalf("a missing expression was compiled")
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "expressions of kind %T cannot be evaluated", e)
}

func (c *compiler) compileAll(es []planner.Expr) ([]node, error) {
	nodes := make([]node, len(es))
	for i, e := range es {
		n, err := c.compile(e)
		if err != nil {
			return nil, err
		}
		nodes[i] = n
	}
	return nodes, nil
}

func (c *compiler) column(x *planner.Column) (node, error) {
	if c.input == nil || x.Index < 0 || x.Index >= c.input.NumFields() {
		return nil, internalf("column %s (%d) is not in the input", x.Name, x.Index)
	}
	have := catalog.PhysicalType(c.input.Field(x.Index).Type)
	want := catalog.PhysicalType(x.DataType)
	if !arrow.TypeEqual(have, want) {
		return nil, internalf("column %s (%d) has type %s where the expression expects %s", x.Name, x.Index, have, want)
	}
	return &columnNode{index: x.Index, dt: want}, nil
}

// columnNode reads an input column.
type columnNode struct {
	index int
	dt    arrow.DataType
}

func (n *columnNode) typ() arrow.DataType { return n.dt }

func (n *columnNode) eval(b *columnar.Batch, _ []int32) (*columnar.Vector, error) {
	if n.index >= len(b.Cols) {
		return nil, internalf("a batch of %d columns has no column %d", len(b.Cols), n.index)
	}
	return b.Cols[n.index], nil
}

func (n *columnNode) choose(b *columnar.Batch, sel, dst []int32) ([]int32, error) {
	v, err := n.eval(b, sel)
	if err != nil {
		return nil, err
	}
	return chooseTrue(v, b.Len, sel, dst), nil
}

// literalNode is a constant.
type literalNode struct{ v columnar.Vector }

func (n *literalNode) typ() arrow.DataType { return n.v.Type }

func (n *literalNode) eval(b *columnar.Batch, _ []int32) (*columnar.Vector, error) {
	n.v.Len = b.Len
	return &n.v, nil
}

func (c *compiler) call(x *planner.Call) (node, error) {
	switch x.Func {
	case "and", "or":
		return c.logic(x)
	case "coalesce":
		return c.coalesce(x)
	case "nullif":
		if len(x.Args) != 2 {
			return nil, internalf("nullif takes two arguments, not %d", len(x.Args))
		}
		equal := &planner.Call{Func: "=", Args: x.Args, DataType: catalog.Boolean, Null: true}
		return c.caseWhen(&planner.Case{
			Whens:    []planner.When{{Cond: equal, Then: &planner.Literal{DataType: x.DataType}}},
			Else:     x.Args[0],
			DataType: x.DataType,
		})
	}
	f := functions()[x.Func]
	if f == nil {
		return nil, sqlstate.New(sqlstate.UndefinedFunction, "function %s does not exist", x.Func)
	}
	args, err := c.compileAll(x.Args)
	if err != nil {
		return nil, err
	}
	types := make([]arrow.DataType, len(args))
	for i, a := range args {
		types[i] = catalog.PublicType(a.typ())
	}
	o, want, err := f.choose(types)
	if err != nil {
		return nil, err
	}
	for i := range want {
		if kindOf(want[i]) != kindOf(types[i]) && kindOf(types[i]) != kUnknown {
			return nil, internalf("argument %d of %s has type %s where the function takes %s: a cast is missing", i+1, x.Func, types[i], want[i])
		}
	}
	return newCallNode(f, o, x.Func, args, catalog.PhysicalType(x.DataType))
}

// newCallNode binds a kernel to its call site.
func newCallNode(f *function, o *overload, name string, args []node, result arrow.DataType) (node, error) {
	site := &callSite{name: name, result: result}
	n := &callNode{fn: f, args: args, dt: result}
	for _, a := range args {
		site.args = append(site.args, a.typ())
		var constant *columnar.Vector
		if l, ok := a.(*literalNode); ok {
			constant = &l.v
		}
		site.consts = append(site.consts, constant)
		n.untypedNull = n.untypedNull || (!f.nonStrict && a.typ().ID() == arrow.NULL)
	}
	if n.untypedNull {
		return n, nil // always NULL
	}
	k, err := o.make(site)
	if err != nil {
		return nil, fmt.Errorf("preparing function %s: %w", name, err)
	}
	n.kern = k
	if op, ok := comparisonOf(f.name); ok {
		if n.compare, err = siteComparer(op, site); err != nil {
			return nil, err
		}
	}
	return n, nil
}
