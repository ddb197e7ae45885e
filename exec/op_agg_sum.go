package exec

import (
	"math"
	"math/big"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// countState counts rows, or the non-null values of one column, or adds up
// the counts of partial aggregates.
type countState struct {
	acct   *Account
	col    int // -1: rows
	merge  bool
	counts []int64
}

func (s *countState) reserve(n int) error { return growState(s.acct, &s.counts, n) }
func (s *countState) free()               { s.counts = freeSlice(s.acct, s.counts) }

func (s *countState) fold(b *columnar.Batch, ids []int32) error {
	switch {
	case s.merge:
		v := b.Cols[s.col]
		vals := columnar.Values[int64](v)
		forEachValue(v, b, ids, func(row int, id int32) { s.counts[id] += vals[row] })
	case s.col >= 0 && b.Cols[s.col].Valid != nil:
		forEachValue(b.Cols[s.col], b, ids, func(_ int, id int32) { s.counts[id]++ })
	case ids == nil:
		s.counts[0] += int64(b.Rows())
	default:
		for _, id := range ids {
			s.counts[id]++
		}
	}
	return nil
}

func (s *countState) emitState(lo, hi int, out []*columnar.Vector) { s.emit(lo, hi, out[0]) }

func (s *countState) emitResult(lo, hi int, out *columnar.Vector) error {
	s.emit(lo, hi, out)
	return nil
}

func (s *countState) emit(lo, hi int, out *columnar.Vector) {
	copy(columnar.Values[int64](fixedOutput(out, hi-lo)), s.counts[lo:hi])
}

// forEachValue calls f with the physical position and the group of every
// selected non-null value; nil ids stand for group 0.
func forEachValue(v *columnar.Vector, b *columnar.Batch, ids []int32, f func(row int, id int32)) {
	n := b.Rows()
	for i := range n {
		row := rowAt(b.Sel, i)
		if v.Valid != nil && v.IsNull(row) {
			continue
		}
		if v.Const {
			row = 0
		}
		id := int32(0)
		if ids != nil {
			id = ids[i]
		}
		f(row, id)
	}
}

// growState makes room for n groups, new ones zero.
func growState[T any](acct *Account, s *[]T, n int) error {
	old := len(*s)
	if n <= old {
		return nil
	}
	grown, err := growSlice(acct, *s, n-old)
	if err != nil {
		return err
	}
	*s = grown[:n]
	clear((*s)[old:])
	return nil
}

// fixedOutput prepares out for n values without nulls.
func fixedOutput(out *columnar.Vector, n int) *columnar.Vector {
	out.Len, out.Valid, out.Const = n, nil, false
	out.Data = reuseBytes(out.Data, n*columnar.Width(out.Type))
	return out
}

// setNull marks value i of out null.
func setNull(out *columnar.Vector, i int) {
	if out.Valid == nil {
		out.Valid = make([]byte, (out.Len+7)/8)
		fillBits(out.Valid, 0, out.Len)
	}
	out.Valid[i>>3] &^= 1 << (i & 7)
}

// exactSum is the 128-bit sum of a group's integers or scaled decimals, and
// how many there were.
type exactSum struct {
	lo uint64
	hi int64
	n  int64
}

func (s *exactSum) add(x int64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(x), 0)
	s.hi += x>>63 + int64(carry)
	s.n++
}

// addWide returns false when the sum leaves 128 bits.
func (s *exactSum) addWide(hi int64, lo uint64) bool {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	sum := s.hi + hi + int64(carry)
	// As for any two's complement addition: overflow has the operands' signs
	// agree and the result's differ.
	overflow := (s.hi^sum)&(hi^sum) < 0
	s.hi = sum
	s.n++
	return !overflow
}

// exactSumState sums integers and decimals and counts them: the state of both
// SUM and AVG.
type exactSumState struct {
	acct  *Account
	col   int
	count int // column of the counts to add up, -1: count the values
	scale int
	sums  []exactSum
}

func (s *exactSumState) reserve(n int) error { return growState(s.acct, &s.sums, n) }
func (s *exactSumState) free()               { s.sums = freeSlice(s.acct, s.sums) }

func (s *exactSumState) fold(b *columnar.Batch, ids []int32) error {
	v := b.Cols[s.col]
	if s.count >= 0 {
		return s.foldCounted(v, b, ids)
	}
	switch v.Type.ID() {
	case arrow.INT16:
		sumExact[int16](s.sums, v, b, ids)
	case arrow.INT32:
		sumExact[int32](s.sums, v, b, ids)
	case arrow.DECIMAL128:
		return s.foldWide(v, b, ids)
	default: // int64, decimal64
		sumExact[int64](s.sums, v, b, ids)
	}
	return nil
}

