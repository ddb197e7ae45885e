package exec

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// newExtremeState returns the state of MIN, or of MAX, over a column of type
// dt. The state of a partial aggregate has the same type, so that combining is
// folding again.
func newExtremeState(dt arrow.DataType, col int, largest bool, acct *Account) (aggState, error) {
	switch dt.ID() {
	case arrow.BOOL:
		return &extremeState[uint8]{acct: acct, col: col, largest: largest}, nil
	case arrow.INT16:
		return &extremeState[int16]{acct: acct, col: col, largest: largest}, nil
	case arrow.INT32, arrow.DATE32:
		return &extremeState[int32]{acct: acct, col: col, largest: largest}, nil
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		return &extremeState[int64]{acct: acct, col: col, largest: largest}, nil
	case arrow.FLOAT32:
		return &extremeByState[float32]{acct: acct, col: col, largest: largest, compare: compareFloats[float32]}, nil
	case arrow.FLOAT64:
		return &extremeByState[float64]{acct: acct, col: col, largest: largest, compare: compareFloats[float64]}, nil
	case arrow.DECIMAL128:
		return &extremeByState[word128]{acct: acct, col: col, largest: largest, compare: compareWide}, nil
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return &extremeByState[arrow.MonthDayNanoInterval]{acct: acct, col: col, largest: largest, compare: compareIntervals}, nil
	case arrow.FIXED_SIZE_BINARY:
		if columnar.Width(dt) == 16 {
			return &extremeByState[word128]{acct: acct, col: col, largest: largest, compare: compareUUIDs}, nil
		}
	case arrow.STRING, arrow.BINARY:
		return &extremeBytesState{acct: acct, col: col, largest: largest}, nil
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "MIN and MAX of type %s are not supported", dt)
}

// newFirstState returns the state of ANY_VALUE: the first value that arrives.
func newFirstState(dt arrow.DataType, col int, acct *Account) (aggState, error) {
	switch columnar.Width(dt) {
	case 1:
		return &extremeByState[uint8]{acct: acct, col: col, compare: keepFirst[uint8]}, nil
	case 2:
		return &extremeByState[uint16]{acct: acct, col: col, compare: keepFirst[uint16]}, nil
	case 4:
		return &extremeByState[uint32]{acct: acct, col: col, compare: keepFirst[uint32]}, nil
	case 8:
		return &extremeByState[uint64]{acct: acct, col: col, compare: keepFirst[uint64]}, nil
	case 16:
		return &extremeByState[word128]{acct: acct, col: col, compare: keepFirst[word128]}, nil
	}
	if dt.ID() == arrow.STRING || dt.ID() == arrow.BINARY {
		return &extremeBytesState{acct: acct, col: col, first: true}, nil
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "ANY_VALUE of type %s is not supported", dt)
}

func keepFirst[T any](_, _ T) int { return 0 }

// compareFloats orders NaN above all other values and equal to itself.
func compareFloats[T float32 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	case a == a: // b is NaN
		return -1
	case b == b: // a is NaN
		return 1
	}
	return 0
}

func compareWide(a, b word128) int {
	return cmp.Or(cmp.Compare(int64(a[1]), int64(b[1])), cmp.Compare(a[0], b[0]))
}

