package exec

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// datetimeField is a part of a date, time or interval.
type datetimeField uint8

const (
	fieldMicrosecond datetimeField = iota
	fieldMillisecond
	fieldSecond
	fieldMinute
	fieldHour
	fieldDay
	fieldWeek
	fieldMonth
	fieldQuarter
	fieldYear
	fieldDecade
	fieldCentury
	fieldMillennium
	fieldDow
	fieldIsoDow
	fieldDoy
	fieldIsoYear
	fieldEpoch
	fieldJulian
)

// datetimeFields names them; it is never written to.
var datetimeFields = map[string]datetimeField{
	"microsecond": fieldMicrosecond, "microseconds": fieldMicrosecond, "us": fieldMicrosecond,
	"millisecond": fieldMillisecond, "milliseconds": fieldMillisecond, "ms": fieldMillisecond,
	"second": fieldSecond, "seconds": fieldSecond, "sec": fieldSecond,
	"minute": fieldMinute, "minutes": fieldMinute, "min": fieldMinute,
	"hour": fieldHour, "hours": fieldHour, "day": fieldDay, "days": fieldDay,
	"week": fieldWeek, "weeks": fieldWeek, "month": fieldMonth, "months": fieldMonth, "mon": fieldMonth,
	"quarter": fieldQuarter, "year": fieldYear, "years": fieldYear,
	"decade": fieldDecade, "decades": fieldDecade, "century": fieldCentury, "centuries": fieldCentury,
	"millennium": fieldMillennium, "millennia": fieldMillennium,
	"dow": fieldDow, "isodow": fieldIsoDow, "doy": fieldDoy, "isoyear": fieldIsoYear,
	"epoch": fieldEpoch, "julian": fieldJulian,
}

func fieldOf(name string) (datetimeField, error) {
	f, ok := datetimeFields[strings.ToLower(name)]
	if !ok {
		return 0, sqlstate.New(sqlstate.InvalidParameter, "unit %q is not recognized", name)
	}
	return f, nil
}

// fractional fields can have digits after the decimal point.
func (f datetimeField) fractional() bool {
	return f == fieldSecond || f == fieldMillisecond || f == fieldEpoch
}

// extractDecimal is the result of the fields with a fraction: six places, as
// PostgreSQL prints them.
var extractDecimal = catalog.Decimal(18, 6)

// ExtractFunction names the registry function for EXTRACT(field FROM ...): the
// whole fields are BIGINT, second, millisecond and epoch are DECIMAL(18,6).
func ExtractFunction(field string) (string, error) {
	f, err := fieldOf(field)
	if err != nil {
		return "", err
	}
	if f.fractional() {
		return "extract_fraction", nil
	}
	return "extract", nil
}

func extractFunctions() []*function {
	forms := func(result arrow.DataType, wide bool) []overload {
		var os []overload
		for _, k := range []kind{kTimestamp, kTimestampTZ, kDate, kTime, kInterval} {
			os = append(os, overload{params: []kind{kText, k}, result: returns(result), make: makeExtract(wide)})
		}
		return os
	}
	parts := forms(catalog.Double, true)
	for i := range parts {
		parts[i].make = makeDatePart
	}
	return []*function{
		{name: "extract", doc: "A whole field: microseconds, minute, hour, day, week, month, quarter, year, decade, century, millennium, dow, isodow, doy, isoyear, julian.",
			overloads: forms(catalog.BigInt, false)},
		{name: "extract_fraction", doc: "A field that may have a fraction: second, milliseconds, epoch.",
			overloads: forms(extractDecimal, true)},
		{name: "date_part", doc: "Any field of extract, as double precision.", overloads: parts},
	}
}

// extractor computes one field scaled by 10^6 when it is fractional.
type extractor func(days, rest int64, iv monthDayNano) int64

// unsupportedField refuses a field that a type does not have.
func unsupportedField(name string, dt arrow.DataType) error {
	return sqlstate.New(sqlstate.FeatureNotSupported, "unit %q is not supported for type %s", name, catalog.TypeName(dt))
}

func fieldExtractor(name string, field datetimeField, dt arrow.DataType) (extractor, error) {
	var x extractor
	switch kindOf(dt) {
	case kInterval:
		x = intervalField(field)
	case kTime:
		x = clockField(field, 1_000_000)
	case kDate:
		x = dayField(field)
	default:
		per := unitsPerSecond(dt)
		if x = clockField(field, per); x == nil || field == fieldEpoch {
			x = dayField(field)
		}
		if field == fieldEpoch {
			x = func(days, rest int64, _ monthDayNano) int64 {
				return days*microsPerDay + rescaleUnits(rest, per, 1_000_000)
			}
		}
	}
	if x == nil {
		return nil, unsupportedField(name, dt)
	}
	return x, nil
}

