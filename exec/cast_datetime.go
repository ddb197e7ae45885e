package exec

import (
	"bytes"
	"strings"

	"skein/sqlstate"
)

// dateScanner reads the parts of a date or time from text.
type dateScanner struct {
	p []byte
	i int
}

func (s *dateScanner) done() bool { return s.i >= len(s.p) }

func (s *dateScanner) peek() byte {
	if s.done() {
		return 0
	}
	return s.p[s.i]
}

// accept consumes c if it is next.
func (s *dateScanner) accept(c byte) bool {
	if s.peek() == c && !s.done() {
		s.i++
		return true
	}
	return false
}

func (s *dateScanner) spaces() bool {
	from := s.i
	for s.peek() == ' ' {
		s.i++
	}
	return s.i > from
}

// digits consumes up to limit digits and returns the number and their count.
func (s *dateScanner) digits(limit int) (n int64, width int) {
	for width < limit && s.peek() >= '0' && s.peek() <= '9' {
		n = n*10 + int64(s.p[s.i]-'0')
		s.i++
		width++
	}
	return n, width
}

func invalidDatetime(typeName string, p []byte) error {
	return sqlstate.New(sqlstate.InvalidDatetime, "invalid input syntax for type %s: %q", typeName, p)
}

func fieldRange(p []byte) error {
	return sqlstate.New(sqlstate.DatetimeOverflow, "date/time field value out of range: %q", p)
}

// date reads year-month-day, with dashes, slashes or nothing between. syntax is
// false when the text is no date, field when a field is out of range.
func (s *dateScanner) date() (days int64, syntax, field bool) {
	y, width := s.digits(8)
	var m, d int64
	switch {
	case width == 8 && s.peek() != '-':
		y, m, d = y/10_000, y/100%100, y%100
	case width >= 4 && width <= 7:
		sep := s.peek()
		if sep != '-' && sep != '/' {
			return 0, false, true
		}
		var w1, w2 int
		s.i++
		m, w1 = s.digits(2)
		if w1 == 0 || !s.accept(sep) {
			return 0, false, true
		}
		d, w2 = s.digits(2)
		if w2 == 0 {
			return 0, false, true
		}
	default:
		return 0, false, true
	}
	if rest := s.p[s.i:]; bytes.HasSuffix(bytes.ToUpper(rest), []byte(" BC")) {
		s.p = s.p[:len(s.p)-3]
		if y == 0 {
			return 0, true, false
		}
		y = 1 - y
	} else if y == 0 {
		return 0, true, false
	}
	if y < minYear || y > maxYear || m < 1 || m > 12 || d < 1 || int(d) > daysInMonth(y, int(m)) {
		return 0, true, false
	}
	return daysOf(y, int(m), int(d)), true, true
}

// clock reads hh:mm[:ss[.fraction]] [AM|PM] as nanoseconds, up to 24:00:00.
func (s *dateScanner) clock() (nanos int64, syntax, field bool) {
	h, w := s.digits(2)
	if w == 0 || !s.accept(':') {
		return 0, false, true
	}
	m, w := s.digits(2)
	if w != 2 {
		return 0, false, true
	}
	var sec, frac int64
	if s.accept(':') {
		if sec, w = s.digits(2); w != 2 {
			return 0, false, true
		}
		if s.accept('.') {
			frac = s.fraction()
		}
	}
	if half, ok := s.meridiem(); ok {
		if h < 1 || h > 12 {
			return 0, true, false
		}
		h = h%12 + half
	}
	if h > 24 || m > 59 || sec > 60 || (h == 24 && m+sec+frac > 0) {
		return 0, true, false
	}
	return (h*3600+m*60+sec)*1_000_000_000 + frac, true, true
}

// fraction reads the digits after a decimal point as nanoseconds; digits past
// the ninth are dropped.
func (s *dateScanner) fraction() int64 {
	frac, w := s.digits(9)
	s.digits(len(s.p))
	return frac * pow10int64[9-w]
}

func (s *dateScanner) meridiem() (hours int64, ok bool) {
	rest := strings.ToUpper(string(bytes.TrimLeft(s.p[s.i:], " ")))
	skip := len(s.p[s.i:]) - len(rest)
	switch {
	case strings.HasPrefix(rest, "AM"):
		s.i += skip + 2
		return 0, true
	case strings.HasPrefix(rest, "PM"):
		s.i += skip + 2
		return 12, true
	}
	return 0, false
}

