package bind

import (
	"slices"

	"skein/planner"
	"skein/sqlstate"
)

// distinct checks SELECT DISTINCT.
func (s *selection) distinct() (bool, error) {
	if len(s.stmt.DistinctClause) == 0 {
		return false, nil
	}
	if s.stmt.DistinctClause[0].GetNode() != nil {
		return false, nil // DISTINCT ON
	}
	if len(s.targets) > s.visible {
		hidden := s.targets[s.visible].expr
		return false, s.errorAt(sqlstate.InvalidColumnReference, s.where(hidden),
			"with SELECT DISTINCT, ORDER BY expressions must be in the select list")
	}
	return true, nil
}

func distinctRows(input planner.Node, width int) planner.Node {
	a := &planner.Aggregate{Input: input}
	for i := range width {
		a.GroupBy = append(a.GroupBy, i)
	}
	return a
}

// bindDistinctOn binds the expressions of DISTINCT ON like those of ORDER BY,
// which must begin with them.
func (s *selection) bindDistinctOn() error {
	for _, n := range s.stmt.DistinctClause {
		if n.GetNode() == nil {
			return nil
		}
		at, err := s.sortColumn(n)
		if err != nil {
			return err
		}
		if !slices.Contains(s.on, at) {
			s.on = append(s.on, at)
		}
	}
	for i, k := range s.keys {
		if i < len(s.on) && !slices.Contains(s.on, k.Column) {
			return s.errorAt(sqlstate.InvalidColumnReference, locationOf(s.stmt.DistinctClause[0]),
				"SELECT DISTINCT ON expressions must match the first expressions of ORDER BY")
		}
	}
	return nil
}

// distinctOn keeps, of the rows that agree on the DISTINCT ON columns, the
// first in the order of ORDER BY.
func (s *selection) distinctOn() {
	if len(s.on) == 0 {
		return
	}
	width := len(s.targets)
	w := &planner.Window{Input: s.node, PartitionBy: s.on, OrderBy: s.keys, Calls: []planner.WindowCall{rowNumber()}}
	position := planner.ColumnOf(w.Schema(), width)
	s.node = firstColumns(&planner.Filter{Input: w, Predicate: compareCount("=", position, 1)}, width)
}
