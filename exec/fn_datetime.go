package exec

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

type monthDayNano = arrow.MonthDayNanoInterval

// datetimeOverloads are the forms of an arithmetic operator over dates, times
// and intervals. The first one wins when a literal has no type.
func datetimeOverloads(op string) []overload {
	switch op {
	case "+":
		return []overload{
			{params: []kind{kDate, kInterval}, result: returns(catalog.Timestamp), make: dateInterval(1, 0, 1)},
			{params: []kind{kInterval, kDate}, result: returns(catalog.Timestamp), make: dateInterval(1, 1, 0)},
			{params: []kind{kDate, kInt4}, result: returns(catalog.Date), make: makeDateShift(1)},
			{params: []kind{kInt4, kDate}, result: returns(catalog.Date), make: makeShiftDate},
			{params: []kind{kDate, kTime}, result: returns(catalog.Timestamp), make: makeDateTime},
			{params: []kind{kTimestamp, kInterval}, result: returnsArg(0), make: stampInterval(1)},
			{params: []kind{kInterval, kTimestamp}, result: returnsArg(1), make: intervalStamp},
			{params: []kind{kTimestampTZ, kInterval}, result: returnsArg(0), make: stampInterval(1)},
			{params: []kind{kInterval, kTimestampTZ}, result: returnsArg(1), make: intervalStamp},
			{params: []kind{kTime, kInterval}, result: returns(catalog.Time), make: timeInterval(1)},
			{params: []kind{kInterval, kInterval}, result: returns(catalog.Interval), make: addIntervals(1)},
		}
	case "-":
		return []overload{
			{params: []kind{kDate, kDate}, result: returns(catalog.Integer), make: makeDateDifference},
			{params: []kind{kDate, kInt4}, result: returns(catalog.Date), make: makeDateShift(-1)},
			{params: []kind{kDate, kInterval}, result: returns(catalog.Timestamp), make: dateInterval(-1, 0, 1)},
			{params: []kind{kTimestamp, kTimestamp}, result: returns(catalog.Interval), make: makeStampDifference},
			{params: []kind{kTimestampTZ, kTimestampTZ}, result: returns(catalog.Interval), make: makeStampDifference},
			{params: []kind{kTimestamp, kInterval}, result: returnsArg(0), make: stampInterval(-1)},
			{params: []kind{kTimestampTZ, kInterval}, result: returnsArg(0), make: stampInterval(-1)},
			{params: []kind{kTime, kTime}, result: returns(catalog.Interval), make: makeTimeDifference},
			{params: []kind{kTime, kInterval}, result: returns(catalog.Time), make: timeInterval(-1)},
			{params: []kind{kInterval, kInterval}, result: returns(catalog.Interval), make: addIntervals(-1)},
			{params: []kind{kInterval}, result: returns(catalog.Interval), make: makeNegateInterval},
		}
	case "*":
		return []overload{
			{params: []kind{kInterval, kDouble}, result: returns(catalog.Interval), make: func(*callSite) (kernel, error) { return perRow2(scaleInterval), nil }},
			{params: []kind{kDouble, kInterval}, result: returns(catalog.Interval), make: func(*callSite) (kernel, error) {
				return perRow2(func(x float64, iv monthDayNano) (monthDayNano, error) { return scaleInterval(iv, x) }), nil
			}},
		}
	case "/":
		return []overload{{params: []kind{kInterval, kDouble}, result: returns(catalog.Interval), make: func(*callSite) (kernel, error) {
			return perRow2(func(iv monthDayNano, x float64) (monthDayNano, error) {
				if x == 0 {
					return iv, divisionByZero()
				}
				return scaleInterval(iv, 1/x)
			}), nil
		}}}
	}
	return nil
}

// dateInterval makes "date +/- interval" with the arguments at given places.
func dateInterval(sign int64, date, interval int) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) {
		move := func(d int32, iv monthDayNano) (int64, error) {
			return addInterval(int64(d)*microsPerDay, iv, sign, 1_000_000)
		}
		if date < interval {
			return perRow2(move), nil
		}
		return perRow2(func(iv monthDayNano, d int32) (int64, error) { return move(d, iv) }), nil
	}
}

func makeDateShift(sign int64) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) {
		return perRow2(func(d, n int32) (int32, error) { return toDate(int64(d) + sign*int64(n)) }), nil
	}
}

