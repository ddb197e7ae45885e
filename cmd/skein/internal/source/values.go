package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/google/uuid"
)

// parser appends one CSV field to the column it was made for.
type parser func(text string) error

// parserFor returns the parser that appends to b, a builder of type dt.
func parserFor(dt arrow.DataType, b array.Builder) (parser, error) {
	switch dt := dt.(type) {
	case *arrow.StringType:
		b := b.(*array.StringBuilder)
		return func(s string) error { b.Append(s); return nil }, nil
	case *arrow.BooleanType:
		return booleanParser(b.(*array.BooleanBuilder)), nil
	case *arrow.Int16Type:
		b := b.(*array.Int16Builder)
		return integerParser(16, func(v int64) { b.Append(int16(v)) }), nil
	case *arrow.Int32Type:
		b := b.(*array.Int32Builder)
		return integerParser(32, func(v int64) { b.Append(int32(v)) }), nil
	case *arrow.Int64Type:
		return integerParser(64, b.(*array.Int64Builder).Append), nil
	case *arrow.Float32Type:
		b := b.(*array.Float32Builder)
		return floatParser(32, func(v float64) { b.Append(float32(v)) }), nil
	case *arrow.Float64Type:
		return floatParser(64, b.(*array.Float64Builder).Append), nil
	case *arrow.Decimal128Type:
		return decimalParser(dt, b.(*array.Decimal128Builder)), nil
	case *arrow.Date32Type:
		b := b.(*array.Date32Builder)
		return func(s string) error {
			t, err := time.Parse(time.DateOnly, s)
			b.Append(arrow.Date32FromTime(t))
			return err
		}, nil
	case *arrow.Time64Type:
		b := b.(*array.Time64Builder)
		return func(s string) error {
			v, err := arrow.Time64FromString(s, dt.Unit)
			b.Append(v)
			return err
		}, nil
	case *arrow.TimestampType:
		return timestampParser(dt, b.(*array.TimestampBuilder)), nil
	case *arrow.BinaryType:
		return binaryParser(b.(*array.BinaryBuilder)), nil
	case *arrow.FixedSizeBinaryType:
		if dt.ByteWidth != len(uuid.UUID{}) {
			break
		}
		b := b.(*array.FixedSizeBinaryBuilder)
		return func(s string) error {
			id, err := uuid.Parse(s)
			b.Append(id[:])
			return err
		}, nil
	}
	return nil, fmt.Errorf("type %s cannot be read from CSV; use Parquet or Arrow", dt)
}

func booleanParser(b *array.BooleanBuilder) parser {
	return func(s string) error {
		switch strings.ToLower(s) {
		case "t", "true", "1", "yes", "on":
			b.Append(true)
		case "f", "false", "0", "no", "off":
			b.Append(false)
		default:
			return errors.New("not a boolean")
		}
		return nil
	}
}

func integerParser(bits int, appendValue func(int64)) parser {
	return func(s string) error {
		v, err := strconv.ParseInt(s, 10, bits)
		appendValue(v)
		return err
	}
}

func floatParser(bits int, appendValue func(float64)) parser {
	return func(s string) error {
		v, err := strconv.ParseFloat(s, bits)
		appendValue(v)
		return err
	}
}

// decimalParser refuses digits beyond the scale instead of rounding them.
func decimalParser(dt *arrow.Decimal128Type, b *array.Decimal128Builder) parser {
	return func(s string) error {
		_, fraction, _ := strings.Cut(s, ".")
		if len(strings.TrimRight(fraction, "0")) > int(dt.Scale) {
			return fmt.Errorf("more than %d digits after the point", dt.Scale)
		}
		v, err := decimal128.FromString(s, dt.Precision, dt.Scale)
		b.Append(v)
		return err
	}
}

var timestampLayouts = []string{
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02 15:04:05.999999999-07",
	"2006-01-02",
}

func parseTimestamp(s string) (time.Time, error) {
	if len(s) > 10 && s[10] == 'T' {
		s = s[:10] + " " + s[11:]
	}
	for _, layout := range timestampLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("not a timestamp")
}

func timestampParser(dt *arrow.TimestampType, b *array.TimestampBuilder) parser {
	return func(s string) error {
		t, err := parseTimestamp(s)
		if err != nil {
			return err
		}
		if t.Nanosecond()%int(dt.Unit.Multiplier()) != 0 {
			return fmt.Errorf("finer than %s", dt.Unit)
		}
		v, err := arrow.TimestampFromTime(t, dt.Unit)
		b.Append(v)
		return err
	}
}

func binaryParser(b *array.BinaryBuilder) parser {
	return func(s string) error {
		digits, ok := strings.CutPrefix(s, `\x`)
		if !ok {
			return errors.New(`no \x in front`)
		}
		v, err := hex.DecodeString(digits)
		b.Append(v)
		return err
	}
}

// inferType returns the narrowest of BIGINT, DOUBLE PRECISION, DATE, TIMESTAMP,
// BOOLEAN and TEXT that holds every sampled field of a column.
func inferType(rows [][]string, column int, null string) arrow.DataType {
	candidates := []struct {
		dt    arrow.DataType
		reads func(string) bool
	}{
		{arrow.PrimitiveTypes.Int64, func(s string) bool { _, err := strconv.ParseInt(s, 10, 64); return err == nil }},
		{arrow.PrimitiveTypes.Float64, func(s string) bool { _, err := strconv.ParseFloat(s, 64); return err == nil }},
		{arrow.FixedWidthTypes.Date32, func(s string) bool { _, err := time.Parse(time.DateOnly, s); return err == nil }},
		{arrow.FixedWidthTypes.Timestamp_us, func(s string) bool { _, err := parseTimestamp(s); return err == nil }},
		{arrow.FixedWidthTypes.Boolean, func(s string) bool { return s == "true" || s == "false" }},
	}
	for _, c := range candidates {
		seen, all := false, true
		for _, row := range rows {
			if row[column] == null {
				continue
			}
			seen = true
			if !c.reads(row[column]) {
				all = false
				break
			}
		}
		if seen && all {
			if ts, ok := c.dt.(*arrow.TimestampType); ok {
				return &arrow.TimestampType{Unit: ts.Unit} // without time zone
			}
			return c.dt
		}
	}
	return arrow.BinaryTypes.String
}
