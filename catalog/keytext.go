package catalog

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/columnar"
)

var errKeyTruncated = errors.New("encoded key ends early")

// KeyText spells an encoded key for people, one text per column, in the
// manner of PostgreSQL's error details.
func KeyText(types []arrow.DataType, key []byte) ([]string, error) {
	texts := make([]string, len(types))
	for i, dt := range types {
		var err error
		if texts[i], key, err = keyColumnText(PhysicalType(dt), key); err != nil {
			return nil, err
		}
	}
	if len(key) > 0 {
		return nil, fmt.Errorf("encoded key has %d bytes too many", len(key))
	}
	return texts, nil
}

// keyColumnText spells the first value of key and returns the rest.
func keyColumnText(dt arrow.DataType, key []byte) (string, []byte, error) {
	if len(key) == 0 {
		return "", nil, errKeyTruncated
	}
	tag, key := key[0], key[1:]
	switch tag {
	case keyNull:
		return "null", key, nil
	case keyValue:
	default:
		return "", nil, fmt.Errorf("encoded key has tag %#x", tag)
	}
	switch t := dt.(type) {
	case *arrow.ListType:
		return keyListText(t.Elem(), key)
	case *arrow.StructType:
		return keyStructText(t, key)
	}
	switch dt.ID() {
	case arrow.STRING, arrow.BINARY:
		raw, rest, err := keyBytes(key)
		if err != nil {
			return "", nil, err
		}
		if dt.ID() == arrow.STRING && utf8.Valid(raw) {
			return string(raw), rest, nil
		}
		return `\x` + hex.EncodeToString(raw), rest, nil
	}
	w := keyWidth(dt)
	if w == 0 {
		return "", nil, fmt.Errorf("type %s has no key encoding", TypeName(dt))
	}
	if len(key) < w {
		return "", nil, errKeyTruncated
	}
	return fixedKeyText(dt, key[:w]), key[w:], nil
}

func keyListText(elem arrow.DataType, key []byte) (string, []byte, error) {
	var parts []string
	for {
		if len(key) == 0 {
			return "", nil, errKeyTruncated
		}
		if key[0] == keyListEnd {
			return "{" + strings.Join(parts, ",") + "}", key[1:], nil
		}
		text, rest, err := keyColumnText(PhysicalType(elem), key)
		if err != nil {
			return "", nil, err
		}
		parts, key = append(parts, text), rest
	}
}

func keyStructText(t *arrow.StructType, key []byte) (string, []byte, error) {
	parts := make([]string, t.NumFields())
	for i, f := range t.Fields() {
		var err error
		if parts[i], key, err = keyColumnText(PhysicalType(f.Type), key); err != nil {
			return "", nil, err
		}
	}
	return "(" + strings.Join(parts, ",") + ")", key, nil
}

func keyWidth(dt arrow.DataType) int {
	switch w := columnar.Width(dt); {
	case dt.ID() == arrow.BOOL, dt.ID() == arrow.FIXED_SIZE_BINARY, w == 16:
		return w
	case w > 0:
		return 8
	}
	return 0
}

// keyBytes decodes an escaped string and returns what follows it.
func keyBytes(key []byte) (raw, rest []byte, err error) {
	for i := 0; i < len(key); i++ {
		if key[i] != 0 {
			raw = append(raw, key[i])
			continue
		}
		if i+1 == len(key) {
			break
		}
		switch key[i+1] {
		case keyTerminator:
			return raw, key[i+2:], nil
		case keyEscape:
			raw = append(raw, 0)
			i++
		default:
			return nil, nil, fmt.Errorf("encoded key has escape %#x", key[i+1])
		}
	}
	return nil, nil, errKeyTruncated
}

func fixedKeyText(dt arrow.DataType, b []byte) string {
	switch t := dt.(type) {
	case *arrow.TimestampType:
		return timestampText(t, keyInt(b))
	case *arrow.Decimal64Type:
		return decimal128.FromI64(keyInt(b)).ToString(t.Scale)
	case *arrow.Decimal128Type:
		return keyInt128(b).ToString(t.Scale)
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			h := hex.EncodeToString(b)
			return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
		}
		return `\x` + hex.EncodeToString(b)
	}
	switch dt.ID() {
	case arrow.BOOL:
		if b[0] != 0 {
			return "t"
		}
		return "f"
	case arrow.FLOAT32:
		return strconv.FormatFloat(keyFloat(b), 'g', -1, 32)
	case arrow.FLOAT64:
		return strconv.FormatFloat(keyFloat(b), 'g', -1, 64)
	case arrow.DATE32:
		return time.Unix(keyInt(b)*86400, 0).UTC().Format(time.DateOnly)
	case arrow.TIME64:
		return time.UnixMicro(keyInt(b)).UTC().Format("15:04:05.999999")
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return intervalText(keyInt128(b))
	}
	return strconv.FormatInt(keyInt(b), 10)
}

// intervalText spells a length in nanoseconds as days and clock time.
func intervalText(n decimal128.Num) string {
	days, rest := new(big.Int).QuoRem(n.BigInt(), big.NewInt(86400*1_000_000_000), new(big.Int))
	if days.Sign() == 0 {
		return time.Duration(rest.Int64()).String()
	}
	return days.String() + " days " + time.Duration(rest.Int64()).String()
}

func timestampText(t *arrow.TimestampType, x int64) string {
	layout := "2006-01-02 15:04:05.999999999"
	if t.TimeZone != "" {
		layout += "-07"
	}
	unit := int64(time.Second / t.Unit.Multiplier())
	sec, frac := x/unit, x%unit
	if frac < 0 {
		sec, frac = sec-1, frac+unit
	}
	return time.Unix(sec, frac*int64(t.Unit.Multiplier())).UTC().Format(layout)
}

func keyInt(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ signBit) }

func keyInt128(b []byte) decimal128.Num {
	return decimal128.New(keyInt(b), binary.BigEndian.Uint64(b[8:]))
}

func keyFloat(b []byte) float64 {
	u := binary.BigEndian.Uint64(b)
	switch {
	case u == math.MaxUint64:
		return math.NaN()
	case u&signBit != 0:
		return math.Float64frombits(u &^ signBit)
	}
	return math.Float64frombits(^u)
}

// KeyValue decodes an encoded value of one column into the form that
// AppendKeyValue takes; it is for fixed-width types, text and bytea, and
// returns nil for NULL and for bytes that are not one whole value.
func KeyValue(dt arrow.DataType, key []byte) any {
	dt = PhysicalType(dt)
	if len(key) == 0 || key[0] != keyValue {
		return nil
	}
	key = key[1:]
	switch dt.ID() {
	case arrow.STRING, arrow.BINARY:
		raw, rest, err := keyBytes(key)
		switch {
		case err != nil || len(rest) > 0:
			return nil
		case dt.ID() == arrow.STRING:
			return string(raw)
		}
		return append([]byte{}, raw...)
	}
	if w := keyWidth(dt); w == 0 || len(key) != w {
		return nil
	}
	switch dt.ID() {
	case arrow.BOOL:
		return key[0] != 0
	case arrow.FLOAT32, arrow.FLOAT64:
		return keyFloat(key)
	case arrow.DECIMAL128:
		return keyInt128(key)
	case arrow.FIXED_SIZE_BINARY:
		return append([]byte{}, key...)
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return nil // the parts are not kept, only the length
	}
	return keyInt(key)
}
