package exec

import (
	"math/big"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// int128 is a two's complement integer in decimal128's memory layout.
type int128 struct {
	lo uint64
	hi int64
}

func int128Of(x int64) int128 { return int128{uint64(x), x >> 63} }

func int128OfNum(n decimal128.Num) int128 { return int128{n.LowBits(), n.HighBits()} }

func (a int128) num() decimal128.Num { return decimal128.New(a.hi, a.lo) }

func (a int128) add(b int128) int128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return int128{lo, a.hi + b.hi + int64(carry)}
}

func (a int128) sub(b int128) int128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return int128{lo, a.hi - b.hi - int64(borrow)}
}

func (a int128) neg() int128 { return int128{}.sub(a) }

func (a int128) abs() int128 {
	if a.hi < 0 {
		return a.neg()
	}
	return a
}

func (a int128) less(b int128) bool {
	return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo)
}

func (a int128) cmp(b int128) int {
	switch {
	case a.less(b):
		return -1
	case a == b:
		return 0
	}
	return 1
}

func (a int128) isZero() bool { return a.lo == 0 && a.hi == 0 }

// int64 reports whether the value fits an int64, and that value.
func (a int128) int64() (int64, bool) {
	x := int64(a.lo)
	return x, a.hi == x>>63
}

// mul64 is the exact product of two int64.
func mul64(a, b int64) int128 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int128{lo, int64(hi) - (a>>63)&b - (b>>63)&a}
}

// mul multiplies modulo 2^128 and reports whether the result is exact.
func (a int128) mul(b int128) (int128, bool) {
	if x, ok := a.int64(); ok {
		if y, ok := b.int64(); ok {
			return mul64(x, y), true
		}
	}
	negative := (a.hi < 0) != (b.hi < 0)
	x, y := a.abs(), b.abs()
	hi, lo := bits.Mul64(x.lo, y.lo)
	h1, l1 := bits.Mul64(uint64(x.hi), y.lo)
	h2, l2 := bits.Mul64(x.lo, uint64(y.hi))
	hi, c1 := bits.Add64(hi, l1, 0)
	hi, c2 := bits.Add64(hi, l2, 0)
	exact := h1|h2|c1|c2 == 0 && (x.hi == 0 || y.hi == 0) && int64(hi) >= 0
	r := int128{lo, int64(hi)}
	if negative {
		r = r.neg()
	}
	return r, exact
}

// divmod64 divides by a positive number; the remainder has the dividend's sign.
func (a int128) divmod64(d uint64) (q int128, r int64) {
	x := a.abs()
	hi, rem := bits.Div64(0, uint64(x.hi), d)
	lo, rem := bits.Div64(rem, x.lo, d)
	q = int128{lo, int64(hi)}
	if a.hi < 0 {
		return q.neg(), -int64(rem)
	}
	return q, int64(rem)
}

func (a int128) big() *big.Int {
	b := new(big.Int).SetInt64(a.hi)
	b.Lsh(b, 64)
	return b.Add(b, new(big.Int).SetUint64(a.lo))
}

// int128OfBig reports false when x does not fit.
func int128OfBig(x *big.Int) (int128, bool) {
	if x.BitLen() > 127 {
		return int128{}, false
	}
	var mag [2]uint64
	abs := new(big.Int).Abs(x)
	mag[0] = new(big.Int).And(abs, maxUint64).Uint64()
	mag[1] = new(big.Int).Rsh(abs, 64).Uint64()
	r := int128{mag[0], int64(mag[1])}
	if x.Sign() < 0 {
		r = r.neg()
	}
	return r, true
}

// maxUint64 is 2^64-1; it is never written to.
var maxUint64 = new(big.Int).SetUint64(1<<64 - 1)

// pow10 holds 10^0 to 10^38; it is never written to.
var pow10 = func() (p [39]int128) {
	p[0] = int128Of(1)
	for i := 1; i < len(p); i++ {
		p[i], _ = p[i-1].mul(int128Of(10))
	}
	return p
}()

// pow10int64 holds 10^0 to 10^18; it is never written to.
var pow10int64 = func() (p [19]int64) {
	for i := range p {
		p[i] = int64(pow10[i].lo)
	}
	return p
}()

// float64 rounds the value to the nearest double but for double rounding of
// magnitudes above 2^64, like PostgreSQL's conversion within one ulp.
func (a int128) float64() float64 {
	if x, ok := a.int64(); ok {
		return float64(x)
	}
	f, _ := new(big.Float).SetInt(a.big()).Float64()
	return f
}
