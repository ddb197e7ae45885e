package exec

import (
	"strconv"
	"strings"

	"skein/catalog"
	"skein/sqlstate"
)

// formatFunctions print and read dates by patterns.
func formatFunctions() []*function {
	return []*function{
		{name: "to_char", doc: "A date or timestamp by a pattern of YYYY, MM, DD, HH24, MI, SS, MS, US, Month, Mon, Day, Dy, AM and others.",
			overloads: []overload{
				{params: []kind{kTimestamp, kText}, result: returns(catalog.Text), make: makeToChar},
				{params: []kind{kTimestampTZ, kText}, result: returns(catalog.Text), make: makeToChar},
				{params: []kind{kTimestampTZ, kText, kText}, result: returns(catalog.Text), make: makeZonedToChar},
			}},
		{name: "to_date", doc: "The date that a text has by a pattern, as to_char writes it.", overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.Date), make: makeToDate}}},
		{name: "to_timestamp", doc: "The timestamp that a text has by a pattern, or of seconds since 1970.", overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.TimestampTZ), make: makeToTimestamp},
			{params: []kind{kDouble}, result: returns(catalog.TimestampTZ), make: func(*callSite) (kernel, error) {
				return perRow(timestampOfEpoch), nil
			}}}},
	}
}

func timestampOfEpoch(seconds float64) (int64, error) {
	if !(seconds >= -210866803200 && seconds < 9224318016000) {
		return 0, sqlstate.New(sqlstate.DatetimeOverflow, "timestamp out of range: \"%g\"", seconds)
	}
	days, rest := splitDay(int64(roundMicro(seconds)*1e6), microsPerDay)
	return joinDay(days, rest, microsPerDay)
}

// dateParts are the fields of a timestamp that patterns name.
type dateParts struct {
	days                 int64
	year                 int64 // astronomical
	month, day           int
	hour, minute, second int
	micro                int
	afternoon, halfDay   bool
	zone                 string // its name for a time, UTC if empty
}

func partsOf(ts, per int64) dateParts {
	days, rest := splitDay(ts, per*secondsPerDay)
	p := dateParts{days: days}
	p.year, p.month, p.day = civil(days)
	seconds := rest / per
	p.hour, p.minute, p.second = int(seconds/3600), int(seconds/60%60), int(seconds%60)
	p.micro = int(rescaleUnits(rest%per, per, 1_000_000))
	return p
}

// patternNode is a piece of a pattern: text, or a field with its modifiers.
type patternNode struct {
	text  string // literal, or the field as written
	field string // in upper case, "" for literal text
	fill  bool   // FM: neither padding nor zeros
	th    string // suffix TH or th
}

// patternFields are the fields, longer ones before their prefixes.
var patternFields = []string{
	"HH24", "HH12", "HH", "MONTH", "MON", "MI", "MM", "MS", "SSSS", "SS", "US", "YYYY", "YYY", "YY", "Y,YYY", "Y",
	"IYYY", "IYY", "IY", "ID", "IW", "I", "DDD", "DD", "DAY", "DY", "D", "A.M.", "P.M.", "AM", "PM", "A.D.", "B.C.", "AD", "BC",
	"WW", "W", "CC", "J", "Q", "TZ",
}

