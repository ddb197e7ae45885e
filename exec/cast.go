package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// CanCast reports whether values of one public type convert to another:
// implicitly, as in expressions, or also by an explicit CAST.
func CanCast(from, to arrow.DataType, explicit bool) bool {
	f, t := kindOf(from), kindOf(to)
	if f == kUnknown || sameValues(from, to) {
		return true
	}
	if f == kList || f == kStruct || t == kList || t == kStruct {
		return false
	}
	if _, ok := implicitCost(f, t); ok || (f == t && f != kNone) {
		return true
	}
	return explicit && castable(f, t)
}

// CanAssign reports whether a value converts when it is stored into a column of
// the other type: as CanCast, and between all numbers, from timestamps to
// their parts, and to text.
func CanAssign(from, to arrow.DataType) bool {
	if CanCast(from, to, false) {
		return true
	}
	f, t := kindOf(from), kindOf(to)
	switch {
	case f.isNumber() && t.isNumber(), isDatetime(f) && isDatetime(t), isDatetime(f) && f != kDate && t == kTime:
		return true
	}
	return t == kText && castable(f, t)
}

// castable is the table of explicit casts between kinds.
func castable(f, t kind) bool {
	switch {
	case f == kNone || t == kNone || f >= kList || t >= kList:
		return false
	case f == t, f == kText, t == kText, f.isNumber() && t.isNumber(), isDatetime(f) && isDatetime(t):
		return true
	case f == kBool:
		return t.isInteger()
	case f.isInteger():
		return t == kBool
	case f == kTimestamp || f == kTimestampTZ:
		return t == kTime
	case f == kTime:
		return t == kInterval
	case f == kInterval:
		return t == kTime
	case f == kUUID:
		return t == kBytea
	case f == kBytea:
		return t == kUUID
	}
	return false
}

// sameValues reports that two types hold values identically.
func sameValues(from, to arrow.DataType) bool {
	return arrow.TypeEqual(catalog.PhysicalType(from), catalog.PhysicalType(to))
}

// cast compiles a conversion; one that changes nothing disappears.
func (c *compiler) cast(x *planner.Cast) (node, error) {
	arg, err := c.compile(x.Arg)
	if err != nil {
		return nil, err
	}
	from, to := arg.typ(), catalog.PhysicalType(x.DataType)
	if arrow.TypeEqual(from, to) {
		return arg, nil
	}
	n := &callNode{fn: &function{name: "cast"}, args: []node{arg}, dt: to}
	if from.ID() == arrow.NULL {
		n.untypedNull = true
		return n, nil
	}
	if n.kern, err = castKernel(from, to); err != nil {
		return nil, err
	}
	return n, nil
}

// castKernel makes the conversion between two different physical types.
func castKernel(from, to arrow.DataType) (kernel, error) {
	f, t := kindOf(from), kindOf(to)
	refuse := sqlstate.New(sqlstate.CannotCoerce, "cannot cast type %s to %s", catalog.TypeName(from), catalog.TypeName(to))
	if !castable(f, t) {
		return nil, refuse
	}
	var k kernel
	switch {
	case t == kText:
		k = toText(from)
	case f == kText:
		k = fromText(to)
	case f.isNumber() && t.isNumber():
		k = castNumber(from, to)
	case isDatetime(f) && isDatetime(t):
		k = castDatetime(from, to)
	default:
		k = castOther(from, f, t)
	}
	if k == nil {
		return nil, refuse
	}
	return k, nil
}

// castOther covers the pairs that belong to no family.
func castOther(from arrow.DataType, f, t kind) kernel {
	switch {
	case f == kBool && t == kInt2:
		return perRow(func(x byte) (int16, error) { return int16(x), nil })
	case f == kBool && t == kInt4:
		return perRow(func(x byte) (int32, error) { return int32(x), nil })
	case f == kBool && t == kInt8:
		return perRow(func(x byte) (int64, error) { return int64(x), nil })
	case f == kInt2 && t == kBool:
		return perRow(func(x int16) (byte, error) { return b2u(x != 0), nil })
	case f == kInt4 && t == kBool:
		return perRow(func(x int32) (byte, error) { return b2u(x != 0), nil })
	case f == kInt8 && t == kBool:
		return perRow(func(x int64) (byte, error) { return b2u(x != 0), nil })
	case t == kTime && isDatetime(f):
		per := unitsPerSecond(from)
		return perRow(func(x int64) (int64, error) {
			_, rest := splitDay(x, per*secondsPerDay)
			return rescaleUnits(rest, per, 1_000_000) % microsPerDay, nil
		})
	case f == kTime && t == kInterval:
		return perRow(func(x int64) (arrow.MonthDayNanoInterval, error) {
			return arrow.MonthDayNanoInterval{Nanoseconds: x * 1000}, nil
		})
	case f == kInterval && t == kTime:
		return perRow(func(x arrow.MonthDayNanoInterval) (int64, error) {
			return floorMod(x.Nanoseconds, nanosPerDay) / 1000, nil
		})
	case f == kUUID && t == kBytea:
		return func(f *frame) error {
			v := f.args[0]
			return f.text(func(dst []byte, i int) ([]byte, error) {
				x := at[[16]byte](v, i)
				return append(dst, x[:]...), nil
			})
		}
	case f == kBytea && t == kUUID:
		return perText(func(p []byte) (u [16]byte, err error) {
			if len(p) != 16 {
				return u, sqlstate.New(sqlstate.InvalidText, "a uuid has 16 bytes, not %d", len(p))
			}
			return [16]byte(p), nil
		})
	}
	return nil
}

// castDatetime converts between dates and timestamps of any resolution. The
// session time zone is UTC, so timestamp and timestamptz hold the same values.
func castDatetime(from, to arrow.DataType) kernel {
	f, t := kindOf(from), kindOf(to)
	perFrom, perTo := unitsPerSecond(from), unitsPerSecond(to)
	switch {
	case f == kDate && t == kDate:
		return identity
	case f == kDate:
		return perRow(func(x int32) (int64, error) { return joinDay(int64(x), 0, perTo*secondsPerDay) })
	case t == kDate:
		return perRow(func(x int64) (int32, error) {
			days, _ := splitDay(x, perFrom*secondsPerDay)
			return toDate(days)
		})
	case perFrom == perTo:
		return identity
	case perFrom > perTo:
		return perRow(func(x int64) (int64, error) { return rescaleUnits(x, perFrom, perTo), nil })
	}
	return perRow(func(x int64) (int64, error) {
		r, ok := mul64(x, perTo/perFrom).int64()
		if !ok {
			return 0, timestampRange()
		}
		return r, nil
	})
}

// rescaleUnits changes the resolution of a time within range, rounding half up
// to a coarser one.
func rescaleUnits(x, from, to int64) int64 {
	if from <= to {
		return x * (to / from)
	}
	step := from / to
	q, r := floorDiv(x, step), floorMod(x, step)
	if r*2 >= step {
		q++
	}
	return q
}
