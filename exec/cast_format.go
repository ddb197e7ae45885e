package exec

import (
	"encoding/hex"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// toText makes the kernel that prints values as PostgreSQL does, nil for types
// without a text form.
func toText(from arrow.DataType) kernel {
	appendOne := appender(from)
	if appendOne == nil {
		return nil
	}
	if kindOf(from) == kText {
		return identity
	}
	return func(f *frame) error {
		v := f.args[0]
		return f.text(func(dst []byte, i int) ([]byte, error) { return appendOne(dst, v, i), nil })
	}
}

// FormatValue prints one non-null value as CAST(value AS TEXT) does; false for
// types without a text form.
func FormatValue(dst []byte, v *columnar.Vector, row int) ([]byte, bool) {
	appendOne := appender(v.Type)
	if appendOne == nil {
		return dst, false
	}
	return appendOne(dst, v, row), true
}

// appender returns the printer of one physical type.
func appender(dt arrow.DataType) func(dst []byte, v *columnar.Vector, i int) []byte {
	switch kindOf(dt) {
	case kBool:
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			return strconv.AppendBool(dst, at[byte](v, i) != 0)
		}
	case kInt2:
		return appendInteger[int16]
	case kInt4:
		return appendInteger[int32]
	case kInt8:
		return appendInteger[int64]
	case kReal:
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			return appendFloat(dst, float64(at[float32](v, i)), 32)
		}
	case kDouble:
		return func(dst []byte, v *columnar.Vector, i int) []byte { return appendFloat(dst, at[float64](v, i), 64) }
	case kDecimal:
		_, s, _ := decimalParts(dt)
		return func(dst []byte, v *columnar.Vector, i int) []byte { return appendDecimal(dst, wideAt(v, i), s) }
	case kText:
		return func(dst []byte, v *columnar.Vector, i int) []byte { return append(dst, v.BytesAt(i)...) }
	case kBytea:
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			return hex.AppendEncode(append(dst, `\x`...), v.BytesAt(i))
		}
	case kUUID:
		return func(dst []byte, v *columnar.Vector, i int) []byte { return appendUUID(dst, at[[16]byte](v, i)) }
	}
	return temporalAppender(dt)
}

func temporalAppender(dt arrow.DataType) func(dst []byte, v *columnar.Vector, i int) []byte {
	switch kindOf(dt) {
	case kDate:
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			dst, bc := appendDate(dst, int64(at[int32](v, i)))
			return appendEra(dst, bc)
		}
	case kTime:
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			return appendClock(dst, at[int64](v, i), 1_000_000)
		}
	case kTimestamp, kTimestampTZ:
		per := unitsPerSecond(dt)
		zone := kindOf(dt) == kTimestampTZ
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			days, rest := splitDay(at[int64](v, i), per*secondsPerDay)
			dst, bc := appendDate(dst, days)
			dst = appendClock(append(dst, ' '), rest, per)
			if zone {
				dst = append(dst, "+00"...)
			}
			return appendEra(dst, bc)
		}
	case kInterval:
		return func(dst []byte, v *columnar.Vector, i int) []byte {
			return appendInterval(dst, at[arrow.MonthDayNanoInterval](v, i))
		}
	}
	return nil
}

func appendInteger[T signed](dst []byte, v *columnar.Vector, i int) []byte {
	return strconv.AppendInt(dst, int64(at[T](v, i)), 10)
}

// appendFloat prints the shortest digits that read back as the same value.
func appendFloat(dst []byte, x float64, bits int) []byte {
	switch {
	case math.IsNaN(x):
		return append(dst, "NaN"...)
	case math.IsInf(x, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(x, -1):
		return append(dst, "-Infinity"...)
	}
	large := 1e15
	if bits == 32 {
		large = 1e6
	}
	format := byte('f')
	if a := math.Abs(x); a != 0 && (a >= large || a < 1e-4) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, x, format, -1, bits)
}

