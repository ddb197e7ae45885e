package bind

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
)

// The operators know no sessions: what depends on the session's time zone is bound
// to calls that name it. Where the zone is UTC, casts and functions without a zone
// do the same, and cheaper.

const utc = "UTC"

// hasZone reports whether a type is TIMESTAMPTZ.
func hasZone(dt arrow.DataType) bool {
	t, ok := dt.(*arrow.TimestampType)
	return ok && t.TimeZone != ""
}

func isStamp(dt arrow.DataType) bool { return dt.ID() == arrow.TIMESTAMP && !hasZone(dt) }

// CastIn is the cast of an expression to a type in a session with a time zone.
func CastIn(zone string, e planner.Expr, dt arrow.DataType) planner.Expr {
	from := e.Type()
	if zone == "" || zone == utc || hasZone(from) == hasZone(dt) {
		return &planner.Cast{Arg: e, DataType: dt}
	}
	if hasZone(from) {
		if isText(dt) {
			return &planner.Call{Func: "timestamptz_text", Args: []planner.Expr{e, zoneName(zone)}, DataType: dt, Null: e.Nullable()}
		}
		return castIfNeeded(atZone(zone, e), dt)
	}
	switch {
	case isText(from):
		name, out := "text_timestamptz", catalog.TimestampTZ
		if unit := dt.(*arrow.TimestampType).Unit; unit == arrow.Nanosecond {
			name, out = "text_timestamptz_ns", arrow.DataType(&arrow.TimestampType{Unit: unit, TimeZone: utc})
		}
		return castIfNeeded(&planner.Call{Func: name, Args: []planner.Expr{e, zoneName(zone)}, DataType: out, Null: e.Nullable()}, dt)
	case from.ID() == arrow.DATE32:
		e = &planner.Cast{Arg: e, DataType: &arrow.TimestampType{Unit: dt.(*arrow.TimestampType).Unit}}
	case !isStamp(from):
		return &planner.Cast{Arg: e, DataType: dt}
	}
	return castIfNeeded(atZone(zone, e), dt)
}

// atZone is e AT TIME ZONE: of TIMESTAMPTZ what the zone's clocks show, of
// TIMESTAMP the instant at which they show it.
func atZone(zone string, e planner.Expr) planner.Expr {
	out := &arrow.TimestampType{Unit: e.Type().(*arrow.TimestampType).Unit}
	if !hasZone(e.Type()) {
		out.TimeZone = utc
	}
	return &planner.Call{Func: "timezone", Args: []planner.Expr{zoneName(zone), e}, DataType: out, Null: e.Nullable()}
}

func castIfNeeded(e planner.Expr, dt arrow.DataType) planner.Expr {
	if arrow.TypeEqual(e.Type(), dt) {
		return e
	}
	return &planner.Cast{Arg: e, DataType: dt}
}

func zoneName(zone string) *planner.Literal {
	return &planner.Literal{Value: zone, DataType: catalog.Text}
}

func (b *binder) zone() string {
	if b.session.Zone == "" {
		return utc
	}
	return b.session.Zone
}

// cast is the cast of an expression in the session.
func (b *binder) cast(e planner.Expr, dt arrow.DataType, location int32) planner.Expr {
	return b.at(CastIn(b.session.Zone, e, dt), location)
}

// inZone replaces a call of a function that depends on the session's time zone by
// one that names it; args have the types of its signature. ok is false when the
// call stays as it is.
func (b *binder) inZone(s exec.Signature, args []planner.Expr, location int32) (e planner.Expr, ok bool, err error) {
	zone := b.zone()
	if zone == utc {
		return nil, false, nil
	}
	stamps := make([]bool, len(args))
	any := false
	for i, a := range args {
		stamps[i] = hasZone(a.Type())
		any = any || stamps[i]
	}
	again := func(name string, args ...planner.Expr) (planner.Expr, bool, error) {
		e, err := b.call(name, args, location)
		return e, true, err
	}
	switch {
	case s.Name == "to_timestamp" && len(args) == 2:
		read := b.at(&planner.Call{Func: s.Name, Args: args, DataType: s.Result, Null: callNullable(s, args)}, location)
		e, err := b.fold(atZone(zone, atZone(utc, read)))
		return e, true, err
	case !any || len(args) < 2:
		return nil, false, nil
	}
	switch s.Name {
	case "date_trunc", "to_char":
		if len(args) == 2 {
			return again(s.Name, args[0], args[1], zoneName(zone))
		}
	case "extract", "extract_fraction", "date_part":
		if field, ok := args[0].(*planner.Literal); ok {
			if text, _ := field.Value.(string); strings.EqualFold(text, "epoch") {
				return nil, false, nil
			}
			return again(s.Name, args[0], b.at(atZone(zone, args[1]), location))
		}
		return nil, false, b.unsupported(location, "%s of timestamptz with a field that is not a constant, in a time zone other than UTC,", s.Name)
	case "age":
		return again(s.Name, b.at(atZone(zone, args[0]), location), b.at(atZone(zone, args[1]), location))
	case "+":
		if stamps[0] && args[1].Type().ID() == arrow.INTERVAL_MONTH_DAY_NANO {
			return again("date_add", args[0], args[1], zoneName(zone))
		}
		if stamps[1] && args[0].Type().ID() == arrow.INTERVAL_MONTH_DAY_NANO {
			return again("date_add", args[1], args[0], zoneName(zone))
		}
	case "-":
		if stamps[0] && args[1].Type().ID() == arrow.INTERVAL_MONTH_DAY_NANO {
			return again("date_subtract", args[0], args[1], zoneName(zone))
		}
	}
	return nil, false, nil
}