func sumExact[T int16 | int32 | int64](sums []exactSum, v *columnar.Vector, b *columnar.Batch, ids []int32) {
	vals := columnar.Values[T](v)
	switch {
	case v.Const || v.Valid != nil:
		forEachValue(v, b, ids, func(row int, id int32) { sums[id].add(int64(vals[row])) })
	case ids == nil:
		sumAll(&sums[0], vals, b)
	case b.Sel == nil:
		vals = vals[:len(ids)]
		for i, id := range ids {
			sums[id].add(int64(vals[i]))
		}
	default:
		sel := b.Sel[:len(ids)]
		for i, id := range ids {
			sums[id].add(int64(vals[sel[i]]))
		}
	}
}

// sumAll adds all selected values to one sum, kept in registers.
func sumAll[T int16 | int32 | int64](sum *exactSum, vals []T, b *columnar.Batch) {
	lo, hi := sum.lo, sum.hi
	var carry uint64
	if b.Sel == nil {
		for _, x := range vals[:b.Len] {
			lo, carry = bits.Add64(lo, uint64(x), 0)
			hi += int64(x)>>63 + int64(carry)
		}
	} else {
		for _, row := range b.Sel {
			x := vals[row]
			lo, carry = bits.Add64(lo, uint64(x), 0)
			hi += int64(x)>>63 + int64(carry)
		}
	}
	sum.lo, sum.hi = lo, hi
	sum.n += int64(b.Rows())
}

func (s *exactSumState) foldWide(v *columnar.Vector, b *columnar.Batch, ids []int32) error {
	vals := columnar.Values[word128](v)
	fits := true
	if v.Const || v.Valid != nil || ids == nil {
		forEachValue(v, b, ids, func(row int, id int32) {
			fits = s.sums[id].addWide(int64(vals[row][1]), vals[row][0]) && fits
		})
	} else {
		for i, id := range ids {
			x := &vals[rowAt(b.Sel, i)]
			fits = s.sums[id].addWide(int64(x[1]), x[0]) && fits
		}
	}
	if !fits {
		return decimalSumOverflow()
	}
	return nil
}

// foldCounted adds up partial averages: sums that come with their counts.
func (s *exactSumState) foldCounted(v *columnar.Vector, b *columnar.Batch, ids []int32) error {
	vals := columnar.Values[word128](v)
	fits := true
	forEachValue(v, b, ids, func(row int, id int32) {
		fits = s.sums[id].addWide(int64(vals[row][1]), vals[row][0]) && fits
		s.sums[id].n-- // the counts column says how many values it was
	})
	if !fits {
		return decimalSumOverflow()
	}
	c := b.Cols[s.count]
	counts := columnar.Values[int64](c)
	forEachValue(c, b, ids, func(row int, id int32) { s.sums[id].n += counts[row] })
	return nil
}

func decimalSumOverflow() error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "the sum does not fit decimal(38)").
		WithHint("Cast the argument of SUM to double precision or to fewer digits.")
}

// emitState writes the sum as decimal128 and, to a second column, the count.
func (s *exactSumState) emitState(lo, hi int, out []*columnar.Vector) {
	words := columnar.Values[word128](fixedOutput(out[0], hi-lo))
	for i := range hi - lo {
		sum := &s.sums[lo+i]
		words[i] = word128{sum.lo, uint64(sum.hi)}
		if sum.n == 0 {
			setNull(out[0], i)
		}
	}
	if len(out) > 1 {
		counts := columnar.Values[int64](fixedOutput(out[1], hi-lo))
		for i := range counts {
			counts[i] = s.sums[lo+i].n
		}
	}
}

