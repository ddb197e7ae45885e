package exec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/sqlstate"
)

// fromText makes the kernel that reads a type from text, nil for types that
// cannot be read.
func fromText(to arrow.DataType) kernel {
	switch kindOf(to) {
	case kBool:
		return perText(parseBool)
	case kInt2:
		return perText(parseInteger[int16])
	case kInt4:
		return perText(parseInteger[int32])
	case kInt8:
		return perText(parseInteger[int64])
	case kReal:
		return perText(func(p []byte) (float32, error) {
			x, err := parseFloat(p, 32, "real")
			return float32(x), err
		})
	case kDouble:
		return perText(func(p []byte) (float64, error) { return parseFloat(p, 64, "double precision") })
	case kDecimal:
		return decimalFromText(to)
	case kDate:
		return perText(parseDate)
	case kTime:
		return perText(parseTime)
	case kTimestamp, kTimestampTZ:
		per, zone := unitsPerSecond(to), kindOf(to) == kTimestampTZ
		return perText(func(p []byte) (int64, error) { return parseTimestamp(p, per, zone) })
	case kInterval:
		return perText(parseInterval)
	case kUUID:
		return perText(parseUUID)
	case kBytea:
		return func(f *frame) error {
			v := f.args[0]
			return f.text(func(dst []byte, i int) ([]byte, error) { return appendBytea(dst, v.BytesAt(i)) })
		}
	case kText:
		return identity
	}
	return nil
}

func invalidText(typeName string, p []byte) error {
	return sqlstate.New(sqlstate.InvalidText, "invalid input syntax for type %s: %q", typeName, p)
}

// trimSpace strips what C's isspace accepts.
func trimSpace(p []byte) []byte { return bytes.Trim(p, " \t\n\v\f\r") }

// parseBool accepts PostgreSQL's words and their unique prefixes.
func parseBool(p []byte) (byte, error) {
	s := strings.ToLower(string(trimSpace(p)))
	if s != "" {
		for _, w := range []struct {
			word  string
			least int
			value byte
		}{{"true", 1, 1}, {"false", 1, 0}, {"yes", 1, 1}, {"no", 1, 0}, {"on", 2, 1}, {"off", 2, 0}, {"1", 1, 1}, {"0", 1, 0}} {
			if len(s) >= w.least && strings.HasPrefix(w.word, s) {
				return w.value, nil
			}
		}
	}
	return 0, invalidText("boolean", p)
}

func integerName[T signed]() string {
	switch any(T(0)).(type) {
	case int16:
		return "smallint"
	case int32:
		return "integer"
	}
	return "bigint"
}

func parseInteger[T signed](p []byte) (T, error) {
	x, err := strconv.ParseInt(string(trimSpace(p)), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && int64(T(x)) != x:
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "value %q is out of range for type %s", p, integerName[T]())
	case err != nil:
		return 0, invalidText(integerName[T](), p)
	}
	return T(x), nil
}

func parseFloat(p []byte, bits int, typeName string) (float64, error) {
	s := string(trimSpace(p))
	if strings.ContainsAny(s, "xXpP_") { // Go reads these, SQL does not
		return 0, invalidText(typeName, p)
	}
	x, err := strconv.ParseFloat(s, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "%q is out of range for type %s", s, typeName)
	case err != nil:
		return 0, invalidText(typeName, p)
	case x == 0 && strings.ContainsAny(mantissa(s), "123456789"):
		return 0, sqlstate.New(sqlstate.NumericOutOfRange, "%q is out of range for type %s", s, typeName)
	}
	return x, nil
}

func mantissa(s string) string {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i]
	}
	return s
}

func decimalFromText(to arrow.DataType) kernel {
	p, s, _ := decimalParts(to)
	if isShort(to) {
		return perText(func(b []byte) (int64, error) {
			x, err := parseDecimal(b, p, s)
			return int64(x.lo), err
		})
	}
	return perText(func(b []byte) (int128, error) { return parseDecimal(b, p, s) })
}