func compareIntervals(a, b arrow.MonthDayNanoInterval) int {
	ah, al := intervalSpan(a)
	bh, bl := intervalSpan(b)
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

func compareUUIDs(a, b word128) int {
	var x, y [16]byte
	for i := range a {
		binary.LittleEndian.PutUint64(x[8*i:], a[i])
		binary.LittleEndian.PutUint64(y[8*i:], b[i])
	}
	return bytes.Compare(x[:], y[:])
}

// extremeState is the smallest or largest value of a type that Go orders.
type extremeState[T uint8 | int16 | int32 | int64] struct {
	acct    *Account
	col     int
	largest bool
	vals    []T
	seen    []bool
}

func (s *extremeState[T]) reserve(n int) error {
	if err := growState(s.acct, &s.vals, n); err != nil {
		return err
	}
	return growState(s.acct, &s.seen, n)
}

func (s *extremeState[T]) free() {
	s.vals, s.seen = freeSlice(s.acct, s.vals), freeSlice(s.acct, s.seen)
}

func (s *extremeState[T]) fold(b *columnar.Batch, ids []int32) error {
	v := b.Cols[s.col]
	vals := columnar.Values[T](v)
	plain := !v.Const && v.Valid == nil && ids != nil
	switch {
	case plain && s.largest:
		for i, id := range ids {
			if x := vals[rowAt(b.Sel, i)]; !s.seen[id] || x > s.vals[id] {
				s.vals[id], s.seen[id] = x, true
			}
		}
	case plain:
		for i, id := range ids {
			if x := vals[rowAt(b.Sel, i)]; !s.seen[id] || x < s.vals[id] {
				s.vals[id], s.seen[id] = x, true
			}
		}
	default:
		forEachValue(v, b, ids, func(row int, id int32) {
			x := vals[row]
			if !s.seen[id] || (x > s.vals[id]) == s.largest && x != s.vals[id] {
				s.vals[id], s.seen[id] = x, true
			}
		})
	}
	return nil
}

func (s *extremeState[T]) emitState(lo, hi int, out []*columnar.Vector) {
	emitExtreme(s.vals, s.seen, lo, hi, out[0])
}

func (s *extremeState[T]) emitResult(lo, hi int, out *columnar.Vector) error {
	emitExtreme(s.vals, s.seen, lo, hi, out)
	return nil
}

func emitExtreme[T any](vals []T, seen []bool, lo, hi int, out *columnar.Vector) {
	dst := columnar.Values[T](fixedOutput(out, hi-lo))
	copy(dst, vals[lo:hi])
	for i, ok := range seen[lo:hi] {
		if !ok {
			setNull(out, i)
		}
	}
}

// extremeByState is extremeState for types that need a comparison function.
type extremeByState[T any] struct {
	acct    *Account
	col     int
	largest bool
	compare func(a, b T) int
	vals    []T
	seen    []bool
}

func (s *extremeByState[T]) reserve(n int) error {
	if err := growState(s.acct, &s.vals, n); err != nil {
		return err
	}
	return growState(s.acct, &s.seen, n)
}

func (s *extremeByState[T]) free() {
	s.vals, s.seen = freeSlice(s.acct, s.vals), freeSlice(s.acct, s.seen)
}

func (s *extremeByState[T]) fold(b *columnar.Batch, ids []int32) error {
	v := b.Cols[s.col]
	vals := columnar.Values[T](v)
	sign := 1
	if s.largest {
		sign = -1
	}
	forEachValue(v, b, ids, func(row int, id int32) {
		if x := vals[row]; !s.seen[id] || s.compare(x, s.vals[id])*sign < 0 {
			s.vals[id], s.seen[id] = x, true
		}
	})
	return nil
}

func (s *extremeByState[T]) emitState(lo, hi int, out []*columnar.Vector) {
	emitExtreme(s.vals, s.seen, lo, hi, out[0])
}

func (s *extremeByState[T]) emitResult(lo, hi int, out *columnar.Vector) error {
	emitExtreme(s.vals, s.seen, lo, hi, out)
	return nil
}

// extremeBytesState is the smallest or largest string; nil is none yet.
type extremeBytesState struct {
	acct    *Account
	col     int
	largest bool
	first   bool // keep the first value instead
	vals    [][]byte
	held    int64 // reserved for the strings themselves
}

func (s *extremeBytesState) reserve(n int) error { return growState(s.acct, &s.vals, n) }

func (s *extremeBytesState) free() {
	s.vals = freeSlice(s.acct, s.vals)
	s.acct.Release(s.held)
	s.held = 0
}

func (s *extremeBytesState) fold(b *columnar.Batch, ids []int32) error {
	v := b.Cols[s.col]
	sign := 1
	if s.largest {
		sign = -1
	}
	grown := int64(0)
	forEachValue(v, b, ids, func(row int, id int32) {
		x, best := v.BytesAt(row), s.vals[id]
		if best != nil && (s.first || bytes.Compare(x, best)*sign >= 0) {
			return
		}
		if cap(best) < len(x) || best == nil {
			grown += int64(len(x) - cap(best))
			best = make([]byte, 0, max(len(x), 1))
		}
		s.vals[id] = append(best[:0], x...)
	})
	// The values are in already, so they count whether or not there is room: the
	// next reservation fails, for more groups, and makes the operator spill.
	s.acct.charge(grown)
	s.held += max(grown, 0)
	return nil
}

func (s *extremeBytesState) emitState(lo, hi int, out []*columnar.Vector) {
	s.emit(lo, hi, out[0])
}

func (s *extremeBytesState) emitResult(lo, hi int, out *columnar.Vector) error {
	s.emit(lo, hi, out)
	return nil
}

func (s *extremeBytesState) emit(lo, hi int, out *columnar.Vector) {
	out.Len, out.Valid, out.Const, out.Dict, out.Codes = hi-lo, nil, false, nil, nil
	out.Data, out.Offsets = out.Data[:0], append(out.Offsets[:0], 0)
	for i, x := range s.vals[lo:hi] {
		if x == nil {
			setNull(out, i)
		}
		out.Data = append(out.Data, x...)
		out.Offsets = append(out.Offsets, int32(len(out.Data)))
	}
}
