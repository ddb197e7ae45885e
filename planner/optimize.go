package planner

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// Optimize rewrites a tree into an equivalent, cheaper one. The output schema
// stays exactly the same: names, order, types and nullability. Statements may
// still hold unbound parameters. A nil Metadata means that nothing is known of
// the tables.
//
// In order: common tables that are cheap or read once are merged into what reads
// them; aggregates of distinct values are split; conditions are simplified;
// predicates move down to the scans and joins are ordered; limits move down and
// into sorts; subtrees without rows collapse; columns that nobody reads are
// dropped; and equal subtrees become common tables.
func Optimize(root Node, metadata Metadata) (Node, error) {
	before, err := newValidator(true).node(root)
	if err != nil {
		return nil, err
	}
	estimator := newEstimator(metadata)
	n := splitDistinct(inlineCommons(root))
	if err := estimator.addCommons(n); err != nil {
		return nil, err
	}
	if n, err = (&pushdown{estimator: estimator}).push(n, nil); err != nil {
		return nil, err
	}
	n = inlineCommons(collapseEmpty(pushLimits(n)))
	n = pruneColumns(reduceGroupKeys(n))
	if n, err = estimator.shareEqual(n); err != nil {
		return nil, err
	}
	if err := sameOutput(before, outputFields(n)); err != nil {
		return nil, err
	}
	return n, nil
}

// sameOutput guards the contract of Optimize.
func sameOutput(before, after []arrow.Field) error {
	if len(before) != len(after) {
		return invalid("rewriting changed the output from %d to %d columns", len(before), len(after))
	}
	for i := range before {
		b, a := &before[i], &after[i]
		if b.Name != a.Name || b.Nullable != a.Nullable || !arrow.TypeEqual(b.Type, a.Type) {
			return invalid("rewriting changed output column %q from %s (nullable %t) to %q %s (nullable %t)",
				b.Name, catalog.TypeName(b.Type), b.Nullable, a.Name, catalog.TypeName(a.Type), a.Nullable)
		}
	}
	return nil
}

// withInput replaces the input of a node that has one.
func withInput(n Node, input Node) Node {
	switch n := n.(type) {
	case *Filter:
		return &Filter{Input: input, Predicate: n.Predicate}
	case *Project:
		return newProject(input, n.Exprs, n.Names)
	case *Aggregate:
		return &Aggregate{Input: input, GroupBy: n.GroupBy, Calls: n.Calls}
	case *Window:
		return &Window{Input: input, PartitionBy: n.PartitionBy, OrderBy: n.OrderBy, Calls: n.Calls}
	case *Sort:
		return &Sort{Input: input, Keys: n.Keys, Limit: n.Limit}
	case *Limit:
		return &Limit{Input: input, Limit: n.Limit, Offset: n.Offset}
	}
	return n
}

// withInputs replaces all inputs of a node.
func withInputs(n Node, inputs []Node) Node {
	switch n := n.(type) {
	case *Join:
		return &Join{Kind: n.Kind, Left: inputs[0], Right: inputs[1], On: n.On, Residual: n.Residual}
	case *Union:
		return &Union{Branches: inputs}
	case *With:
		return n.withInputs(inputs)
	case *Recursive:
		out := *n
		out.Seed, out.Step = inputs[0], inputs[1]
		return &out
	}
	if len(inputs) == 1 {
		return withInput(n, inputs[0])
	}
	return n
}

// newProject projects, but folds into a projection below and leaves out one
// that would change nothing.
func newProject(input Node, exprs []Expr, names []string) Node {
	if below, ok := input.(*Project); ok && foldable(exprs, below.Exprs) {
		if folded, ok := foldProject(exprs, below.Exprs); ok {
			return newProject(below.Input, folded, names)
		}
	}
	fields := outputFields(input)
	if len(fields) != len(exprs) {
		return &Project{Input: input, Exprs: exprs, Names: names}
	}
	for i, e := range exprs {
		c, ok := e.(*Column)
		if !ok || c.Index != i || names[i] != fields[i].Name || c.Null != fields[i].Nullable {
			return &Project{Input: input, Exprs: exprs, Names: names}
		}
	}
	return input
}

// foldProject restates upper expressions over the input of the lower ones. It
// fails when one that may count as NULL no longer would.
func foldProject(upper, lower []Expr) ([]Expr, bool) {
	folded := make([]Expr, len(upper))
	for i, e := range upper {
		folded[i] = nullableAs(substitute(e, lower), e)
		if folded[i].Nullable() != e.Nullable() {
			return nil, false
		}
	}
	return folded, true
}

// nullableAs is e, counted as nullable if the expression it replaces was and e
// is a column.
func nullableAs(e, before Expr) Expr {
	if c, ok := e.(*Column); ok && before.Nullable() && !c.Null {
		return &Column{Index: c.Index, Name: c.Name, DataType: c.DataType, Null: true}
	}
	return e
}

// foldable reports whether substituting the lower expressions repeats no work.
func foldable(upper, lower []Expr) bool {
	uses := make([]int, len(lower))
	for _, e := range upper {
		walk(e, func(x Expr) {
			if c, ok := x.(*Column); ok {
				uses[c.Index]++
			}
		})
	}
	for i, e := range lower {
		switch e.(type) {
		case *Column, *Literal, *Param:
			continue
		}
		if uses[i] > 1 || isVolatile(e) {
			return false
		}
	}
	return true
}

// selectColumns projects the listed columns of a node under their names.
func selectColumns(n Node, columns []int) Node {
	fields := outputFields(n)
	exprs, names := make([]Expr, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		exprs[i], names[i] = columnOf(fields, c), fields[c].Name
	}
	return newProject(n, exprs, names)
}

// filterBy filters a node by conditions that hold together, if any.
func filterBy(n Node, conds []Expr) Node {
	if len(conds) == 0 {
		return n
	}
	if neverTrue(conds) {
		return emptyOf(n)
	}
	return &Filter{Input: n, Predicate: And(conds...)}
}

// emptyOf is a table without rows in place of a node.
func emptyOf(n Node) Node { return &Values{Fields: n.Schema()} }

func isEmpty(n Node) bool {
	v, ok := n.(*Values)
	return ok && len(v.Rows) == 0
}