// emitResult writes SUM as the type of out says, or AVG as a double.
func (s *exactSumState) emitResult(lo, hi int, out *columnar.Vector) error {
	fixedOutput(out, hi-lo)
	for i := range hi - lo {
		sum := &s.sums[lo+i]
		if sum.n == 0 {
			clear(out.Data[i*columnar.Width(out.Type) : (i+1)*columnar.Width(out.Type)])
			setNull(out, i)
			continue
		}
		switch t := out.Type.(type) {
		case *arrow.Float64Type:
			columnar.Values[float64](out)[i] = exactQuotient(sum, s.scale)
		case *arrow.Decimal128Type:
			if !sum.fitsDecimal() {
				return decimalSumOverflow()
			}
			columnar.Values[word128](out)[i] = word128{sum.lo, uint64(sum.hi)}
		default:
			if sum.hi != int64(sum.lo)>>63 {
				return sqlstate.New(sqlstate.NumericOutOfRange, "the sum does not fit %s", t).
					WithHint("Cast the argument of SUM to decimal or double precision.")
			}
			columnar.Values[int64](out)[i] = int64(sum.lo)
		}
	}
	return nil
}

// fitsDecimal reports whether the sum has at most 38 digits.
func (s *exactSum) fitsDecimal() bool {
	const limitHi, limitLo = 0x4B3B4CA85A86C47A, 0x098A224000000000 // 10^38
	hi, lo := uint64(s.hi), s.lo
	if s.hi < 0 {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	return hi < limitHi || hi == limitHi && lo < limitLo
}

// exactQuotient is the double nearest to sum / (n * 10^scale).
func exactQuotient(s *exactSum, scale int) float64 {
	const exact = 1 << 53
	x := int64(s.lo)
	if s.hi == x>>63 && -exact <= x && x <= exact && s.n <= exact && scale <= 15 {
		divisor := int64(math.Pow10(scale))
		if hi, lo := bits.Mul64(uint64(s.n), uint64(divisor)); hi == 0 && lo <= exact {
			return float64(x) / float64(lo)
		}
	}
	num := new(big.Int).SetInt64(s.hi)
	num.Lsh(num, 64).Add(num, new(big.Int).SetUint64(s.lo))
	den := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
	den.Mul(den, big.NewInt(s.n))
	f, _ := new(big.Rat).SetFrac(num, den).Float64()
	return f
}

// floatSum is the sum of a group's floats, and how many there were.
type floatSum struct {
	sum float64
	n   int64
}

// floatSumState is exactSumState for floats.
type floatSumState struct {
	acct    *Account
	col     int
	count   int // as in exactSumState
	average bool
	sums    []floatSum
}

func (s *floatSumState) reserve(n int) error { return growState(s.acct, &s.sums, n) }
func (s *floatSumState) free()               { s.sums = freeSlice(s.acct, s.sums) }

func (s *floatSumState) fold(b *columnar.Batch, ids []int32) error {
	v := b.Cols[s.col]
	if v.Type.ID() == arrow.FLOAT32 {
		sumFloats[float32](s.sums, v, b, ids)
	} else {
		sumFloats[float64](s.sums, v, b, ids)
	}
	if s.count < 0 {
		return nil
	}
	forEachValue(v, b, ids, func(_ int, id int32) { s.sums[id].n-- })
	c := b.Cols[s.count]
	counts := columnar.Values[int64](c)
	forEachValue(c, b, ids, func(row int, id int32) { s.sums[id].n += counts[row] })
	return nil
}

func sumFloats[T float32 | float64](sums []floatSum, v *columnar.Vector, b *columnar.Batch, ids []int32) {
	vals := columnar.Values[T](v)
	if v.Const || v.Valid != nil || ids == nil {
		forEachValue(v, b, ids, func(row int, id int32) {
			sums[id].sum += float64(vals[row])
			sums[id].n++
		})
		return
	}
	for i, id := range ids {
		sum := &sums[id]
		sum.sum += float64(vals[rowAt(b.Sel, i)])
		sum.n++
	}
}

func (s *floatSumState) emitState(lo, hi int, out []*columnar.Vector) {
	sums := columnar.Values[float64](fixedOutput(out[0], hi-lo))
	for i := range sums {
		sums[i] = s.sums[lo+i].sum
		if s.sums[lo+i].n == 0 {
			setNull(out[0], i)
		}
	}
	if len(out) > 1 {
		counts := columnar.Values[int64](fixedOutput(out[1], hi-lo))
		for i := range counts {
			counts[i] = s.sums[lo+i].n
		}
	}
}

func (s *floatSumState) emitResult(lo, hi int, out *columnar.Vector) error {
	vals := columnar.Values[float64](fixedOutput(out, hi-lo))
	for i := range vals {
		sum := s.sums[lo+i]
		switch {
		case sum.n == 0:
			vals[i] = 0
			setNull(out, i)
		case s.average:
			vals[i] = sum.sum / float64(sum.n)
		default:
			vals[i] = sum.sum
		}
	}
	return nil
}
