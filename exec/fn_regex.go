package exec

import (
	"bytes"
	"regexp"
	"strings"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// invalidRegexp is PostgreSQL's invalid_regular_expression.
const invalidRegexp = sqlstate.Code("2201B")

// Patterns follow the syntax of RE2 (package regexp), which runs in time linear
// in the text; PostgreSQL's back references and look-around are errors.
func regexFunctions() []*function {
	var fs []*function
	for _, m := range []struct {
		name, doc    string
		fold, negate bool
	}{
		{"~", "Whether the text has a match of a regular expression (RE2 syntax).", false, false},
		{"!~", "The negation of ~.", false, true},
		{"~*", "~ without regard to case.", true, false},
		{"!~*", "The negation of ~*.", true, true},
	} {
		f := &function{name: m.name, infix: true, doc: m.doc, overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.Boolean), make: makeRegexMatch(m.fold, m.negate)},
		}}
		if m.name == "~" {
			f.doc += " With one operand, the bits that it has not."
			f.overloads = append(f.overloads, bitNot()...)
		}
		fs = append(fs, f)
	}
	return append(fs,
		&function{name: "regexp_like", doc: "Whether the text has a match of a regular expression, with flags such as i if given.", overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.Boolean), make: makeRegexMatch(false, false)},
			{params: []kind{kText, kText, kText}, result: returns(catalog.Boolean), make: makeRegexMatch(false, false)},
		}},
		&function{name: "regexp_replace", doc: `Replaces the first match of a regular expression, or with the flag g all; \1 to \9 and \& stand for parts of it.`,
			overloads: []overload{
				{params: []kind{kText, kText, kText}, result: returns(catalog.Text), make: makeRegexReplace},
				{params: []kind{kText, kText, kText, kText}, result: returns(catalog.Text), make: makeRegexReplace},
			}},
		&function{name: "regexp_substr", doc: "The first match of a regular expression, NULL if there is none.", nonStrict: true, overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.Text), make: makeRegexSubstr}}},
		&function{name: "regexp_count", doc: "How many matches of a regular expression a text has.", overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.Integer), make: makeRegexCount}}},
	)
}

// regexCache holds the compiled form of a pattern that changes rarely.
type regexCache struct {
	pattern, flags []byte
	global         bool
	re             *regexp.Regexp
}

// compile returns the expression of a pattern with PostgreSQL's flags.
func (c *regexCache) compile(pattern, flags []byte, fold bool) (*regexp.Regexp, error) {
	if c.re != nil && bytes.Equal(c.pattern, pattern) && bytes.Equal(c.flags, flags) {
		return c.re, nil
	}
	// The dot matches newlines, ^ and $ only the ends of the text.
	mode, quoted := "s", false
	c.global = false
	for _, f := range flags {
		switch f {
		case 'g':
			c.global = true
		case 'i':
			fold = true
		case 'c':
			fold = false
		case 'q':
			quoted = true
		case 'n', 'm':
			mode = "m"
		case 's':
			mode = "s"
		default:
			return nil, sqlstate.New(sqlstate.InvalidParameter, "invalid regular expression option: %q", f)
		}
	}
	if fold {
		mode += "i"
	}
	text := string(pattern)
	if quoted {
		text = regexp.QuoteMeta(text)
	}
	re, err := regexp.Compile("(?" + mode + ")" + text)
	if err != nil {
		text = strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		return nil, sqlstate.New(invalidRegexp, "invalid regular expression: %s", text).
			WithHint("Regular expressions have RE2's syntax, without back references and look-around.")
	}
	c.pattern, c.flags, c.re = append(c.pattern[:0], pattern...), append(c.flags[:0], flags...), re
	return re, nil
}

// flagsAt is the optional flags argument of row i.
func flagsAt(args []*columnar.Vector, k, i int) []byte {
	if len(args) <= k {
		return nil
	}
	return args[k].BytesAt(i)
}

func makeRegexMatch(fold, negate bool) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) {
		c := &regexCache{}
		return func(f *frame) error {
			out := fixedOut[byte](f)
			return f.each(func(i int) error {
				re, err := c.compile(f.args[1].BytesAt(i), flagsAt(f.args, 2, i), fold)
				if err != nil {
					return err
				}
				out[i] = b2u(re.Match(f.args[0].BytesAt(i)) != negate)
				return nil
			})
		}, nil
	}
}

func makeRegexCount(*callSite) (kernel, error) {
	c := &regexCache{}
	return func(f *frame) error {
		out := fixedOut[int32](f)
		return f.each(func(i int) error {
			re, err := c.compile(f.args[1].BytesAt(i), nil, false)
			if err != nil {
				return err
			}
			out[i] = int32(len(re.FindAllIndex(f.args[0].BytesAt(i), -1)))
			return nil
		})
	}, nil
}

func makeRegexSubstr(*callSite) (kernel, error) {
	c := &regexCache{}
	return func(f *frame) error {
		f.out.Valid = nil
		valid := f.ownValid()
		return f.text(func(dst []byte, i int) ([]byte, error) {
			if f.args[0].IsNull(i) || f.args[1].IsNull(i) {
				columnar.ClearBit(valid, i)
				return dst, nil
			}
			re, err := c.compile(f.args[1].BytesAt(i), nil, false)
			if err != nil {
				return dst, err
			}
			m := re.FindIndex(f.args[0].BytesAt(i))
			if m == nil {
				columnar.ClearBit(valid, i)
				return dst, nil
			}
			return append(dst, f.args[0].BytesAt(i)[m[0]:m[1]]...), nil
		})
	}, nil
}

func makeRegexReplace(*callSite) (kernel, error) {
	c := &regexCache{}
	return func(f *frame) error {
		return f.text(func(dst []byte, i int) ([]byte, error) {
			re, err := c.compile(f.args[1].BytesAt(i), flagsAt(f.args, 3, i), false)
			if err != nil {
				return dst, err
			}
			return replaceMatches(dst, re, f.args[0].BytesAt(i), f.args[2].BytesAt(i), c.global)
		})
	}, nil
}

func replaceMatches(dst []byte, re *regexp.Regexp, p, with []byte, global bool) ([]byte, error) {
	limit := 1
	if global {
		limit = -1
	}
	start, last := len(dst), 0
	for _, m := range re.FindAllSubmatchIndex(p, limit) {
		dst = expandMatch(append(dst, p[last:m[0]]...), with, p, m)
		last = m[1]
		if len(dst)-start > maxText {
			return dst, tooLong("regexp_replace")
		}
	}
	return append(dst, p[last:]...), nil
}

// expandMatch appends a replacement in which \0 to \9 and \& are parts of the
// match and \\ is a backslash.
func expandMatch(dst, with, p []byte, m []int) []byte {
	for k := 0; k < len(with); k++ {
		if with[k] != '\\' || k+1 == len(with) {
			dst = append(dst, with[k])
			continue
		}
		k++
		switch c := with[k]; {
		case c == '&' || c >= '1' && c <= '9':
			group := 0
			if c != '&' {
				group = int(c - '0')
			}
			if 2*group+1 < len(m) && m[2*group] >= 0 {
				dst = append(dst, p[m[2*group]:m[2*group+1]]...)
			}
		case c == '\\':
			dst = append(dst, c)
		default:
			dst = append(dst, '\\', c)
		}
	}
	return dst
}