// parsePattern splits a pattern as PostgreSQL reads it.
func parsePattern(text string) []patternNode {
	var nodes []patternNode
	literal := func(s string) { nodes = append(nodes, patternNode{text: s}) }
	fill := false
	for len(text) > 0 {
		if text[0] == '"' {
			end := strings.IndexByte(text[1:], '"')
			if end < 0 {
				literal(text[1:])
				break
			}
			literal(text[1 : 1+end])
			text = text[end+2:]
			continue
		}
		if len(text) > 1 && strings.EqualFold(text[:2], "FM") {
			fill, text = true, text[2:]
			continue
		}
		field := fieldPrefix(text)
		if field == "" {
			literal(text[:1])
			text = text[1:]
			continue
		}
		n := patternNode{text: text[:len(field)], field: field, fill: fill}
		fill, text = false, text[len(field):]
		if len(text) > 1 && strings.EqualFold(text[:2], "TH") {
			n.th, text = text[:2], text[2:]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func fieldPrefix(text string) string {
	for _, f := range patternFields {
		if len(text) >= len(f) && strings.EqualFold(text[:len(f)], f) {
			return f
		}
	}
	return ""
}

// patternCache holds a pattern that changes rarely.
type patternCache struct {
	text  string
	nodes []patternNode
}

func (c *patternCache) of(text []byte) []patternNode {
	if c.text != string(text) || c.nodes == nil {
		c.text = string(text)
		c.nodes = parsePattern(c.text)
	}
	return c.nodes
}

var monthNames = [...]string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}

var dayNames = [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}

func makeToChar(site *callSite) (kernel, error) {
	per := unitsPerSecond(site.args[0])
	c := &patternCache{}
	return func(f *frame) error {
		return f.text(func(dst []byte, i int) ([]byte, error) {
			p := partsOf(at[int64](f.args[0], i), per)
			for _, n := range c.of(f.args[1].BytesAt(i)) {
				dst = n.append(dst, p)
			}
			return dst, nil
		})
	}, nil
}

// append prints a node.
func (n *patternNode) append(dst []byte, p dateParts) []byte {
	if n.field == "" {
		return append(dst, n.text...)
	}
	if name, width := n.name(p); name != "" {
		dst = append(dst, name...)
		for k := len(name); k < width && !n.fill; k++ {
			dst = append(dst, ' ')
		}
		return dst
	}
	value, width := n.number(p)
	if n.fill {
		width = 1
	}
	if n.field == "Y,YYY" {
		dst = append(strconv.AppendInt(dst, value/1000, 10), ',')
		value, width = value%1000, 3
	}
	if value < 0 {
		dst, value = append(dst, '-'), -value
	}
	dst = appendPadded(dst, value, width)
	if n.th != "" {
		dst = append(dst, ordinalSuffix(value, n.th == "TH")...)
	}
	return dst
}

// name is the text of a field that is no number, in the case in which the
// field is written, and the width it is filled up to.
func (n *patternNode) name(p dateParts) (string, int) {
	s, width := "", 0
	switch n.field {
	case "MONTH":
		s, width = monthNames[p.month-1], 9
	case "MON":
		s = monthNames[p.month-1][:3]
	case "DAY":
		s, width = dayNames[floorMod(p.days+4, 7)], 9
	case "DY":
		s = dayNames[floorMod(p.days+4, 7)][:3]
	case "AM", "PM":
		s = [2]string{"AM", "PM"}[p.hour/12]
	case "A.M.", "P.M.":
		s = [2]string{"A.M.", "P.M."}[p.hour/12]
	case "AD", "BC":
		s = [2]string{"AD", "BC"}[b2i(p.year <= 0)]
	case "A.D.", "B.C.":
		s = [2]string{"A.D.", "B.C."}[b2i(p.year <= 0)]
	case "TZ":
		if s = p.zone; s == "" {
			s = "UTC"
		}
	default:
		return "", 0
	}
	switch {
	case n.text == strings.ToLower(n.text):
		s = strings.ToLower(s)
	case n.text == n.field || n.text[1] == n.field[1]:
		s = strings.ToUpper(s)
	}
	return s, width
}

// number is the value and the number of digits of a field.
func (n *patternNode) number(p dateParts) (int64, int) {
	year := p.year
	if year <= 0 {
		year = 1 - year
	}
	isoYear, isoWeekNumber := isoWeek(p.days)
	if isoYear <= 0 {
		isoYear = 1 - isoYear
	}
	dayOfYear := p.days - daysOf(p.year, 1, 1) + 1
	switch n.field {
	case "HH24":
		return int64(p.hour), 2
	case "HH", "HH12":
		return int64((p.hour+11)%12 + 1), 2
	case "MI":
		return int64(p.minute), 2
	case "SS":
		return int64(p.second), 2
	case "SSSS":
		return int64(p.hour)*3600 + int64(p.minute)*60 + int64(p.second), 1
	case "MS":
		return int64(p.micro / 1000), 3
	case "US":
		return int64(p.micro), 6
	case "YYYY", "Y,YYY":
		return year, 4
	case "YYY":
		return year % 1000, 3
	case "YY":
		return year % 100, 2
	case "Y":
		return year % 10, 1
	case "IYYY":
		return isoYear, 4
	case "IYY":
		return isoYear % 1000, 3
	case "IY":
		return isoYear % 100, 2
	case "I":
		return isoYear % 10, 1
	case "IW":
		return int64(isoWeekNumber), 2
	case "ID":
		return floorMod(p.days+3, 7) + 1, 1
	case "MM":
		return int64(p.month), 2
	case "DDD":
		return dayOfYear, 3
	case "DD":
		return int64(p.day), 2
	case "D":
		return floorMod(p.days+4, 7) + 1, 1
	case "WW":
		return (dayOfYear-1)/7 + 1, 2
	case "W":
		return int64(p.day-1)/7 + 1, 1
	case "CC":
		if p.year <= 0 {
			return -(year + 99) / 100, 2
		}
		return (year + 99) / 100, 2
	case "Q":
		return int64(p.month-1)/3 + 1, 1
	}
	return p.days + 2_440_588, 1 // J
}

func ordinalSuffix(n int64, upper bool) string {
	s := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			s = "st"
		case 2:
			s = "nd"
		case 3:
			s = "rd"
		}
	}
	if upper {
		return strings.ToUpper(s)
	}
	return s
}
