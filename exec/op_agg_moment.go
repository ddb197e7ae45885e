package exec

import (
	"math"

	"skein/columnar"
	"skein/planner"
)

// moment is the count, the mean and the sum of squared differences from the
// mean of a group's values.
type moment struct {
	n    int64
	mean float64
	m2   float64
}

func (m *moment) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.m2 += d * (x - m.mean)
}

// combine adds the values that o stands for.
func (m *moment) combine(o moment) {
	if o.n == 0 {
		return
	}
	if m.n == 0 {
		*m = o
		return
	}
	n := float64(m.n + o.n)
	d := o.mean - m.mean
	m.mean += d * float64(o.n) / n
	m.m2 += o.m2 + d*d*float64(m.n)*float64(o.n)/n
	m.n += o.n
}

// momentState is the state of variances and standard deviations.
type momentState struct {
	acct   *Account
	col    int
	merge  bool            // fold the three columns from col on, states of partial aggregates
	result planner.AggFunc // what emitResult computes
	vals   []moment
}

func (s *momentState) reserve(n int) error { return growState(s.acct, &s.vals, n) }
func (s *momentState) free()               { s.vals = freeSlice(s.acct, s.vals) }

func (s *momentState) fold(b *columnar.Batch, ids []int32) error {
	v := b.Cols[s.col]
	if !s.merge {
		vals := columnar.Values[float64](v)
		forEachValue(v, b, ids, func(row int, id int32) { s.vals[id].add(vals[row]) })
		return nil
	}
	means, squares := b.Cols[s.col+1], b.Cols[s.col+2]
	for i := range b.Rows() {
		row := rowAt(b.Sel, i)
		id := int32(0)
		if ids != nil {
			id = ids[i]
		}
		s.vals[id].combine(moment{n: fixedAt[int64](v, row), mean: fixedAt[float64](means, row), m2: fixedAt[float64](squares, row)})
	}
	return nil
}

// fixedAt is one value of a fixed-width vector.
func fixedAt[T any](v *columnar.Vector, row int) T {
	if v.Const {
		row = 0
	}
	return columnar.Values[T](v)[row]
}

func (s *momentState) emitState(lo, hi int, out []*columnar.Vector) {
	counts := columnar.Values[int64](fixedOutput(out[0], hi-lo))
	means := columnar.Values[float64](fixedOutput(out[1], hi-lo))
	squares := columnar.Values[float64](fixedOutput(out[2], hi-lo))
	for i, m := range s.vals[lo:hi] {
		counts[i], means[i], squares[i] = m.n, m.mean, m.m2
	}
}

func (s *momentState) emitResult(lo, hi int, out *columnar.Vector) error {
	vals := columnar.Values[float64](fixedOutput(out, hi-lo))
	for i, m := range s.vals[lo:hi] {
		over := m.n
		if s.result == planner.VarSamp || s.result == planner.StddevSamp {
			over--
		}
		if over <= 0 {
			vals[i] = 0
			setNull(out, i)
			continue
		}
		vals[i] = m.m2 / float64(over)
		if s.result == planner.StddevSamp || s.result == planner.StddevPop {
			vals[i] = math.Sqrt(vals[i])
		}
	}
	return nil
}
