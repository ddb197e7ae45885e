package exec

import (
	"bytes"
	"math"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// maxText bounds the text that one call may produce.
const maxText = 64 << 20

// rowText computes row i of a text function from its arguments.
type rowText func(dst []byte, args []*columnar.Vector, i int) ([]byte, error)

func textKernel(fn rowText) func(*callSite) (kernel, error) {
	return plain(func(f *frame) error {
		return f.text(func(dst []byte, i int) ([]byte, error) { return fn(dst, f.args, i) })
	})
}

func textForm(fn rowText, params ...kind) overload {
	return overload{params: params, result: returns(catalog.Text), make: textKernel(fn)}
}

func intForm(fn func(args []*columnar.Vector, i int) int32, params ...kind) overload {
	return overload{params: params, result: returns(catalog.Integer), make: plain(func(f *frame) error {
		out := fixedOut[int32](f)
		return f.each(func(i int) error {
			out[i] = fn(f.args, i)
			return nil
		})
	})}
}

func textFunctions() []*function {
	byteLength := func(args []*columnar.Vector, i int) int32 { return int32(len(args[0].BytesAt(i))) }
	charLength := func(args []*columnar.Vector, i int) int32 { return int32(countRunes(args[0].BytesAt(i))) }
	fs := []*function{
		{name: "||", infix: true, doc: "Concatenation; values that are not text are printed first.", overloads: []overload{
			textForm(concatText, kText, kText), textForm(concatText, kText, pPrintable), textForm(concatText, pPrintable, kText),
			{params: []kind{kBytea, kBytea}, result: returns(catalog.Bytea), make: textKernel(concatText)},
		}},
		{name: "concat", nonStrict: true, neverNull: true, doc: "Concatenation of all arguments, NULLs left out.", overloads: []overload{
			{params: []kind{pPrintable}, variadic: true, result: returns(catalog.Text), make: makeConcat}}},
		{name: "lower", total: true, doc: "Lower case.", overloads: []overload{textForm(mapCase(unicode.ToLower), kText)}},
		{name: "upper", total: true, doc: "Upper case.", overloads: []overload{textForm(mapCase(unicode.ToUpper), kText)}},
		{name: "length", aliases: []string{"char_length", "character_length"}, total: true, doc: "Number of characters; of bytes for bytea.",
			overloads: []overload{intForm(charLength, kText), intForm(byteLength, kBytea)}},
		{name: "octet_length", total: true, doc: "Number of bytes.", overloads: []overload{intForm(byteLength, kText), intForm(byteLength, kBytea)}},
		{name: "substring", aliases: []string{"substr"}, doc: "Characters from a position (1 is the first), all or a number of them.", overloads: []overload{
			textForm(substringFrom, kText, kInt4), textForm(substringFor, kText, kInt4, kInt4)}},
		{name: "btrim", aliases: []string{"trim"}, total: true, doc: "Strips spaces, or the given characters, from both ends.", overloads: trimForms(true, true)},
		{name: "ltrim", total: true, doc: "Strips spaces, or the given characters, from the start.", overloads: trimForms(true, false)},
		{name: "rtrim", total: true, doc: "Strips spaces, or the given characters, from the end.", overloads: trimForms(false, true)},
		{name: "replace", doc: "Replaces every occurrence of the second argument by the third.", overloads: []overload{textForm(replaceText, kText, kText, kText)}},
		{name: "position", total: true, doc: "Position of the first argument in the second, 0 if it does not occur.", overloads: []overload{
			intForm(func(a []*columnar.Vector, i int) int32 { return positionOf(a[1].BytesAt(i), a[0].BytesAt(i)) }, kText, kText)}},
		{name: "strpos", total: true, doc: "Position of the second argument in the first, 0 if it does not occur.", overloads: []overload{
			intForm(func(a []*columnar.Vector, i int) int32 { return positionOf(a[0].BytesAt(i), a[1].BytesAt(i)) }, kText, kText)}},
		{name: "left", total: true, doc: "The first n characters, or all but the last -n.", overloads: []overload{textForm(leftText, kText, kInt4)}},
		{name: "right", total: true, doc: "The last n characters, or all but the first -n.", overloads: []overload{textForm(rightText, kText, kInt4)}},
		{name: "lpad", doc: "Fills up on the left to a length, with spaces or the given text; cuts what is longer.", overloads: padForms(true)},
		{name: "rpad", doc: "Fills up on the right to a length, with spaces or the given text; cuts what is longer.", overloads: padForms(false)},
		{name: "reverse", total: true, doc: "The characters in reverse order.", overloads: []overload{textForm(reverseText, kText)}},
		{name: "repeat", doc: "The text a number of times.", overloads: []overload{textForm(repeatText, kText, kInt4)}},
	}
	return fs
}

func concatText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	dst = append(dst, args[0].BytesAt(i)...)
	return append(dst, args[1].BytesAt(i)...), nil
}

func makeConcat(*callSite) (kernel, error) {
	return func(f *frame) error {
		f.out.Valid = nil
		return f.text(func(dst []byte, i int) ([]byte, error) {
			for _, v := range f.args {
				if v.Type.ID() != arrow.NULL && !v.IsNull(i) {
					dst = append(dst, v.BytesAt(i)...)
				}
			}
			return dst, nil
		})
	}, nil
}

func mapCase(fn func(rune) rune) rowText {
	return func(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
		return appendMapped(dst, args[0].BytesAt(i), fn), nil
	}
}