// zone reads an optional offset from UTC in seconds.
func (s *dateScanner) zone() (offset int64, syntax bool) {
	s.spaces()
	if s.done() {
		return 0, true
	}
	switch strings.ToUpper(string(s.p[s.i:])) {
	case "Z", "UTC", "GMT", "ZULU":
		s.i = len(s.p)
		return 0, true
	}
	sign := int64(1)
	switch {
	case s.accept('-'):
		sign = -1
	case !s.accept('+'):
		return 0, false
	}
	h, w := s.digits(2)
	if w == 0 {
		return 0, false
	}
	var m, sec int64
	if s.accept(':') || (s.peek() >= '0' && s.peek() <= '9') {
		if m, w = s.digits(2); w != 2 {
			return 0, false
		}
		if s.accept(':') {
			if sec, w = s.digits(2); w != 2 {
				return 0, false
			}
		}
	}
	return sign * (h*3600 + m*60 + sec), h <= 15 && m < 60 && sec < 60
}

// parseDate reads a date; a time of day after it is checked and dropped.
func parseDate(text []byte) (int32, error) {
	days, _, _, err := parseDateTime(text, "date")
	if err != nil {
		return 0, err
	}
	return toDate(days)
}

// parseTimestamp reads a timestamp at a resolution. Without zone an offset in
// the text is checked and dropped, as PostgreSQL does.
func parseTimestamp(text []byte, perSecond int64, zone bool) (int64, error) {
	name := "timestamp"
	if zone {
		name = "timestamp with time zone"
	}
	days, nanos, offset, err := parseDateTime(text, name)
	if err != nil {
		return 0, err
	}
	if !zone {
		offset = nil
	}
	return instantOf(days, nanos, perSecond, offset)
}

// parseZoned reads an instant at a resolution, whose clock is the zone's unless
// the text has an offset.
func parseZoned(text []byte, perSecond int64, z *zone) (int64, error) {
	days, nanos, offset, err := parseDateTime(text, "timestamp with time zone")
	if err != nil {
		return 0, err
	}
	t, err := instantOf(days, nanos, perSecond, offset)
	if err != nil || offset != nil {
		return t, err
	}
	return z.utc(t, perSecond)
}

// instantOf joins a day and a time of day that are ahead of UTC by some seconds,
// nil for none.
func instantOf(days, nanos, perSecond int64, ahead *int64) (int64, error) {
	offset := int64(0)
	if ahead != nil {
		offset = *ahead
	}
	rest := rescaleUnits(nanos, 1_000_000_000, perSecond) - offset*perSecond
	return joinDay(days, rest, perSecond*secondsPerDay)
}

// parseDateTime reads a date, a time of day and an offset from UTC in seconds, nil
// if the text has none.
func parseDateTime(text []byte, typeName string) (days, nanos int64, offset *int64, err error) {
	s := dateScanner{p: trimSpace(text)}
	if strings.EqualFold(string(s.p), "epoch") {
		return 0, 0, new(int64), nil
	}
	days, syntax, field := s.date()
	if syntax && field && (s.accept('T') || s.accept('t') || s.spaces()) {
		if s.peek() >= '0' && s.peek() <= '9' {
			nanos, syntax, field = s.clock()
		}
	}
	if syntax && field {
		s.spaces()
		given := !s.done()
		var seconds int64
		seconds, syntax = s.zone()
		syntax = syntax && s.done()
		if given {
			offset = &seconds
		}
	}
	switch {
	case !syntax:
		return 0, 0, nil, invalidDatetime(typeName, text)
	case !field:
		return 0, 0, nil, fieldRange(text)
	}
	return days, nanos, offset, nil
}

// parseTime reads a time of day in microseconds.
func parseTime(text []byte) (int64, error) {
	s := dateScanner{p: trimSpace(text)}
	nanos, syntax, field := s.clock()
	switch {
	case !syntax || !s.done():
		return 0, invalidDatetime("time", text)
	case !field:
		return 0, fieldRange(text)
	}
	return rescaleUnits(nanos, 1_000_000_000, 1_000_000), nil
}
