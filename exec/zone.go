package exec

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for hosts that have no time zone database

	"skein/sqlstate"
)

// maxZoneOffset is the largest offset from UTC in seconds, as PostgreSQL has it.
const maxZoneOffset = 16 * 3600

// zoneAbbreviations are offsets that have a name in timestamps though no zone of
// the time zone database is called so, in hours east. The map is never written to.
var zoneAbbreviations = map[string]float64{
	"Z": 0, "ZULU": 0, "BST": 1, "CEST": 2, "WEST": 1, "EEST": 3, "MSK": 3, "EDT": -4, "CST": -6, "CDT": -5,
	"MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "JST": 9, "KST": 9, "AEST": 10, "AEDT": 11, "AWST": 8, "NZST": 12, "NZDT": 13,
}

// posixZone is a zone given by its offset west of Greenwich, with or without a
// name before it: UTC+3, <+02>-02, -05:30.
var posixZone = regexp.MustCompile(`^(<[+\-:A-Za-z0-9]+>|[A-Za-z]{3,})?([+-]?)(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?$`)

// zone converts between UTC and a time zone's clocks. It remembers the period
// between two changes of clocks that it used last, so it belongs to one kernel.
type zone struct {
	location *time.Location
	lo, hi   int64 // in Unix seconds: where offset is what clocks are ahead of UTC
	offset   int64
}

func undefinedZone(name string) error {
	return sqlstate.New(sqlstate.InvalidParameter, "time zone %q not recognized", name).
		WithHint("use a name such as Europe/Berlin or an offset such as UTC-2, which is east of Greenwich")
}

// CheckZone returns a time zone's name as it is spelled in the time zone
// database; offsets are returned as they are. An unknown one is 22023.
func CheckZone(name string) (string, error) {
	location, err := loadZone(name)
	if err != nil {
		return "", err
	}
	return location.String(), nil
}

// ZoneOfOffset names the zone whose clocks are always some seconds ahead of UTC.
func ZoneOfOffset(seconds int64) string {
	if seconds == 0 {
		return "UTC"
	}
	return "<" + string(appendOffset(nil, seconds)) + ">" + string(appendOffset(nil, -seconds))
}

// loadZone finds a time zone by name, in any case, by abbreviation or by offset.
func loadZone(name string) (*time.Location, error) {
	name = strings.TrimSpace(name)
	switch upper := strings.ToUpper(name); upper {
	case "UTC", "Z", "ZULU":
		return time.UTC, nil
	case "", "LOCAL": // what the library takes as names of other things
		return nil, undefinedZone(name)
	}
	if m := posixZone.FindStringSubmatch(name); m != nil && (m[1] != "" || m[2] != "") {
		return offsetZone(name, m)
	}
	for _, spelling := range []string{name, titleZone(name), strings.ToUpper(name)} {
		if location, err := time.LoadLocation(spelling); err == nil {
			return location, nil
		}
	}
	if hours, ok := zoneAbbreviations[strings.ToUpper(name)]; ok {
		return time.FixedZone(strings.ToUpper(name), int(hours*3600)), nil
	}
	return nil, undefinedZone(name)
}

// titleZone spells a name as most zones are: America/New_York.
func titleZone(name string) string {
	b := []byte(strings.ToLower(name))
	for i, c := range b {
		if c >= 'a' && c <= 'z' && (i == 0 || strings.IndexByte("/_-", b[i-1]) >= 0) {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// offsetZone is the zone of a match of posixZone.
func offsetZone(name string, m []string) (*time.Location, error) {
	west := int64(0)
	for i, size := range []int64{3600, 60, 1} {
		if part := m[3+i]; part != "" {
			n, err := strconv.Atoi(part)
			if err != nil || (i > 0 && n > 59) {
				return nil, undefinedZone(name)
			}
			west += int64(n) * size
		}
	}
	if west >= maxZoneOffset {
		return nil, undefinedZone(name)
	}
	if m[2] == "-" {
		west = -west
	}
	return time.FixedZone(name, int(-west)), nil
}

func newZone(name string) (*zone, error) {
	location, err := loadZone(name)
	if err != nil {
		return nil, err
	}
	return &zone{location: location}, nil
}

// ahead is what the zone's clocks are ahead of UTC at a Unix time, in seconds.
func (z *zone) ahead(sec int64) int64 {
	if sec >= z.lo && sec < z.hi {
		return z.offset
	}
	t := time.Unix(sec, 0).In(z.location)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	z.lo, z.hi, z.offset = math.MinInt64, math.MaxInt64, int64(offset)
	if !start.IsZero() {
		z.lo = start.Unix()
	}
	if !end.IsZero() {
		z.hi = end.Unix()
	}
	return z.offset
}

// aheadAt is what the zone's clocks are ahead of UTC when they show a time, in
// seconds since they showed the Unix epoch. A time that they show twice is the
// later one, and one that they skip is counted from the change on, as in
// PostgreSQL.
func (z *zone) aheadAt(local int64) int64 {
	const day = 86400
	if u := local - z.offset; u-day >= z.lo && u+day < z.hi {
		return z.offset
	}
	before, after := z.ahead(local-day), z.ahead(local+day)
	if before == after {
		return before
	}
	if z.ahead(local-after) == after {
		return after
	}
	return before
}

// local is what the zone's clocks show at a timestamp, both at a resolution.
func (z *zone) local(t, perSecond int64) (int64, error) {
	return moved(t, z.ahead(floorDiv(t, perSecond)), perSecond)
}

// utc is the timestamp at which the zone's clocks show a time.
func (z *zone) utc(local, perSecond int64) (int64, error) {
	return moved(local, -z.aheadAt(floorDiv(local, perSecond)), perSecond)
}

func moved(t, seconds, perSecond int64) (int64, error) {
	v, ok := int128Of(t).add(mul64(seconds, perSecond)).int64()
	if !ok || v == math.MinInt64 {
		return 0, timestampRange()
	}
	return v, nil
}

// appendOffset prints an offset from UTC as +hh[:mm[:ss]].
func appendOffset(dst []byte, seconds int64) []byte {
	sign := byte('+')
	if seconds < 0 {
		sign, seconds = '-', -seconds
	}
	dst = appendPadded(append(dst, sign), seconds/3600, 2)
	if seconds%3600 != 0 {
		dst = appendPadded(append(dst, ':'), seconds/60%60, 2)
	}
	if seconds%60 != 0 {
		dst = appendPadded(append(dst, ':'), seconds%60, 2)
	}
	return dst
}
