package exec

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func matchFunctions() []*function {
	fs := []*function{{name: "starts_with", aliases: []string{"^@"}, total: true, doc: "Whether the first argument starts with the second.",
		overloads: []overload{{params: []kind{kText, kText}, result: returns(catalog.Boolean), make: plain(func(f *frame) error {
			out := fixedOut[byte](f)
			return f.each(func(i int) error {
				out[i] = b2u(bytes.HasPrefix(f.args[0].BytesAt(i), f.args[1].BytesAt(i)))
				return nil
			})
		})}}}}
	for _, m := range []struct {
		name, doc    string
		fold, negate bool
	}{
		{"like", `Matches a pattern: % stands for any text, _ for one character; the third argument is the escape character, by default a backslash.`, false, false},
		{"not like", "The negation of like.", false, true},
		{"ilike", "like without regard to case.", true, false},
		{"not ilike", "The negation of ilike.", true, true},
	} {
		make := makeLike(m.fold, m.negate)
		fs = append(fs, &function{name: m.name, infix: true, doc: m.doc, total: true, overloads: []overload{
			{params: []kind{kText, kText}, result: returns(catalog.Boolean), make: make},
			{params: []kind{kText, kText, kText}, result: returns(catalog.Boolean), make: make},
		}})
	}
	return fs
}

// liker matches rows against a pattern that changes rarely.
type liker struct {
	fold    bool
	source  []byte
	escape  rune
	pattern *likePattern
	lower   []byte
}

// prepare compiles the pattern unless it is the one of the row before.
func (l *liker) prepare(source []byte, escape rune) error {
	if l.pattern != nil && l.escape == escape && bytes.Equal(l.source, source) {
		return nil
	}
	l.source = append(l.source[:0], source...)
	l.escape = escape
	text := l.source
	if l.fold {
		text = lowered(text)
		escape = unicode.ToLower(escape)
	}
	var err error
	l.pattern, err = compileLike(bytes.Clone(text), escape)
	return err
}

func (l *liker) match(p []byte) bool {
	if l.fold {
		l.lower = appendMapped(l.lower[:0], p, unicode.ToLower)
		p = l.lower
	}
	return l.pattern.match(p)
}

// escapeOf reads the escape argument: one character, or nothing for none.
func escapeOf(p []byte) (rune, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r, n := utf8.DecodeRune(p)
	if n != len(p) {
		return 0, sqlstate.New(sqlstate.InvalidEscape, "invalid escape string %q", p).
			WithHint("Escape string must be empty or one character.")
	}
	return r, nil
}

func makeLike(fold, negate bool) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) {
		l := &liker{fold: fold}
		flip := b2u(negate)
		return func(f *frame) error {
			out := fixedOut[byte](f)
			text, pattern := f.args[0], f.args[1]
			escapes := columnar.NewConst(catalog.Text, []byte{'\\'}, f.n)
			if len(f.args) == 3 {
				escapes = f.args[2]
			}
			fixed := pattern.Const && escapes.Const
			ready := false
			return f.each(func(i int) error {
				if !ready {
					escape, err := escapeOf(escapes.BytesAt(i))
					if err != nil {
						return err
					}
					if err := l.prepare(pattern.BytesAt(i), escape); err != nil {
						return err
					}
					ready = fixed
				}
				out[i] = b2u(l.match(text.BytesAt(i))) ^ flip
				return nil
			})
		}, nil
	}
}
