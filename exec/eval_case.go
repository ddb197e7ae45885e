package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// caseNode is the searched CASE. Each condition sees only the rows that no
// earlier branch took, each result only the rows of its branch.
type caseNode struct {
	conds   []node
	results []node // one per condition, then ELSE
	dt      arrow.DataType

	picker picker
	taken  []int32
}

// picker assembles a result from several vectors, row by row.
type picker struct {
	out     columnar.Vector
	mem     scratch
	pick    []int32
	sources []*columnar.Vector
	open    []int32
}

func (p *picker) start(b *columnar.Batch, sel []int32) {
	p.pick = sized(p.pick, b.Len)
	for i := range p.pick {
		p.pick[i] = -1
	}
	p.sources = p.sources[:0]
	p.open = appendRows(p.open[:0], sel, b.Len)
}

// take assigns rows to a vector.
func (p *picker) take(v *columnar.Vector, rows []int32) {
	k := int32(len(p.sources))
	p.sources = append(p.sources, v)
	for _, i := range rows {
		p.pick[i] = k
	}
}

func (p *picker) finish(dt arrow.DataType, n int) (*columnar.Vector, error) {
	p.out = columnar.Vector{Type: dt, Len: n}
	f := frame{n: n, out: &p.out, mem: &p.mem}
	if err := mergePicks(&f, p.sources, p.pick); err != nil {
		return nil, err
	}
	return &p.out, nil
}

// branch compiles the result of a branch, whose type must be dt but for an
// untyped NULL.
func (c *compiler) branch(e planner.Expr, dt arrow.DataType) (node, error) {
	n, err := c.compile(e)
	if err != nil {
		return nil, err
	}
	switch {
	case arrow.TypeEqual(n.typ(), dt):
		return n, nil
	case n.typ().ID() == arrow.NULL:
		return &literalNode{v: *columnar.NewNull(dt, 1)}, nil
	}
	return nil, internalf("a branch %s has type %s where %s is expected: a cast is missing", e, n.typ(), dt)
}

func (c *compiler) caseWhen(x *planner.Case) (node, error) {
	n := &caseNode{dt: catalog.PhysicalType(x.DataType)}
	for _, w := range x.Whens {
		cond, err := c.branch(w.Cond, catalog.Boolean)
		if err != nil {
			return nil, err
		}
		then, err := c.branch(w.Then, n.dt)
		if err != nil {
			return nil, err
		}
		n.conds = append(n.conds, cond)
		n.results = append(n.results, then)
	}
	otherwise, err := c.branch(x.Else, n.dt)
	if err != nil {
		return nil, err
	}
	n.results = append(n.results, otherwise)
	return n, nil
}

func (n *caseNode) typ() arrow.DataType { return n.dt }

func (n *caseNode) eval(b *columnar.Batch, sel []int32) (*columnar.Vector, error) {
	p := &n.picker
	p.start(b, sel)
	for k, cond := range n.conds {
		if len(p.open) == 0 {
			break
		}
		taken, err := choose(cond, b, p.open, n.taken[:0])
		if err != nil {
			return nil, err
		}
		n.taken = taken
		if err := n.branch(b, k, taken); err != nil {
			return nil, err
		}
		p.open = subtract(p.open, taken)
	}
	if err := n.branch(b, len(n.conds), p.open); err != nil {
		return nil, err
	}
	return p.finish(n.dt, b.Len)
}

func (n *caseNode) branch(b *columnar.Batch, k int, rows []int32) error {
	if len(rows) == 0 {
		return nil
	}
	v, err := n.results[k].eval(b, rows)
	if err != nil {
		return err
	}
	n.picker.take(v, rows)
	return nil
}

// coalesceNode yields the first argument that is not NULL.
type coalesceNode struct {
	args   []node
	dt     arrow.DataType
	picker picker
	taken  []int32
}

func (c *compiler) coalesce(x *planner.Call) (node, error) {
	n := &coalesceNode{dt: catalog.PhysicalType(x.DataType)}
	for _, a := range x.Args {
		arg, err := c.branch(a, n.dt)
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, arg)
	}
	return n, nil
}

func (n *coalesceNode) typ() arrow.DataType { return n.dt }

func (n *coalesceNode) eval(b *columnar.Batch, sel []int32) (*columnar.Vector, error) {
	p := &n.picker
	p.start(b, sel)
	for k, a := range n.args {
		if len(p.open) == 0 {
			break
		}
		v, err := a.eval(b, p.open)
		if err != nil {
			return nil, err
		}
		if k == 0 && v.Valid == nil {
			return v, nil
		}
		n.taken = n.taken[:0]
		left := p.open[:0]
		for _, i := range p.open {
			if v.IsNull(int(i)) {
				left = append(left, i)
			} else {
				n.taken = append(n.taken, i)
			}
		}
		p.take(v, n.taken)
		p.open = left
	}
	return p.finish(n.dt, b.Len)
}