// clockField covers the fields of a time of day in units per second.
func clockField(field datetimeField, per int64) extractor {
	micro := func(units int64) int64 { return rescaleUnits(units, per, 1_000_000) }
	switch field {
	case fieldMicrosecond:
		return func(_, rest int64, _ monthDayNano) int64 { return micro(rest % (60 * per)) }
	case fieldMillisecond: // scaled by 10^6: 1000 per microsecond
		return func(_, rest int64, _ monthDayNano) int64 { return micro(rest%(60*per)) * 1_000 }
	case fieldSecond:
		return func(_, rest int64, _ monthDayNano) int64 { return micro(rest % (60 * per)) }
	case fieldMinute:
		return func(_, rest int64, _ monthDayNano) int64 { return rest / per / 60 % 60 }
	case fieldHour:
		return func(_, rest int64, _ monthDayNano) int64 { return rest / per / 3600 }
	case fieldEpoch:
		return func(_, rest int64, _ monthDayNano) int64 { return micro(rest) }
	}
	return nil
}

// dayField covers the fields of a calendar day.
func dayField(field datetimeField) extractor {
	of := func(fn func(y int64, m, d int) int64) extractor {
		return func(days, _ int64, _ monthDayNano) int64 { return fn(civil(days)) }
	}
	switch field {
	case fieldDay:
		return of(func(_ int64, _, d int) int64 { return int64(d) })
	case fieldMonth:
		return of(func(_ int64, m, _ int) int64 { return int64(m) })
	case fieldQuarter:
		return of(func(_ int64, m, _ int) int64 { return int64(m-1)/3 + 1 })
	case fieldYear:
		return of(func(y int64, _, _ int) int64 { return sqlYear(y) })
	case fieldDecade:
		return of(func(y int64, _, _ int) int64 { return floorDiv(y, 10) })
	case fieldCentury:
		return of(func(y int64, _, _ int) int64 { return sinceChrist(y, 100) })
	case fieldMillennium:
		return of(func(y int64, _, _ int) int64 { return sinceChrist(y, 1000) })
	case fieldDow:
		return func(days, _ int64, _ monthDayNano) int64 { return floorMod(days+4, 7) }
	case fieldIsoDow:
		return func(days, _ int64, _ monthDayNano) int64 { return floorMod(days+3, 7) + 1 }
	case fieldDoy:
		return func(days, _ int64, _ monthDayNano) int64 {
			y, _, _ := civil(days)
			return days - daysOf(y, 1, 1) + 1
		}
	case fieldWeek:
		return func(days, _ int64, _ monthDayNano) int64 {
			_, w := isoWeek(days)
			return int64(w)
		}
	case fieldIsoYear:
		return func(days, _ int64, _ monthDayNano) int64 {
			y, _ := isoWeek(days)
			return sqlYear(y)
		}
	case fieldEpoch:
		return func(days, _ int64, _ monthDayNano) int64 { return days * microsPerDay }
	case fieldJulian:
		return func(days, _ int64, _ monthDayNano) int64 { return days + 2_440_588 }
	}
	return nil
}

// sqlYear has no year 0: 1 BC is -1.
func sqlYear(y int64) int64 {
	if y <= 0 {
		return y - 1
	}
	return y
}

func sinceChrist(y, n int64) int64 {
	if y > 0 {
		return (y + n - 1) / n
	}
	return -((n - 1 - (y - 1)) / n)
}

func intervalField(field datetimeField) extractor {
	months := func(n, mod int64) extractor {
		return func(_, _ int64, iv monthDayNano) int64 { return int64(iv.Months) / n % mod }
	}
	micro := func(nanos int64) int64 { return nanos / 1_000 }
	const all = 1 << 40
	switch field {
	case fieldMicrosecond, fieldSecond:
		return func(_, _ int64, iv monthDayNano) int64 { return micro(iv.Nanoseconds % 60_000_000_000) }
	case fieldMillisecond:
		return func(_, _ int64, iv monthDayNano) int64 { return micro(iv.Nanoseconds%60_000_000_000) * 1_000 }
	case fieldMinute:
		return func(_, _ int64, iv monthDayNano) int64 { return iv.Nanoseconds / 60_000_000_000 % 60 }
	case fieldHour:
		return func(_, _ int64, iv monthDayNano) int64 { return iv.Nanoseconds / 3_600_000_000_000 }
	case fieldDay:
		return func(_, _ int64, iv monthDayNano) int64 { return int64(iv.Days) }
	case fieldMonth:
		return months(1, 12)
	case fieldQuarter:
		return func(_, _ int64, iv monthDayNano) int64 { return int64(iv.Months)%12/3 + 1 }
	case fieldYear:
		return months(12, all)
	case fieldDecade:
		return months(120, all)
	case fieldCentury:
		return months(1_200, all)
	case fieldMillennium:
		return months(12_000, all)
	case fieldEpoch: // a year is 365.25 days, a month 30
		return func(_, _ int64, iv monthDayNano) int64 {
			days := int64(iv.Months%12)*30 + int64(iv.Days)
			return int64(iv.Months/12)*31_557_600_000_000 + days*microsPerDay + micro(iv.Nanoseconds)
		}
	}
	return nil
}

// sourceReader splits row i of a date, time, timestamp or interval argument.
func sourceReader(v *columnar.Vector) func(i int) (days, rest int64, iv monthDayNano) {
	mask := rowMask(v)
	switch kindOf(v.Type) {
	case kDate:
		in := columnar.Values[int32](v)
		return func(i int) (int64, int64, monthDayNano) { return int64(in[i&mask]), 0, monthDayNano{} }
	case kInterval:
		in := columnar.Values[monthDayNano](v)
		return func(i int) (int64, int64, monthDayNano) { return 0, 0, in[i&mask] }
	case kTime:
		in := columnar.Values[int64](v)
		return func(i int) (int64, int64, monthDayNano) { return 0, in[i&mask], monthDayNano{} }
	}
	in, perDay := columnar.Values[int64](v), unitsPerSecond(v.Type)*secondsPerDay
	return func(i int) (int64, int64, monthDayNano) {
		days, rest := splitDay(in[i&mask], perDay)
		return days, rest, monthDayNano{}
	}
}

// extractKernel resolves the field, once when it is constant, and stores each
// row's value through put.
func extractKernel(site *callSite, allowed func(datetimeField) bool, start func(f *frame) func(i int, x int64, field datetimeField)) (kernel, error) {
	dt := site.args[1]
	resolve := func(name string) (extractor, datetimeField, error) {
		field, err := fieldOf(name)
		if err != nil {
			return nil, 0, err
		}
		if !allowed(field) {
			return nil, 0, sqlstate.New(sqlstate.FeatureNotSupported, "unit %q is not supported by %s", name, site.name).
				WithHint("use date_part")
		}
		x, err := fieldExtractor(name, field, dt)
		return x, field, err
	}
	var fixed extractor
	var fixedField datetimeField
	if c := site.consts[0]; c != nil && !c.IsNull(0) {
		// A unit that does not resolve is an error of the rows that reach it.
		fixed, fixedField, _ = resolve(string(c.BytesAt(0)))
		if fixed != nil && fixedField == fieldYear && kindOf(dt) == kDate && site.result.ID() == arrow.INT64 {
			return yearOfDate, nil
		}
	}
	return func(f *frame) error {
		put, read := start(f), sourceReader(f.args[1])
		return f.each(func(i int) (err error) {
			x, field := fixed, fixedField
			if x == nil {
				if x, field, err = resolve(string(f.args[0].BytesAt(i))); err != nil {
					return err
				}
			}
			put(i, x(read(i)), field)
			return nil
		})
	}, nil
}

// yearOfDate is the loop for the commonest extraction.
func yearOfDate(f *frame) error {
	in, out := columnar.Values[int32](f.args[1]), fixedOut[int64](f)
	mask := rowMask(f.args[1])
	if f.sel != nil {
		for _, i := range f.sel {
			y, _, _ := civil(int64(in[int(i)&mask]))
			out[i] = sqlYear(y)
		}
		return nil
	}
	for i := range out {
		y, _, _ := civil(int64(in[i&mask]))
		out[i] = sqlYear(y)
	}
	return nil
}

func makeExtract(fraction bool) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		allowed := func(f datetimeField) bool { return f.fractional() == fraction }
		return extractKernel(site, allowed, func(f *frame) func(int, int64, datetimeField) {
			out := fixedOut[int64](f)
			return func(i int, x int64, _ datetimeField) { out[i] = x }
		})
	}
}

func makeDatePart(site *callSite) (kernel, error) {
	return extractKernel(site, func(datetimeField) bool { return true }, func(f *frame) func(int, int64, datetimeField) {
		out := fixedOut[float64](f)
		return func(i int, x int64, field datetimeField) {
			out[i] = float64(x)
			if field.fractional() {
				out[i] /= 1e6
			}
		}
	})
}
