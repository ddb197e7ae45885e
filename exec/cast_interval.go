package exec

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// intervalUnit is one unit of interval text, as months or as nanoseconds; days
// and weeks count as days.
type intervalUnit struct {
	months, days, nanos int64
}

// intervalUnits maps the singular names; plurals and PostgreSQL's short forms
// are listed too. It is never written to.
var intervalUnits = func() map[string]intervalUnit {
	m := map[string]intervalUnit{}
	add := func(u intervalUnit, names ...string) {
		for _, n := range names {
			m[n] = u
		}
	}
	add(intervalUnit{nanos: 1_000}, "microsecond", "microseconds", "us", "usec", "usecs")
	add(intervalUnit{nanos: 1_000_000}, "millisecond", "milliseconds", "ms", "msec", "msecs")
	add(intervalUnit{nanos: 1_000_000_000}, "second", "seconds", "s", "sec", "secs")
	add(intervalUnit{nanos: 60_000_000_000}, "minute", "minutes", "m", "min", "mins")
	add(intervalUnit{nanos: 3_600_000_000_000}, "hour", "hours", "h", "hr", "hrs")
	add(intervalUnit{days: 1}, "day", "days", "d")
	add(intervalUnit{days: 7}, "week", "weeks", "w")
	add(intervalUnit{months: 1}, "month", "months", "mon", "mons")
	add(intervalUnit{months: 12}, "year", "years", "y", "yr", "yrs")
	add(intervalUnit{months: 120}, "decade", "decades")
	add(intervalUnit{months: 1_200}, "century", "centuries", "c")
	add(intervalUnit{months: 12_000}, "millennium", "millennia")
	return m
}()

// intervalSum adds up parts exactly: a fraction of a month goes to days of 30
// per month, a fraction of a day to time.
type intervalSum struct {
	months, days, nanos int128
}

func (s *intervalSum) add(quantity *big.Rat, u intervalUnit, negate bool) bool {
	if negate {
		quantity = new(big.Rat).Neg(quantity)
	}
	months, rest := splitRat(quantity, u.months)
	moreDays, rest2 := splitRat(new(big.Rat).Add(ratMul(rest, 30), ratMul(quantity, u.days)), 1)
	nanos, rest3 := splitRat(new(big.Rat).Add(ratMul(rest2, nanosPerDay), ratMul(quantity, u.nanos)), 1)
	if r, _ := rest3.Float64(); math.Abs(r) >= 0.5 {
		nanos.Add(nanos, big.NewInt(int64(rest3.Sign())))
	}
	m, ok1 := int128OfBig(months)
	d, ok2 := int128OfBig(moreDays)
	n, ok3 := int128OfBig(nanos)
	s.months, s.days, s.nanos = s.months.add(m), s.days.add(d), s.nanos.add(n)
	return ok1 && ok2 && ok3
}

func ratMul(r *big.Rat, n int64) *big.Rat {
	return new(big.Rat).Mul(r, new(big.Rat).SetInt64(n))
}

// splitRat is the integral part of r*n, towards zero, and what remains.
func splitRat(r *big.Rat, n int64) (*big.Int, *big.Rat) {
	x := ratMul(r, n)
	q := new(big.Int).Quo(x.Num(), x.Denom())
	return q, x.Sub(x, new(big.Rat).SetInt(q))
}

func (s *intervalSum) value() (arrow.MonthDayNanoInterval, error) {
	m, ok1 := s.months.int64()
	d, ok2 := s.days.int64()
	n, ok3 := s.nanos.int64()
	if !ok1 || !ok2 || !ok3 || m != int64(int32(m)) || d != int64(int32(d)) {
		return arrow.MonthDayNanoInterval{}, intervalRange()
	}
	return arrow.MonthDayNanoInterval{Months: int32(m), Days: int32(d), Nanoseconds: n}, nil
}

