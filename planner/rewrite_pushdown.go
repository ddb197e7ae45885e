package planner

// pushdown moves conditions towards the scans. Joins are handed to
// joinRegion, which also orders them.
type pushdown struct {
	estimator *estimator
}

// push returns a node with n's output, filtered by conds over it.
func (p *pushdown) push(n Node, conds []Expr) (Node, error) {
	conds = simplify(conds)
	if neverTrue(conds) {
		return emptyOf(n), nil
	}
	switch n := n.(type) {
	case *Scan:
		return pushIntoScan(n, conds), nil
	case *Filter:
		return p.throughFilter(n, conds)
	case *Project:
		return p.throughProject(n, conds)
	case *Aggregate:
		return p.throughAggregate(n, conds)
	case *Join:
		return p.throughJoin(n, conds)
	case *Union:
		return p.throughUnion(n, conds)
	case *Window:
		return p.throughWindow(n, conds)
	case *Sort:
		if n.Limit < 0 {
			moved, kept := partition(conds, func(e Expr) bool { return !isVolatile(e) })
			return p.around(n, n.Input, moved, kept)
		}
		return p.around(n, n.Input, nil, conds)
	case *Limit:
		return p.around(n, n.Input, nil, conds)
	case *With:
		return p.throughWith(n, conds)
	case *Recursive:
		return p.aroundRecursive(n, conds)
	}
	return filterBy(n, conds), nil
}

// around pushes moved below n and filters n by kept.
func (p *pushdown) around(n, input Node, moved, kept []Expr) (Node, error) {
	in, err := p.push(input, moved)
	if err != nil {
		return nil, err
	}
	return filterBy(withInput(n, in), kept), nil
}

func pushIntoScan(n *Scan, conds []Expr) Node {
	if n.Filter != nil {
		conds = simplify(append([]Expr{n.Filter}, conds...))
	}
	switch {
	case neverTrue(conds):
		return emptyOf(n)
	case len(conds) == 0:
		return &Scan{Table: n.Table, Alias: n.Alias, Projection: n.Projection}
	}
	return &Scan{Table: n.Table, Alias: n.Alias, Projection: n.Projection, Filter: And(conds...)}
}

// throughFilter dissolves a filter into conditions on its input; what is
// volatile stays, evaluated once per row that the others let through.
func (p *pushdown) throughFilter(n *Filter, conds []Expr) (Node, error) {
	moved, kept := partition(simplify(append(conjuncts(n.Predicate), conds...)), func(e Expr) bool { return !isVolatile(e) })
	in, err := p.push(n.Input, moved)
	if err != nil {
		return nil, err
	}
	return filterBy(in, kept), nil
}

// throughProject restates conditions over the projection's input.
func (p *pushdown) throughProject(n *Project, conds []Expr) (Node, error) {
	moved, kept := partition(conds, func(e Expr) bool {
		stays := isVolatile(e)
		walk(e, func(x Expr) {
			if c, ok := x.(*Column); ok && isVolatile(n.Exprs[c.Index]) {
				stays = true
			}
		})
		return !stays
	})
	for i, e := range moved {
		moved[i] = substitute(e, n.Exprs)
	}
	return p.around(n, n.Input, moved, kept)
}

// throughAggregate pushes conditions on group columns. Without groups none may
// move: the aggregate has a row even when its input is empty.
func (p *pushdown) throughAggregate(n *Aggregate, conds []Expr) (Node, error) {
	fields := outputFields(n.Input)
	moved, kept := partition(conds, func(e Expr) bool {
		return hasColumns(e) && columnsWithin(e, 0, len(n.GroupBy)) && !isVolatile(e)
	})
	groups := make([]Expr, len(n.GroupBy))
	for i, g := range n.GroupBy {
		groups[i] = columnOf(fields, g)
	}
	for i, e := range moved {
		moved[i] = substitute(e, groups)
	}
	return p.around(n, n.Input, moved, kept)
}

// throughUnion pushes conditions into every branch.
func (p *pushdown) throughUnion(n *Union, conds []Expr) (Node, error) {
	moved, kept := partition(conds, func(e Expr) bool { return !isVolatile(e) })
	branches := make([]Node, len(n.Branches))
	for i, b := range n.Branches {
		var err error
		if branches[i], err = p.push(b, moved); err != nil {
			return nil, err
		}
	}
	return filterBy(&Union{Branches: branches}, kept), nil
}

// throughWindow pushes conditions on the columns that rows are partitioned by:
// they drop partitions as a whole.
func (p *pushdown) throughWindow(n *Window, conds []Expr) (Node, error) {
	whole := make([]bool, len(outputFields(n)))
	for _, c := range n.PartitionBy {
		whole[c] = true
	}
	moved, kept := partition(conds, func(e Expr) bool {
		drops := hasColumns(e) && !isVolatile(e)
		walk(e, func(x Expr) {
			if c, ok := x.(*Column); ok && !whole[c.Index] {
				drops = false
			}
		})
		return drops
	})
	return p.around(n, n.Input, moved, kept)
}

// partition splits conditions by a test, keeping their order.
func partition(conds []Expr, test func(Expr) bool) (yes, no []Expr) {
	for _, c := range conds {
		if test(c) {
			yes = append(yes, c)
		} else {
			no = append(no, c)
		}
	}
	return yes, no
}