func makeShiftDate(*callSite) (kernel, error) {
	return perRow2(func(n, d int32) (int32, error) { return toDate(int64(d) + int64(n)) }), nil
}

func makeDateTime(*callSite) (kernel, error) {
	return perRow2(func(d int32, t int64) (int64, error) { return joinDay(int64(d), t, microsPerDay) }), nil
}

func makeDateDifference(*callSite) (kernel, error) {
	return perRow2(func(a, b int32) (int32, error) {
		n := int64(a) - int64(b)
		if n != int64(int32(n)) {
			return 0, intRangeError[int32]()
		}
		return int32(n), nil
	}), nil
}

func stampInterval(sign int64) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		per := unitsPerSecond(site.args[0])
		return perRow2(func(t int64, iv monthDayNano) (int64, error) { return addInterval(t, iv, sign, per) }), nil
	}
}

func intervalStamp(site *callSite) (kernel, error) {
	per := unitsPerSecond(site.args[1])
	return perRow2(func(iv monthDayNano, t int64) (int64, error) { return addInterval(t, iv, 1, per) }), nil
}

// timeInterval wraps around midnight; only the time part of the interval counts.
func timeInterval(sign int64) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) {
		return perRow2(func(t int64, iv monthDayNano) (int64, error) {
			return floorMod(t+sign*(iv.Nanoseconds/1000), microsPerDay), nil
		}), nil
	}
}

// makeStampDifference counts days of 24 hours, then time.
func makeStampDifference(site *callSite) (kernel, error) {
	perA, perB := unitsPerSecond(site.args[0]), unitsPerSecond(site.args[1])
	return perRow2(func(a, b int64) (monthDayNano, error) {
		nanos := mul64(a, 1_000_000_000/perA).sub(mul64(b, 1_000_000_000/perB))
		q, r := nanos.divmod64(nanosPerDay)
		days, ok := q.int64()
		if !ok || days != int64(int32(days)) {
			return monthDayNano{}, intervalRange()
		}
		return monthDayNano{Days: int32(days), Nanoseconds: r}, nil
	}), nil
}

func makeTimeDifference(*callSite) (kernel, error) {
	return perRow2(func(a, b int64) (monthDayNano, error) { return monthDayNano{Nanoseconds: (a - b) * 1000}, nil }), nil
}

func addIntervals(sign int64) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) {
		return perRow2(func(a, b monthDayNano) (monthDayNano, error) {
			var s intervalSum
			s.months = int128Of(int64(a.Months) + sign*int64(b.Months))
			s.days = int128Of(int64(a.Days) + sign*int64(b.Days))
			s.nanos = int128Of(a.Nanoseconds).add(mul64(b.Nanoseconds, sign))
			return s.value()
		}), nil
	}
}

func makeNegateInterval(*callSite) (kernel, error) {
	return perRow(func(a monthDayNano) (monthDayNano, error) {
		s := intervalSum{int128Of(-int64(a.Months)), int128Of(-int64(a.Days)), int128Of(a.Nanoseconds).neg()}
		return s.value()
	}), nil
}

// scaleInterval multiplies each part and carries fractions down, a month being
// 30 days.
func scaleInterval(iv monthDayNano, x float64) (monthDayNano, error) {
	months := float64(iv.Months) * x
	wholeMonths := math.Trunc(months)
	days := float64(iv.Days)*x + roundMicro((months-wholeMonths)*30)
	wholeDays := math.Trunc(days)
	nanos := math.RoundToEven((float64(iv.Nanoseconds)*x+roundMicro(days-wholeDays)*nanosPerDay)/1000) * 1000
	if !(math.Abs(wholeMonths) <= math.MaxInt32 && math.Abs(wholeDays) <= math.MaxInt32 && math.Abs(nanos) < math.MaxInt64) {
		return monthDayNano{}, intervalRange()
	}
	return monthDayNano{Months: int32(wholeMonths), Days: int32(wholeDays), Nanoseconds: int64(nanos)}, nil
}

// roundMicro drops the noise that binary fractions leave in a carry.
func roundMicro(x float64) float64 { return math.RoundToEven(x*1e6) / 1e6 }

