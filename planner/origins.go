package planner

import "skein/catalog"

// Origin is the table column that an output column of a plan passes on
// unchanged. Table is nil where it is computed.
type Origin struct {
	Table  *catalog.Table
	Column int // ordinal in Table
}

// Origins tells where the output columns of a tree come from, one by one. NULLs
// that outer joins fill in do not make a column another one.
func Origins(n Node) []Origin {
	commons := map[CommonID]Node{}
	if with, ok := n.(*With); ok {
		for _, c := range with.Commons {
			commons[c.ID] = c.Input
		}
	}
	return origins(n, commons)
}

func origins(n Node, commons map[CommonID]Node) []Origin {
	switch n := n.(type) {
	case *Scan:
		out := make([]Origin, len(n.Projection))
		for i, c := range n.Projection {
			out[i] = Origin{n.Table, c}
		}
		return out
	case *Filter, *Sort, *Limit:
		return origins(n.Inputs()[0], commons)
	case *Project:
		in := origins(n.Input, commons)
		out := make([]Origin, len(n.Exprs))
		for i, e := range n.Exprs {
			if c, ok := e.(*Column); ok {
				out[i] = in[c.Index]
			}
		}
		return out
	case *Window:
		return append(origins(n.Input, commons), make([]Origin, len(n.Calls))...)
	case *Aggregate:
		in := origins(n.Input, commons)
		out := make([]Origin, 0, len(n.GroupBy)+len(n.Calls))
		for _, c := range n.GroupBy {
			out = append(out, in[c])
		}
		return append(out, make([]Origin, len(n.Calls))...)
	case *Join:
		left := origins(n.Left, commons)
		switch n.Kind {
		case SemiJoin, AntiJoin:
			return left
		case MarkJoin:
			return append(left, Origin{})
		}
		return append(left, origins(n.Right, commons)...)
	case *With:
		return origins(n.Main, commons)
	case *CommonScan:
		input, ok := commons[n.ID]
		if !ok {
			break
		}
		in := origins(input, commons)
		out := make([]Origin, len(n.Columns))
		for i, c := range n.Columns {
			out[i] = in[c]
		}
		return out
	}
	return make([]Origin, n.Schema().NumFields())
}