// parseDecimal reads [sign] digits [. digits] [e exponent] at a scale, rounding
// half away from zero.
func parseDecimal(text []byte, precision, scale int) (int128, error) {
	p := trimSpace(text)
	negative := false
	if len(p) > 0 && (p[0] == '-' || p[0] == '+') {
		negative = p[0] == '-'
		p = p[1:]
	}
	var digits []byte
	var stack [64]byte
	digits = stack[:0]
	point, seen := -1, false
	i := 0
	for ; i < len(p); i++ {
		c := p[i]
		if c >= '0' && c <= '9' {
			seen = true
			if c != '0' || len(digits) > 0 || point >= 0 {
				digits = append(digits, c)
			}
		} else if c == '.' && point < 0 {
			point = len(digits)
		} else {
			break
		}
	}
	if point < 0 {
		point = len(digits)
	}
	exponent := 0
	if i < len(p) && (p[i] == 'e' || p[i] == 'E') && seen {
		e, err := strconv.Atoi(string(p[i+1:]))
		if err != nil || e > 1_000_000 || e < -1_000_000 {
			return int128{}, decimalExponent(text, precision, scale, err)
		}
		exponent, i = e, len(p)
	}
	if !seen || i != len(p) {
		return int128{}, invalidText("numeric", text)
	}
	x, ok := scaledDigits(digits, point+exponent+scale)
	if !ok || !inPrecision(x, precision) {
		return int128{}, decimalRangeError(precision, scale)
	}
	if negative {
		x = x.neg()
	}
	return x, nil
}

func decimalExponent(text []byte, precision, scale int, err error) error {
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return invalidText("numeric", text)
	}
	return decimalRangeError(precision, scale)
}

// scaledDigits is the number made of the first keep digits (zeros are appended
// when there are fewer), rounded by the next one; false past 38 digits.
func scaledDigits(digits []byte, keep int) (int128, bool) {
	var x int128
	n := 0
	for k := 0; k < keep; k++ {
		d := byte('0')
		if k < len(digits) {
			d = digits[k]
		} else if x.isZero() {
			break
		}
		if n > 0 || d != '0' {
			n++
		}
		if n > 38 {
			return x, false
		}
		ten, _ := x.mul(int128Of(10))
		x = ten.add(int128Of(int64(d - '0')))
	}
	if keep >= 0 && keep < len(digits) && digits[keep] >= '5' {
		x = x.add(int128Of(1))
	}
	return x, true
}

func parseUUID(text []byte) (u [16]byte, err error) {
	p := trimSpace(text)
	if len(p) > 1 && p[0] == '{' && p[len(p)-1] == '}' {
		p = p[1 : len(p)-1]
	}
	k := 0
	for i := 0; i < len(p); {
		if p[i] == '-' && k > 0 && k%2 == 0 {
			i++
			if i == len(p) || p[i] == '-' {
				return u, invalidText("uuid", text)
			}
		}
		if k == 16 || i+2 > len(p) {
			return u, invalidText("uuid", text)
		}
		if _, err := hex.Decode(u[k:k+1], p[i:i+2]); err != nil {
			return u, invalidText("uuid", text)
		}
		k, i = k+1, i+2
	}
	if k != 16 {
		return u, invalidText("uuid", text)
	}
	return u, nil
}

// appendBytea reads the hex format (\x...) or the escape format.
func appendBytea(dst, p []byte) ([]byte, error) {
	if h, ok := bytes.CutPrefix(p, []byte(`\x`)); ok {
		h = bytes.Join(bytes.Fields(h), nil)
		out, err := hex.AppendDecode(dst, h)
		if err != nil {
			return dst, sqlstate.New(sqlstate.InvalidParameter, "invalid hexadecimal data in a bytea: %v", err)
		}
		return out, nil
	}
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] != '\\':
			dst = append(dst, p[i])
		case i+1 < len(p) && p[i+1] == '\\':
			dst = append(dst, '\\')
			i++
		case i+3 < len(p) && isOctal(p[i+1:i+4]):
			dst = append(dst, (p[i+1]-'0')<<6|(p[i+2]-'0')<<3|(p[i+3]-'0'))
			i += 3
		default:
			return dst, invalidText("bytea", p)
		}
	}
	return dst, nil
}

func isOctal(p []byte) bool {
	return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7'
}
