package exec

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// charFunctions work on the characters of texts and on their encodings.
func charFunctions() []*function {
	return []*function{
		{name: "ascii", total: true, doc: "The code point of the first character, 0 for an empty text.", overloads: []overload{
			intForm(func(a []*columnar.Vector, i int) int32 {
				r, n := utf8.DecodeRune(a[0].BytesAt(i))
				if n == 0 {
					return 0
				}
				return int32(r)
			}, kText)}},
		{name: "chr", doc: "The character of a code point.", overloads: []overload{textForm(chrText, kInt4)}},
		{name: "bit_length", total: true, doc: "Number of bits.", overloads: []overload{
			intForm(func(a []*columnar.Vector, i int) int32 { return int32(len(a[0].BytesAt(i))) * 8 }, kText),
			intForm(func(a []*columnar.Vector, i int) int32 { return int32(len(a[0].BytesAt(i))) * 8 }, kBytea)}},
		{name: "split_part", doc: "The n-th part between separators; a negative n counts from the end.", overloads: []overload{textForm(splitPart, kText, kText, kInt4)}},
		{name: "translate", doc: "Replaces each character of the second argument by that at its place in the third, or leaves it out.",
			overloads: []overload{textForm(translateText, kText, kText, kText)}},
		{name: "initcap", total: true, doc: "The first letter of each word in upper case, the others in lower case.", overloads: []overload{textForm(initcapText, kText)}},
		{name: "overlay", doc: "Replaces characters from a position by the second argument, as many as that has or the fourth argument says.",
			overloads: []overload{textForm(overlayText, kText, kText, kInt4), textForm(overlayText, kText, kText, kInt4, kInt4)}},
		{name: "md5", total: true, doc: "The MD5 digest in hexadecimal.", overloads: []overload{textForm(md5Text, kText), textForm(md5Text, kBytea)}},
		{name: "to_hex", doc: "The number in hexadecimal, negative ones in two's complement.", overloads: []overload{
			textForm(func(dst []byte, a []*columnar.Vector, i int) ([]byte, error) {
				return strconv.AppendUint(dst, uint64(uint32(at[int32](a[0], i))), 16), nil
			}, kInt4),
			textForm(func(dst []byte, a []*columnar.Vector, i int) ([]byte, error) {
				return strconv.AppendUint(dst, uint64(at[int64](a[0], i)), 16), nil
			}, kInt8)}},
		{name: "concat_ws", nonStrict: true, doc: "Concatenation with the first argument between the others, NULLs left out.", overloads: []overload{
			{params: []kind{kText, pPrintable}, variadic: true, result: returns(catalog.Text), make: makeConcatWithSeparator}}},
	}
}

func chrText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	n := at[int32](args[0], i)
	switch {
	case n == 0:
		return dst, sqlstate.New(sqlstate.ProgramLimitExceeded, "null character not permitted")
	case n < 0:
		return dst, sqlstate.New(sqlstate.InvalidParameter, "character number must be positive")
	case !utf8.ValidRune(n):
		return dst, sqlstate.New(sqlstate.ProgramLimitExceeded, "requested character not valid for encoding: %d", n)
	}
	return utf8.AppendRune(dst, n), nil
}

func splitPart(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, sep, n := args[0].BytesAt(i), args[1].BytesAt(i), intArg(args[2], i)
	switch {
	case n == 0:
		return dst, sqlstate.New(sqlstate.InvalidParameter, "field position must not be zero")
	case len(sep) == 0 && (n == 1 || n == -1):
		return append(dst, p...), nil
	case len(sep) == 0:
		return dst, nil
	case n < 0:
		n += bytes.Count(p, sep) + 2
	}
	for ; n > 1; n-- {
		k := bytes.Index(p, sep)
		if k < 0 {
			return dst, nil
		}
		p = p[k+len(sep):]
	}
	if n < 1 {
		return dst, nil
	}
	if k := bytes.Index(p, sep); k >= 0 {
		p = p[:k]
	}
	return append(dst, p...), nil
}

func translateText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, from, to := args[0].BytesAt(i), args[1].BytesAt(i), args[2].BytesAt(i)
	for len(p) > 0 {
		_, n := utf8.DecodeRune(p)
		k := bytes.Index(from, p[:n])
		if k < 0 {
			dst = append(dst, p[:n]...)
		} else {
			nth := countRunes(from[:k])
			at := skipRunes(to, nth)
			dst = append(dst, to[at:skipRunes(to, nth+1)]...)
		}
		p = p[n:]
	}
	return dst, nil
}

func initcapText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	word := false
	return appendMapped(dst, args[0].BytesAt(i), func(r rune) rune {
		first := !word
		word = unicode.IsLetter(r) || unicode.IsDigit(r)
		if first {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}), nil
}

func overlayText(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	p, with, from := args[0].BytesAt(i), args[1].BytesAt(i), intArg(args[2], i)
	count := countRunes(with)
	if len(args) > 3 {
		count = intArg(args[3], i)
	}
	if from <= 0 {
		return dst, sqlstate.New(sqlstate.Code("22011"), "negative substring length not allowed")
	}
	dst = append(append(dst, p[:skipRunes(p, from-1)]...), with...)
	return append(dst, p[skipRunes(p, max(from-1+count, 0)):]...), nil
}

func md5Text(dst []byte, args []*columnar.Vector, i int) ([]byte, error) {
	sum := md5.Sum(args[0].BytesAt(i))
	return hex.AppendEncode(dst, sum[:]), nil
}

// makeConcatWithSeparator is NULL only where the separator is.
func makeConcatWithSeparator(*callSite) (kernel, error) {
	return func(f *frame) error {
		f.out.Valid = nil
		separator := f.args[0]
		if separator.Valid != nil || separator.Type.ID() == arrow.NULL {
			valid := f.ownValid()
			for i := range f.n {
				if separator.IsNull(i) {
					columnar.ClearBit(valid, i)
				}
			}
		}
		return f.text(func(dst []byte, i int) ([]byte, error) {
			first := true
			for _, v := range f.args[1:] {
				if v.Type.ID() == arrow.NULL || v.IsNull(i) {
					continue
				}
				if !first {
					dst = append(dst, separator.BytesAt(i)...)
				}
				dst, first = append(dst, v.BytesAt(i)...), false
			}
			return dst, nil
		})
	}, nil
}
