package exec

import (
	"math"

	"skein/catalog"
	"skein/sqlstate"
)

// calendarFunctions make and take apart timestamps and intervals.
func calendarFunctions() []*function {
	return []*function{
		{name: "age", doc: "The difference of two timestamps in years, months, days and time.", overloads: []overload{
			{params: []kind{kTimestamp, kTimestamp}, result: returns(catalog.Interval), make: makeAge},
			{params: []kind{kTimestampTZ, kTimestampTZ}, result: returns(catalog.Interval), make: makeAge}}},
		{name: "make_time", doc: "The time of an hour, minute and second.", overloads: []overload{
			{params: []kind{kInt4, kInt4, kDouble}, result: returns(catalog.Time), make: plain(func(f *frame) error {
				out := fixedOut[int64](f)
				return f.each(func(i int) (err error) {
					out[i], err = clockOf(at[int32](f.args[0], i), at[int32](f.args[1], i), at[float64](f.args[2], i))
					return err
				})
			})}}},
		{name: "make_timestamp", doc: "The timestamp of a year, month, day, hour, minute and second.", overloads: []overload{
			{params: []kind{kInt4, kInt4, kInt4, kInt4, kInt4, kDouble}, result: returns(catalog.Timestamp), make: plain(makeTimestampKernel)}}},
		{name: "justify_days", doc: "An interval with every 30 days made a month.", overloads: []overload{
			{params: []kind{kInterval}, result: returns(catalog.Interval), make: func(*callSite) (kernel, error) {
				return perRow(justifyDays), nil
			}}}},
		{name: "justify_hours", doc: "An interval with every 24 hours made a day.", overloads: []overload{
			{params: []kind{kInterval}, result: returns(catalog.Interval), make: func(*callSite) (kernel, error) {
				return perRow(justifyHours), nil
			}}}},
		{name: "isfinite", doc: "Whether a date, timestamp or interval is finite: all are.", overloads: []overload{
			{params: []kind{kDate}, result: returns(catalog.Boolean), make: plain(alwaysTrue)},
			{params: []kind{kTimestamp}, result: returns(catalog.Boolean), make: plain(alwaysTrue)},
			{params: []kind{kTimestampTZ}, result: returns(catalog.Boolean), make: plain(alwaysTrue)},
			{params: []kind{kInterval}, result: returns(catalog.Boolean), make: plain(alwaysTrue)}}},
	}
}

func alwaysTrue(f *frame) error {
	out := fixedOut[byte](f)
	for i := range out {
		out[i] = 1
	}
	return nil
}

func makeAge(site *callSite) (kernel, error) {
	perA, perB := unitsPerSecond(site.args[0]), unitsPerSecond(site.args[1])
	return perRow2(func(a, b int64) (monthDayNano, error) { return ageOf(a, perA, b, perB), nil }), nil
}

// ageOf subtracts field by field, borrowing days from the month that begins at
// the earlier of the two.
func ageOf(a, perA, b, perB int64) monthDayNano {
	daysA, restA := splitDay(a, perA*secondsPerDay)
	daysB, restB := splitDay(b, perB*secondsPerDay)
	nanosA, nanosB := restA*(1_000_000_000/perA), restB*(1_000_000_000/perB)
	negative := daysA < daysB || daysA == daysB && nanosA < nanosB
	if negative {
		daysA, daysB, nanosA, nanosB = daysB, daysA, nanosB, nanosA
	}
	y1, m1, d1 := civil(daysA)
	y2, m2, d2 := civil(daysB)
	months, days, nanos := (y1-y2)*12+int64(m1-m2), d1-d2, nanosA-nanosB
	if nanos < 0 {
		nanos += nanosPerDay
		days--
	}
	if days < 0 {
		days += daysInMonth(y2, m2)
		months--
	}
	if negative {
		months, days, nanos = -months, -days, -nanos
	}
	return monthDayNano{Months: int32(months), Days: int32(days), Nanoseconds: nanos}
}

func clockOf(hour, minute int32, second float64) (int64, error) {
	if hour < 0 || hour > 24 || minute < 0 || minute > 59 || !(second >= 0 && second <= 60) ||
		hour == 24 && (minute > 0 || second > 0) {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "time field value out of range: %d:%02d:%02g", hour, minute, second)
	}
	return (int64(hour)*60+int64(minute))*60_000_000 + int64(math.RoundToEven(second*1e6)), nil
}

func makeTimestampKernel(f *frame) error {
	out := fixedOut[int64](f)
	return f.each(func(i int) error {
		day, err := dateOf(at[int32](f.args[0], i), at[int32](f.args[1], i), at[int32](f.args[2], i))
		if err != nil {
			return err
		}
		clock, err := clockOf(at[int32](f.args[3], i), at[int32](f.args[4], i), at[float64](f.args[5], i))
		if err != nil {
			return err
		}
		out[i], err = joinDay(int64(day), clock, microsPerDay)
		return err
	})
}

func justifyDays(iv monthDayNano) (monthDayNano, error) {
	s := intervalSum{int128Of(int64(iv.Months) + int64(iv.Days/30)), int128Of(int64(iv.Days % 30)), int128Of(iv.Nanoseconds)}
	if m, d := s.months, int64(iv.Days%30); m.cmp(int128{}) > 0 && d < 0 {
		s.months, s.days = m.sub(int128Of(1)), int128Of(d+30)
	} else if m.cmp(int128{}) < 0 && d > 0 {
		s.months, s.days = m.add(int128Of(1)), int128Of(d-30)
	}
	return s.value()
}

func justifyHours(iv monthDayNano) (monthDayNano, error) {
	days, nanos := int64(iv.Days)+iv.Nanoseconds/nanosPerDay, iv.Nanoseconds%nanosPerDay
	if days > 0 && nanos < 0 {
		days, nanos = days-1, nanos+nanosPerDay
	} else if days < 0 && nanos > 0 {
		days, nanos = days+1, nanos-nanosPerDay
	}
	s := intervalSum{int128Of(int64(iv.Months)), int128Of(days), int128Of(nanos)}
	return s.value()
}
