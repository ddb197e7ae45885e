package planner

// pushLimits moves limits below projections, merges adjacent ones and fuses
// them into sorts. A limit that skips rows stays above the sort it bounds.
func pushLimits(n Node) Node {
	switch n := n.(type) {
	case *Limit:
		return pushLimit(pushLimits(n.Input), n.Limit, n.Offset)
	case *Join:
		return &Join{Kind: n.Kind, Left: pushLimits(n.Left), Right: pushLimits(n.Right), On: n.On, Residual: n.Residual}
	case *Union:
		branches := make([]Node, len(n.Branches))
		for i, b := range n.Branches {
			branches[i] = pushLimits(b)
		}
		return &Union{Branches: branches}
	case *Filter, *Project, *Aggregate, *Sort, *Window:
		return withInput(n, pushLimits(n.Inputs()[0]))
	case *With, *Recursive:
		inputs := n.Inputs()
		for i, in := range inputs {
			inputs[i] = pushLimits(in)
		}
		return withInputs(n, inputs)
	}
	return n
}

// pushLimit limits in to limit rows (-1: all) after offset ones.
func pushLimit(in Node, limit, offset int64) Node {
	if limit < 0 && offset == 0 {
		return in
	}
	if limit == 0 {
		return emptyOf(in)
	}
	switch in := in.(type) {
	case *Project:
		return newProject(pushLimit(in.Input, limit, offset), in.Exprs, in.Names)
	case *Union:
		reach := addLimit(limit, offset)
		if reach < 0 {
			break
		}
		branches := make([]Node, len(in.Branches))
		for i, b := range in.Branches {
			branches[i] = pushLimit(b, reach, 0)
		}
		return &Limit{Input: &Union{Branches: branches}, Limit: limit, Offset: offset}
	case *Limit:
		merged := limit
		if in.Limit >= 0 {
			rest := max(in.Limit-offset, 0)
			if limit < 0 || rest < limit {
				merged = rest
			}
		}
		skip := addLimit(in.Offset, offset)
		return pushLimit(in.Input, merged, skip)
	case *Sort:
		reach := addLimit(limit, offset)
		if reach < 0 || (in.Limit >= 0 && in.Limit < reach) {
			reach = in.Limit
		}
		sort := &Sort{Input: in.Input, Keys: in.Keys, Limit: reach}
		if offset == 0 {
			return sort
		}
		return &Limit{Input: sort, Limit: limit, Offset: offset}
	}
	return &Limit{Input: in, Limit: limit, Offset: offset}
}
