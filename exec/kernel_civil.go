package exec

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/sqlstate"
)

// The calendar is the proleptic Gregorian one. Days count from 1970-01-01,
// years are astronomical: year 0 is 1 BC.

const (
	secondsPerDay = 86_400
	microsPerDay  = secondsPerDay * 1_000_000
	nanosPerDay   = secondsPerDay * 1_000_000_000
)

// Years that dates and timestamps may name, as in PostgreSQL.
const (
	minYear = -4713
	maxYear = 5874897
)

// civil splits days since the epoch into year, month and day. Days of the
// years 0 to 100,000 take the way of Neri and Schneider (2022), in which all
// divisions are multiplications of 32 and 64-bit unsigned numbers.
func civil(days int64) (year int64, month, day int) {
	if n := uint64(days + 719_468); n < 36_524_250 {
		n1 := 4*uint32(n) + 3
		century := n1 / 146_097
		p2 := uint64(n1%146_097|3) * 2_939_745
		yearOfCentury, dayOfYear := uint32(p2>>32), uint32(p2)/2_939_745/4
		n3 := 2_141*dayOfYear + 197_913
		month, day = int(n3>>16), int(n3&0xffff/2_141)+1
		year = int64(100*century + yearOfCentury)
		if dayOfYear >= 306 {
			year, month = year+1, month-12
		}
		return year, month, day
	}
	return civilFar(days)
}

// civilFar is civil for any day.
func civilFar(days int64) (year int64, month, day int) {
	z := days + 719_468 // days since 0000-03-01
	era := floorDiv(z, 146_097)
	doe := uint32(z - era*146_097)
	yoe := (doe - doe/1_460 + doe/36_524 - doe/146_096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy-(153*mp+2)/5) + 1
	month = int(mp) + 3
	year = int64(yoe) + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

// daysOf is the inverse of civil.
func daysOf(year int64, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := floorDiv(year, 400)
	yoe := year - era*400
	doy := int64((153*(month-3)+2)/5 + day - 1)
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146_097 + doe - 719_468
}

func isLeap(year int64) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysInMonth(year int64, month int) int {
	switch month {
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// addMonths moves a day by months and clamps it to the month's last day.
func addMonths(days, months int64) int64 {
	y, m, d := civil(days)
	t := y*12 + int64(m) - 1 + months
	y, m = floorDiv(t, 12), int(t-floorDiv(t, 12)*12)+1
	return daysOf(y, m, min(d, daysInMonth(y, m)))
}

// unitsPerSecond is the resolution of a timestamp or time type.
func unitsPerSecond(dt arrow.DataType) int64 {
	if t, ok := dt.(*arrow.TimestampType); ok {
		switch t.Unit {
		case arrow.Second:
			return 1
		case arrow.Millisecond:
			return 1_000
		case arrow.Nanosecond:
			return 1_000_000_000
		}
	}
	return 1_000_000
}

// splitDay separates a timestamp into days and the units within the day.
func splitDay(ts, unitsPerDay int64) (days, rest int64) {
	days = floorDiv(ts, unitsPerDay)
	return days, ts - days*unitsPerDay
}

// joinDay is the inverse of splitDay; it fails outside the type's range.
func joinDay(days, rest, unitsPerDay int64) (int64, error) {
	t := mul64(days, unitsPerDay).add(int128Of(rest))
	v, ok := t.int64()
	if !ok || v == math.MinInt64 {
		return 0, timestampRange()
	}
	return v, nil
}

func timestampRange() error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "timestamp out of range")
}

func dateRange() error { return sqlstate.New(sqlstate.DatetimeOverflow, "date out of range") }

func intervalRange() error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "interval out of range")
}

// toDate checks that days fit a date.
func toDate(days int64) (int32, error) {
	if days < math.MinInt32 || days > math.MaxInt32 {
		return 0, dateRange()
	}
	return int32(days), nil
}

// addInterval adds an interval to a timestamp of the given resolution: months
// first, then days, then time.
func addInterval(ts int64, iv arrow.MonthDayNanoInterval, sign int64, perSecond int64) (int64, error) {
	perDay := perSecond * secondsPerDay
	days, rest := splitDay(ts, perDay)
	if iv.Months != 0 {
		days = addMonths(days, sign*int64(iv.Months))
	}
	days += sign * int64(iv.Days)
	t, err := joinDay(days, rest, perDay)
	if err != nil {
		return 0, err
	}
	units := iv.Nanoseconds / (1_000_000_000 / perSecond)
	r, ok := int128Of(t).add(mul64(units, sign)).int64()
	if !ok {
		return 0, timestampRange()
	}
	return r, nil
}

// isoWeek is the ISO 8601 week number and the year it belongs to.
func isoWeek(days int64) (year int64, week int) {
	weekday := floorMod(days+3, 7) // Monday is 0
	thursday := days - weekday + 3
	year, _, _ = civil(thursday)
	return year, int((thursday-daysOf(year, 1, 1))/7) + 1
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }
