package exec

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// Time zones are always arguments: what depends on a session's zone is bound to
// calls of these functions, so that plans say all there is to know.

// returnsStamp is the rule of a timestamp of one argument's resolution, with a
// time zone or without.
func returnsStamp(i int, zone bool) resultRule {
	name := "timestamp"
	if zone {
		name = "timestamptz"
	}
	return resultRule{name, func(args []arrow.DataType) (arrow.DataType, error) {
		out := &arrow.TimestampType{Unit: arrow.Microsecond}
		if t, ok := args[i].(*arrow.TimestampType); ok {
			out.Unit = t.Unit
		}
		if zone {
			out.TimeZone = "UTC"
		}
		return out, nil
	}}
}

// zoneFunctions convert between UTC and the clocks of time zones.
func zoneFunctions() []*function {
	at := func(i int, k kind, result bool, zone kind) overload {
		return overload{params: []kind{zone, k}, result: returnsStamp(i, result), make: makeAtZone(k == kTimestampTZ)}
	}
	shift := func(sign int64) []overload {
		return []overload{{params: []kind{kTimestampTZ, kInterval, kText}, result: returnsArg(0), make: makeZonedShift(sign)}}
	}
	nanos := &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	return []*function{
		{name: "timezone", doc: "AT TIME ZONE: what clocks of a zone show at an instant, or the instant at which they show a time.", overloads: []overload{
			at(1, kTimestampTZ, false, kText), at(1, kTimestamp, true, kText),
			at(1, kTimestampTZ, false, kInterval), at(1, kTimestamp, true, kInterval)}},
		{name: "date_add", doc: "An instant moved by an interval, whose months and days are those of a time zone.", overloads: shift(1)},
		{name: "date_subtract", doc: "An instant moved back by an interval, whose months and days are those of a time zone.", overloads: shift(-1)},
		{name: "timestamptz_text", doc: "An instant as text, as clocks of a time zone show it.", overloads: []overload{
			{params: []kind{kTimestampTZ, kText}, result: returns(catalog.Text), make: makeZonedText}}},
		{name: "text_timestamptz", doc: "The instant of a text, which is of a time zone unless it has an offset.", overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.TimestampTZ), make: makeZonedParse}}},
		{name: "text_timestamptz_ns", doc: "text_timestamptz with nanoseconds.", overloads: []overload{
			{params: []kind{kText, kText}, result: returns(nanos), make: makeZonedParse}}},
	}
}

// zoneArg gives the zone of each row: one for all rows when it is a constant. An
// unknown zone is an error of the rows that reach it.
type zoneArg struct {
	index  int
	fixed  *zone
	byName map[string]*zone // of the zones that rows have named
}

// maxZones bounds what a kernel remembers; there are some 600 zones.
const maxZones = 1024

func newZoneArg(site *callSite, index int) *zoneArg {
	a := &zoneArg{index: index}
	c := site.consts[index]
	if c != nil && !c.IsNull(0) && kindOf(site.args[index]) == kText {
		a.fixed, _ = newZone(string(c.BytesAt(0)))
	}
	return a
}

func (a *zoneArg) at(f *frame, i int) (*zone, error) {
	if a.fixed != nil {
		return a.fixed, nil
	}
	v := f.args[a.index]
	var name string
	if v.Type.ID() == arrow.INTERVAL_MONTH_DAY_NANO {
		iv := at[monthDayNano](v, i)
		seconds := iv.Nanoseconds / 1_000_000_000
		if iv.Months != 0 || iv.Days != 0 || seconds <= -maxZoneOffset || seconds >= maxZoneOffset {
			return nil, sqlstate.New(sqlstate.InvalidParameter, "interval time zone %q must be less than 16 hours, without months or days",
				appendInterval(nil, iv))
		}
		name = ZoneOfOffset(seconds)
	} else {
		name = string(v.BytesAt(i))
	}
	if z := a.byName[name]; z != nil {
		return z, nil
	}
	z, err := newZone(name)
	if err != nil {
		return nil, err
	}
	if a.byName == nil || len(a.byName) >= maxZones {
		a.byName = make(map[string]*zone)
	}
	a.byName[name] = z
	return z, nil
}

// makeAtZone is timezone(zone, t): of an instant what clocks show, else the
// instant at which they show t.
func makeAtZone(instant bool) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		per, zones := unitsPerSecond(site.args[1]), newZoneArg(site, 0)
		return func(f *frame) error {
			t, out := columnar.Values[int64](f.args[1]), fixedOut[int64](f)
			mask := rowMask(f.args[1])
			return f.each(func(i int) error {
				z, err := zones.at(f, i)
				if err != nil {
					return err
				}
				if instant {
					out[i], err = z.local(t[i&mask], per)
				} else {
					out[i], err = z.utc(t[i&mask], per)
				}
				return err
			})
		}, nil
	}
}

// makeZonedShift moves by months and days on the zone's clocks, then by time.
func makeZonedShift(sign int64) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		per, zones := unitsPerSecond(site.args[0]), newZoneArg(site, 2)
		return func(f *frame) error {
			out := fixedOut[int64](f)
			return f.each(func(i int) error {
				z, err := zones.at(f, i)
				if err == nil {
					out[i], err = z.shift(at[int64](f.args[0], i), at[monthDayNano](f.args[1], i), sign, per)
				}
				return err
			})
		}, nil
	}
}

func (z *zone) shift(t int64, iv monthDayNano, sign, per int64) (int64, error) {
	if iv.Months != 0 || iv.Days != 0 {
		local, err := z.local(t, per)
		if err == nil {
			local, err = addInterval(local, monthDayNano{Months: iv.Months, Days: iv.Days}, sign, per)
		}
		if err == nil {
			t, err = z.utc(local, per)
		}
		if err != nil {
			return 0, err
		}
	}
	return addInterval(t, monthDayNano{Nanoseconds: iv.Nanoseconds}, sign, per)
}

// makeZonedTrunc is date_trunc(unit, t, zone): days and what is longer begin when
// the zone's clocks say so, what is shorter is cut off without another look.
func makeZonedTrunc(site *callSite) (kernel, error) {
	per, zones := unitsPerSecond(site.args[1]), newZoneArg(site, 2)
	type cut struct {
		trunc func(int64) (int64, error)
		days  bool
	}
	byUnit := make(map[string]cut)
	cutOf := func(unit []byte) (cut, error) {
		if c, ok := byUnit[string(unit)]; ok {
			return c, nil
		}
		field, err := fieldOf(string(unit))
		if err != nil {
			return cut{}, err
		}
		c := cut{days: firstDayOf(field) != nil}
		if c.trunc, err = truncator(string(unit), per); err == nil {
			byUnit[string(unit)] = c
		}
		return c, err
	}
	return func(f *frame) error {
		out, unit := fixedOut[int64](f), f.args[0]
		return f.each(func(i int) error {
			z, err := zones.at(f, i)
			if err != nil {
				return err
			}
			c, err := cutOf(unit.BytesAt(i))
			if err != nil {
				return err
			}
			out[i], err = z.cut(at[int64](f.args[1], i), per, c.trunc, c.days)
			return err
		})
	}, nil
}

func (z *zone) cut(t, per int64, trunc func(int64) (int64, error), days bool) (int64, error) {
	ahead := z.ahead(floorDiv(t, per))
	local, err := moved(t, ahead, per)
	if err == nil {
		local, err = trunc(local)
	}
	switch {
	case err != nil:
		return 0, err
	case days:
		return z.utc(local, per)
	}
	return moved(local, -ahead, per)
}

func makeZonedText(site *callSite) (kernel, error) {
	per, zones := unitsPerSecond(site.args[0]), newZoneArg(site, 1)
	return func(f *frame) error {
		return f.text(func(dst []byte, i int) ([]byte, error) {
			z, err := zones.at(f, i)
			if err != nil {
				return dst, err
			}
			t := at[int64](f.args[0], i)
			local, err := z.local(t, per)
			if err != nil {
				return dst, err
			}
			days, rest := splitDay(local, per*secondsPerDay)
			dst, bc := appendDate(dst, days)
			dst = appendClock(append(dst, ' '), rest, per)
			return appendEra(appendOffset(dst, z.ahead(floorDiv(t, per))), bc), nil
		})
	}, nil
}

func makeZonedParse(site *callSite) (kernel, error) {
	per, zones := unitsPerSecond(site.result), newZoneArg(site, 1)
	return func(f *frame) error {
		out := fixedOut[int64](f)
		return f.each(func(i int) error {
			z, err := zones.at(f, i)
			if err == nil {
				out[i], err = parseZoned(f.args[0].BytesAt(i), per, z)
			}
			return err
		})
	}, nil
}

// makeZonedToChar is to_char(t, pattern, zone).
func makeZonedToChar(site *callSite) (kernel, error) {
	per, zones := unitsPerSecond(site.args[0]), newZoneArg(site, 2)
	c := &patternCache{}
	return func(f *frame) error {
		return f.text(func(dst []byte, i int) ([]byte, error) {
			z, err := zones.at(f, i)
			if err != nil {
				return dst, err
			}
			t := at[int64](f.args[0], i)
			local, err := z.local(t, per)
			if err != nil {
				return dst, err
			}
			p := partsOf(local, per)
			p.zone, _ = time.Unix(floorDiv(t, per), 0).In(z.location).Zone()
			for _, n := range c.of(f.args[1].BytesAt(i)) {
				dst = n.append(dst, p)
			}
			return dst, nil
		})
	}, nil
}