// appendDecimal prints an unscaled value with scale digits after the point.
func appendDecimal(dst []byte, x int128, scale int) []byte {
	if x.hi < 0 {
		dst = append(dst, '-')
	}
	a := x.abs()
	var buf [48]byte
	at := len(buf)
	digits := 0
	for ; !a.isZero() || digits <= scale; digits++ {
		if digits == scale && scale > 0 {
			at--
			buf[at] = '.'
		}
		var r int64
		if a.hi == 0 {
			r = int64(a.lo % 10)
			a.lo /= 10
		} else {
			a, r = a.divmod64(10)
		}
		at--
		buf[at] = byte('0' + r)
	}
	return append(dst, buf[at:]...)
}

func appendUUID(dst []byte, u [16]byte) []byte {
	for i, n := range [5]int{4, 2, 2, 2, 6} {
		if i > 0 {
			dst = append(dst, '-')
		}
		from := [5]int{0, 4, 6, 8, 10}[i]
		dst = hex.AppendEncode(dst, u[from:from+n])
	}
	return dst
}

// appendPadded prints a non-negative number with at least width digits.
func appendPadded(dst []byte, n int64, width int) []byte {
	for w := width - 1; w > 0 && n < pow10int64[w]; w-- {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, n, 10)
}

// appendDate prints year-month-day; bc reports a year before Christ, which
// appendEra marks at the very end of the value.
func appendDate(dst []byte, days int64) (out []byte, bc bool) {
	y, m, d := civil(days)
	if y <= 0 {
		y, bc = 1-y, true
	}
	dst = append(appendPadded(dst, y, 4), '-')
	dst = append(appendPadded(dst, int64(m), 2), '-')
	return appendPadded(dst, int64(d), 2), bc
}

func appendEra(dst []byte, bc bool) []byte {
	if bc {
		return append(dst, " BC"...)
	}
	return dst
}

// appendClock prints a time of day, the fraction without trailing zeros.
func appendClock(dst []byte, units, perSecond int64) []byte {
	sec := units / perSecond
	dst = append(appendPadded(dst, sec/3600, 2), ':')
	dst = append(appendPadded(dst, sec/60%60, 2), ':')
	dst = appendPadded(dst, sec%60, 2)
	return appendFraction(dst, units%perSecond, perSecond)
}

func appendFraction(dst []byte, frac, perSecond int64) []byte {
	if frac == 0 {
		return dst
	}
	width := len(strconv.FormatInt(perSecond, 10)) - 1
	dst = appendPadded(append(dst, '.'), frac, width)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// appendInterval prints in PostgreSQL's default style.
func appendInterval(dst []byte, iv arrow.MonthDayNanoInterval) []byte {
	start := len(dst)
	field := func(n int64, unit string) {
		if n == 0 {
			return
		}
		if len(dst) > start {
			dst = append(dst, ' ')
		}
		dst = append(strconv.AppendInt(dst, n, 10), ' ')
		dst = append(dst, unit...)
		if n != 1 {
			dst = append(dst, 's')
		}
	}
	field(int64(iv.Months/12), "year")
	field(int64(iv.Months%12), "mon")
	field(int64(iv.Days), "day")
	if iv.Nanoseconds == 0 && len(dst) > start {
		return dst
	}
	if len(dst) > start {
		dst = append(dst, ' ')
	}
	n := iv.Nanoseconds
	if n < 0 {
		dst = append(dst, '-')
	} else if iv.Months < 0 || iv.Days < 0 {
		dst = append(dst, '+')
	}
	sec := absUint(n)
	dst = append(appendPadded(dst, int64(sec/1_000_000_000/3600), 2), ':')
	dst = append(appendPadded(dst, int64(sec/1_000_000_000/60%60), 2), ':')
	dst = appendPadded(dst, int64(sec/1_000_000_000%60), 2)
	return appendFraction(dst, int64(sec%1_000_000_000), 1_000_000_000)
}

func absUint(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}
