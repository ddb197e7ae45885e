package exec

import (
	"strings"

	"skein/sqlstate"
)

func makeToDate(*callSite) (kernel, error) {
	c := &patternCache{}
	return func(f *frame) error {
		out := fixedOut[int32](f)
		return f.each(func(i int) error {
			p, err := parseByPattern(string(f.args[0].BytesAt(i)), c.of(f.args[1].BytesAt(i)))
			if err == nil {
				out[i], err = toDate(p.days)
			}
			return err
		})
	}, nil
}

func makeToTimestamp(*callSite) (kernel, error) {
	c := &patternCache{}
	return func(f *frame) error {
		out := fixedOut[int64](f)
		return f.each(func(i int) error {
			p, err := parseByPattern(string(f.args[0].BytesAt(i)), c.of(f.args[1].BytesAt(i)))
			if err != nil {
				return err
			}
			clock := int64(p.hour*3600+p.minute*60+p.second)*1_000_000 + int64(p.micro)
			out[i], err = joinDay(p.days, clock, microsPerDay)
			return err
		})
	}, nil
}

// parseByPattern reads a text by a pattern. Fields that the pattern lacks are
// the first of their kind, the year 1 BC as in PostgreSQL; what follows the
// pattern's end in the text is not looked at.
func parseByPattern(text string, nodes []patternNode) (dateParts, error) {
	p := dateParts{month: 1, day: 1}
	dayOfYear := 0
	rest := text
	for k, n := range nodes {
		if n.field == "" {
			rest = skipLiteral(rest, n.text)
			continue
		}
		rest = strings.TrimLeft(rest, " ")
		if rest == "" {
			break
		}
		var err error
		if rest, err = n.read(&p, &dayOfYear, rest, k+1 < len(nodes) && nodes[k+1].field != ""); err != nil {
			return p, err
		}
	}
	return p, p.finish(text, dayOfYear)
}

// skipLiteral passes over what stands for literal text: separators match any
// separators, other characters any one.
func skipLiteral(rest, literal string) string {
	for _, c := range literal {
		if !isLetterOrDigit(c) {
			if t := strings.TrimLeft(rest, " "); t != rest {
				rest = t
				if c == ' ' {
					continue
				}
			}
			if rest != "" && !isLetterOrDigit(rune(rest[0])) && c != ' ' {
				rest = rest[1:]
			}
			continue
		}
		if rest != "" {
			rest = rest[1:]
		}
	}
	return rest
}

func isLetterOrDigit(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c > 127
}

// read takes one field off the text. A number before another field has a
// fixed width, else as many digits as there are.
func (n *patternNode) read(p *dateParts, dayOfYear *int, text string, fixed bool) (string, error) {
	switch n.field {
	case "MONTH", "MON":
		for m, name := range monthNames {
			if n.field == "MON" {
				name = name[:3]
			}
			if len(text) >= len(name) && strings.EqualFold(text[:len(name)], name) {
				p.month = m + 1
				return text[len(name):], nil
			}
		}
		return "", n.invalid(text)
	case "DAY", "DY":
		for _, name := range dayNames {
			if n.field == "DY" {
				name = name[:3]
			}
			if len(text) >= len(name) && strings.EqualFold(text[:len(name)], name) {
				return text[len(name):], nil
			}
		}
		return "", n.invalid(text)
	case "AM", "PM", "A.M.", "P.M.":
		if len(text) < len(n.field) {
			return "", n.invalid(text)
		}
		mark := strings.ToUpper(strings.ReplaceAll(text[:len(n.field)], ".", ""))
		if mark != "AM" && mark != "PM" {
			return "", n.invalid(text)
		}
		p.halfDay, p.afternoon = true, mark == "PM"
		return text[len(n.field):], nil
	}
	return n.readNumber(p, dayOfYear, text, fixed)
}

func (n *patternNode) invalid(text string) error {
	return sqlstate.New(sqlstate.InvalidDatetime, "invalid value %q for %q", text, n.field)
}

func (n *patternNode) readNumber(p *dateParts, dayOfYear *int, text string, fixed bool) (string, error) {
	width := len(n.field)
	switch n.field {
	case "HH24", "HH12":
		width = 2
	case "US":
		width = 6
	case "MS":
		width = 3
	}
	digits, value := 0, 0
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' && digits < 9 {
		if digits == width && (fixed && !n.fill || n.field != "YYYY") {
			break
		}
		value = value*10 + int(text[digits]-'0')
		digits++
	}
	if digits == 0 {
		return "", n.invalid(text)
	}
	fraction := func(to int) int {
		for k := digits; k < to; k++ {
			value *= 10
		}
		return value
	}
	switch n.field {
	case "YYYY":
		p.year = int64(value)
	case "YYY", "YY", "Y":
		p.year = nearestYear(value, digits)
	case "MM":
		p.month = value
	case "DD":
		p.day = value
	case "DDD":
		*dayOfYear = value
	case "HH24":
		p.hour = value
	case "HH", "HH12":
		if value < 1 || value > 12 {
			return "", sqlstate.New(sqlstate.InvalidDatetime, "hour %q is invalid for the 12-hour clock", text[:digits])
		}
		p.hour, p.halfDay = value, true
	case "MI":
		p.minute = value
	case "SS":
		p.second = value
	case "MS":
		p.micro = fraction(3) * 1000
	case "US":
		p.micro = fraction(6)
	default:
		return "", sqlstate.New(sqlstate.FeatureNotSupported, "%q is not supported in patterns that are read", n.field)
	}
	return text[digits:], nil
}

// nearestYear is the year closest to 2020 with these last digits.
func nearestYear(value, digits int) int64 {
	switch {
	case digits <= 2 && value < 70:
		return int64(value) + 2000
	case digits <= 2:
		return int64(value) + 1900
	case value < 100:
		return int64(value) + 2000
	case value < 520:
		return int64(value) + 2000
	case value < 1000:
		return int64(value) + 1000
	}
	return int64(value)
}

// finish checks the fields and computes the day.
func (p *dateParts) finish(text string, dayOfYear int) error {
	if p.halfDay {
		p.hour %= 12
		if p.afternoon {
			p.hour += 12
		}
	}
	if p.year < minYear || p.year > maxYear || p.month < 1 || p.month > 12 || p.day < 1 || p.day > daysInMonth(p.year, p.month) ||
		p.hour > 23 || p.minute > 59 || p.second > 59 || dayOfYear > 366 {
		return sqlstate.New(sqlstate.DatetimeOverflow, "date/time field value out of range: %q", text)
	}
	p.days = daysOf(p.year, p.month, p.day)
	if dayOfYear > 0 {
		p.days = daysOf(p.year, 1, 1) + int64(dayOfYear) - 1
	}
	return nil
}