// datetimeFunctions are the named functions that make or truncate dates.
func datetimeFunctions() []*function {
	trunc := func(k kind) overload {
		return overload{params: []kind{kText, k}, result: returnsArg(1), make: makeDateTrunc}
	}
	return []*function{
		{name: "date_trunc", doc: "Truncates to a unit: microseconds to millennium. A date is taken as a timestamp.",
			overloads: []overload{trunc(kTimestamp), trunc(kTimestampTZ),
				{params: []kind{kText, kTimestampTZ, kText}, result: returnsArg(1), make: makeZonedTrunc}}},
		{name: "make_date", doc: "The date of a year, month and day.",
			overloads: []overload{{params: []kind{kInt4, kInt4, kInt4}, result: returns(catalog.Date), make: makeMakeDate}}},
	}
}

func makeMakeDate(*callSite) (kernel, error) {
	return func(f *frame) error {
		out := fixedOut[int32](f)
		return f.each(func(i int) (err error) {
			out[i], err = dateOf(at[int32](f.args[0], i), at[int32](f.args[1], i), at[int32](f.args[2], i))
			return err
		})
	}, nil
}

// dateOf is the day of a year, month and day, where -1 is the year 1 BC.
func dateOf(year, m, d int32) (int32, error) {
	y := int64(year)
	if y < 0 {
		y++ // the astronomical year 0
	} else if y == 0 {
		m = 0 // there is no year 0
	}
	if y < minYear || y > maxYear || m < 1 || m > 12 || d < 1 || int(d) > daysInMonth(y, int(m)) {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "date field value out of range: %d-%02d-%02d", year, m, d)
	}
	return int32(daysOf(y, int(m), int(d))), nil
}

// makeDateTrunc resolves a constant unit once.
func makeDateTrunc(site *callSite) (kernel, error) {
	per := unitsPerSecond(site.args[1])
	var fixed func(int64) (int64, error)
	if c := site.consts[0]; c != nil && !c.IsNull(0) {
		// A unit that does not resolve is an error of the rows that reach it.
		fixed, _ = truncator(string(c.BytesAt(0)), per)
	}
	return func(f *frame) error {
		out, unit := fixedOut[int64](f), f.args[0]
		return f.each(func(i int) (err error) {
			fn := fixed
			if fn == nil {
				if fn, err = truncator(string(unit.BytesAt(i)), per); err != nil {
					return err
				}
			}
			out[i], err = fn(at[int64](f.args[1], i))
			return err
		})
	}, nil
}

// truncator returns the truncation to a unit of timestamps at a resolution.
func truncator(unit string, per int64) (func(int64) (int64, error), error) {
	field, err := fieldOf(unit)
	if err != nil {
		return nil, err
	}
	perDay := per * secondsPerDay
	step := int64(0)
	switch field {
	case fieldMicrosecond:
		step = max(per/1_000_000, 1)
	case fieldMillisecond:
		step = max(per/1_000, 1)
	case fieldSecond:
		step = per
	case fieldMinute:
		step = per * 60
	case fieldHour:
		step = per * 3600
	}
	if step > 0 {
		return func(t int64) (int64, error) { return t - floorMod(t, step), nil }, nil
	}
	first := firstDayOf(field)
	if first == nil {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "unit %q is not supported by date_trunc", unit)
	}
	return func(t int64) (int64, error) {
		days, _ := splitDay(t, perDay)
		return joinDay(first(days), 0, perDay)
	}, nil
}

// firstDayOf returns the first day of the period that holds a day, nil for
// fields that are no period of days.
func firstDayOf(field datetimeField) func(days int64) int64 {
	years := func(n, offset int64) func(int64) int64 {
		return func(days int64) int64 {
			y, _, _ := civil(days)
			return daysOf(floorDiv(y-offset, n)*n+offset, 1, 1)
		}
	}
	switch field {
	case fieldDay:
		return func(days int64) int64 { return days }
	case fieldWeek:
		return func(days int64) int64 { return days - floorMod(days+3, 7) }
	case fieldMonth:
		return func(days int64) int64 {
			y, m, _ := civil(days)
			return daysOf(y, m, 1)
		}
	case fieldQuarter:
		return func(days int64) int64 {
			y, m, _ := civil(days)
			return daysOf(y, (m-1)/3*3+1, 1)
		}
	case fieldYear:
		return years(1, 0)
	case fieldDecade:
		return years(10, 0)
	case fieldCentury:
		return years(100, 1)
	case fieldMillennium:
		return years(1000, 1)
	}
	return nil
}