// parseInterval reads PostgreSQL's verbose form ("1 year 2 mons 03:04:05.6 ago")
// with any units, the SQL form "years-months", and ISO 8601 ("P1Y2M3DT4H5M6S").
// A number without unit counts seconds.
func parseInterval(text []byte) (arrow.MonthDayNanoInterval, error) {
	s := strings.ToLower(string(trimSpace(text)))
	var sum intervalSum
	ok := s != "" && len(s) < 256
	if ok && strings.HasPrefix(s, "p") {
		ok = parseISOInterval(s[1:], &sum)
	} else if ok {
		ok = parseVerboseInterval(s, &sum)
	}
	if !ok {
		return arrow.MonthDayNanoInterval{}, invalidDatetime("interval", text)
	}
	return sum.value()
}

func parseVerboseInterval(s string, sum *intervalSum) bool {
	s, ago := strings.CutSuffix(strings.TrimPrefix(s, "@"), " ago")
	fields := strings.Fields(s)
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if strings.Contains(f, ":") {
			if !addClock(f, sum, ago) {
				return false
			}
			continue
		}
		if y, m, found := strings.Cut(strings.TrimLeft(f, "+-"), "-"); found {
			negative := strings.HasPrefix(f, "-")
			years, err1 := strconv.ParseInt(y, 10, 32)
			months, err2 := strconv.ParseInt(m, 10, 32)
			if err1 != nil || err2 != nil || months > 11 {
				return false
			}
			sum.add(new(big.Rat).SetInt64(years*12+months), intervalUnit{months: 1}, ago != negative)
			continue
		}
		number, unit := splitNumber(f)
		if unit == "" {
			unit = "second"
			if i+1 < len(fields) && !startsNumber(fields[i+1]) {
				i++
				unit = fields[i]
			}
		}
		u, known := intervalUnits[unit]
		q, ok := parseQuantity(number)
		if !known || !ok || !sum.add(q, u, ago) {
			return false
		}
	}
	return len(fields) > 0
}

func startsNumber(s string) bool { return strings.IndexByte("+-.0123456789", s[0]) >= 0 }

// splitNumber separates "90days" into number and unit.
func splitNumber(s string) (number, unit string) {
	i := 0
	for i < len(s) && strings.IndexByte("+-.0123456789", s[i]) >= 0 {
		i++
	}
	return s[:i], s[i:]
}

// parseQuantity reads a plain decimal number exactly.
func parseQuantity(s string) (*big.Rat, bool) {
	if s == "" || len(s) > 40 || strings.Trim(s, "+-.") == "" {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// addClock reads [+-]hh:mm[:ss[.fraction]], hours unbounded.
func addClock(f string, sum *intervalSum, ago bool) bool {
	negative := strings.HasPrefix(f, "-")
	parts := strings.Split(strings.TrimLeft(f, "+-"), ":")
	if len(parts) > 3 {
		return false
	}
	for i, unit := range []string{"hour", "minute", "second"}[:len(parts)] {
		q, ok := parseQuantity(parts[i])
		if !ok || q.Sign() < 0 || (i > 0 && q.Cmp(new(big.Rat).SetInt64(60)) >= 0) || (i < 2 && !q.IsInt()) {
			return false
		}
		if !sum.add(q, intervalUnits[unit], ago != negative) {
			return false
		}
	}
	return true
}

// parseISOInterval reads what follows the P of ISO 8601's designator form.
func parseISOInterval(s string, sum *intervalSum) bool {
	date := map[byte]string{'y': "year", 'm': "month", 'w': "week", 'd': "day"}
	clock := map[byte]string{'h': "hour", 'm': "minute", 's': "second"}
	units, any := date, false
	for s != "" {
		if s[0] == 't' {
			units, s = clock, s[1:]
			continue
		}
		number, rest := splitNumber(s)
		q, ok := parseQuantity(number)
		if !ok || rest == "" {
			return false
		}
		unit, known := units[rest[0]]
		if !known || !sum.add(q, intervalUnits[unit], false) {
			return false
		}
		s, any = rest[1:], true
	}
	return any
}
