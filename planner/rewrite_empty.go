package planner

// collapseEmpty replaces subtrees that cannot have rows by empty tables.
func collapseEmpty(n Node) Node {
	switch n := n.(type) {
	case *Join:
		return collapseJoin(&Join{
			Kind: n.Kind, Left: collapseEmpty(n.Left), Right: collapseEmpty(n.Right), On: n.On, Residual: n.Residual,
		})
	case *Union:
		return collapseUnion(n)
	case *Aggregate:
		in := collapseEmpty(n.Input)
		out := withInput(n, in)
		if len(n.GroupBy) > 0 && isEmpty(in) {
			return emptyOf(out)
		}
		return out
	case *Filter, *Project, *Sort, *Limit, *Window:
		in := collapseEmpty(n.Inputs()[0])
		out := withInput(n, in)
		if isEmpty(in) {
			return emptyOf(out)
		}
		return out
	case *With, *Recursive:
		inputs := n.Inputs()
		for i, in := range inputs {
			inputs[i] = collapseEmpty(in)
		}
		if _, ok := n.(*Recursive); ok && isEmpty(inputs[0]) {
			return emptyOf(n)
		}
		return withInputs(n, inputs)
	}
	return n
}

// collapseJoin removes a join with an input without rows as far as its kind
// allows.
func collapseJoin(n *Join) Node {
	noLeft, noRight := isEmpty(n.Left), isEmpty(n.Right)
	empty := false
	switch n.Kind {
	case InnerJoin, CrossJoin, SemiJoin:
		empty = noLeft || noRight
	case LeftJoin, AntiJoin, MarkJoin, SingleJoin:
		empty = noLeft
	case RightJoin:
		empty = noRight
	case FullJoin:
		empty = noLeft && noRight
	}
	switch {
	case empty:
		return emptyOf(n)
	case noRight && n.Kind == AntiJoin:
		return n.Left
	case noRight && (n.Kind == LeftJoin || n.Kind == SingleJoin || n.Kind == FullJoin):
		return filledIn(n, n.Left, 0)
	case noLeft && (n.Kind == RightJoin || n.Kind == FullJoin):
		return filledIn(n, n.Right, len(outputFields(n.Left)))
	}
	return n
}

// filledIn is the output of a join of which only one side, at the given offset,
// has rows: the other's columns are NULL.
func filledIn(n *Join, side Node, offset int) Node {
	fields := outputFields(n)
	own := outputFields(side)
	exprs, names := make([]Expr, len(fields)), make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
		if at := i - offset; at >= 0 && at < len(own) {
			exprs[i] = &Column{Index: at, Name: f.Name, DataType: f.Type, Null: f.Nullable}
		} else {
			exprs[i] = &Literal{DataType: f.Type}
		}
	}
	return newProject(side, exprs, names)
}

// collapseUnion leaves out the branches without rows.
func collapseUnion(n *Union) Node {
	var branches []Node
	for _, b := range n.Branches {
		if b = collapseEmpty(b); !isEmpty(b) {
			branches = append(branches, b)
		}
	}
	switch len(branches) {
	case len(n.Branches):
		return &Union{Branches: branches}
	case 0:
		return emptyOf(n)
	case 1:
		return withNullability(branches[0], outputFields(n))
	}
	// A projection keeps the first branch's names and what may be NULL.
	return withNullability(&Union{Branches: branches}, outputFields(n))
}