// appendMapped changes case rune by rune; bytes that are no rune stay.
func appendMapped(dst, p []byte, fn func(rune) rune) []byte {
	for len(p) > 0 {
		if p[0] < utf8.RuneSelf {
			dst = append(dst, byte(fn(rune(p[0]))))
			p = p[1:]
			continue
		}
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n <= 1 {
			dst = append(dst, p[0])
		} else {
			dst = utf8.AppendRune(dst, fn(r))
		}
		p = p[n:]
	}
	return dst
}

// countRunes counts characters: the bytes that do not continue one.
func countRunes(p []byte) int {
	n := 0
	for _, c := range p {
		n += b2i(c&0xC0 != 0x80)
	}
	return n
}

// skipRunes is the byte position of the n-th character, len(p) past the end.
func skipRunes(p []byte, n int) int {
	if n <= 0 {
		return 0
	}
	ascii := 0
	for ascii < len(p) && ascii < n && p[ascii] < utf8.RuneSelf {
		ascii++
	}
	if ascii == n || ascii == len(p) {
		return ascii
	}
	for i, c := range p {
		if c&0xC0 != 0x80 {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return len(p)
}

func intArg(v *columnar.Vector, i int) int { return int(at[int32](v, i)) }

func substringFrom(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p := args[0].BytesAt(i)
	return append(dst, p[skipRunes(p, intArg(args[1], i)-1):]...), nil
}

func substringFor(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, from, count := args[0].BytesAt(i), intArg(args[1], i), intArg(args[2], i)
	if count < 0 {
		return dst, sqlstate.New(sqlstate.Code("22011"), "negative substring length not allowed")
	}
	end := from + count // exclusive; cannot overflow an int of 64 bits
	p = p[:skipRunes(p, end-1)]
	return append(dst, p[skipRunes(p, from-1):]...), nil
}

func trimForms(left, right bool) []overload {
	trim := func(dst, p, set []byte) []byte {
		cut := string(set)
		if left {
			p = bytes.TrimLeft(p, cut)
		}
		if right {
			p = bytes.TrimRight(p, cut)
		}
		return append(dst, p...)
	}
	return []overload{
		textForm(func(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
			return trim(dst, args[0].BytesAt(i), []byte{' '}), nil
		}, kText),
		textForm(func(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
			return trim(dst, args[0].BytesAt(i), args[1].BytesAt(i)), nil
		}, kText, kText),
	}
}

func replaceText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, old, with := args[0].BytesAt(i), args[1].BytesAt(i), args[2].BytesAt(i)
	if len(old) == 0 {
		return append(dst, p...), nil
	}
	start := len(dst)
	for {
		k := bytes.Index(p, old)
		if k < 0 {
			return append(dst, p...), nil
		}
		dst = append(append(dst, p[:k]...), with...)
		p = p[k+len(old):]
		if len(dst)-start > maxText {
			return dst, tooLong("replace")
		}
	}
}

func tooLong(name string) error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "the text returned by %s exceeds %d bytes", name, maxText)
}

func positionOf(p, sub []byte) int32 {
	k := bytes.Index(p, sub)
	if k < 0 {
		return 0
	}
	return int32(countRunes(p[:k])) + 1
}

func leftText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, n := args[0].BytesAt(i), intArg(args[1], i)
	if n < 0 {
		n += countRunes(p)
	}
	return append(dst, p[:skipRunes(p, n)]...), nil
}

func rightText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, n := args[0].BytesAt(i), intArg(args[1], i)
	if n < 0 {
		return append(dst, p[skipRunes(p, -n):]...), nil
	}
	return append(dst, p[skipRunes(p, countRunes(p)-n):]...), nil
}

func padForms(left bool) []overload {
	form := func(fillAt int) rowText {
		return func(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
			fill := []byte{' '}
			if fillAt > 0 {
				fill = args[fillAt].BytesAt(i)
			}
			return pad(dst, args[0].BytesAt(i), intArg(args[1], i), fill, left)
		}
	}
	return []overload{textForm(form(0), kText, kInt4), textForm(form(2), kText, kInt4, kText)}
}

func pad(dst, p []byte, length int, fill []byte, left bool) ([]byte, error) {
	have := countRunes(p)
	if length <= have || len(fill) == 0 {
		return append(dst, p[:skipRunes(p, length)]...), nil
	}
	missing, width := length-have, countRunes(fill)
	if missing > maxText/len(fill) {
		return dst, tooLong("padding")
	}
	if !left {
		dst = append(dst, p...)
	}
	for ; missing >= width && width > 0; missing -= width {
		dst = append(dst, fill...)
	}
	dst = append(dst, fill[:skipRunes(fill, missing)]...)
	if left {
		dst = append(dst, p...)
	}
	return dst, nil
}

func reverseText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p := args[0].BytesAt(i)
	for len(p) > 0 {
		_, n := utf8.DecodeLastRune(p)
		dst = append(dst, p[len(p)-n:]...)
		p = p[:len(p)-n]
	}
	return dst, nil
}

func repeatText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, n := args[0].BytesAt(i), intArg(args[1], i)
	if n <= 0 || len(p) == 0 {
		return dst, nil
	}
	if len(p) > maxText/min(n, math.MaxInt32) {
		return dst, tooLong("repeat")
	}
	for range n {
		dst = append(dst, p...)
	}
	return dst, nil
}
