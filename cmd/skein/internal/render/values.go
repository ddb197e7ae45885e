package render

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"
)

// text returns the text of one value that is not NULL, as PostgreSQL prints it.
func text(column arrow.Array, row int) string {
	switch c := column.(type) {
	case *array.String:
		return c.Value(row)
	case *array.Boolean:
		return strconv.FormatBool(c.Value(row))
	case *array.Int16:
		return strconv.FormatInt(int64(c.Value(row)), 10)
	case *array.Int32:
		return strconv.FormatInt(int64(c.Value(row)), 10)
	case *array.Int64:
		return strconv.FormatInt(c.Value(row), 10)
	case *array.Float32:
		return float(float64(c.Value(row)), 32)
	case *array.Float64:
		return float(c.Value(row), 64)
	case *array.Decimal128:
		return c.Value(row).ToString(c.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Date32:
		return c.Value(row).ToTime().Format(time.DateOnly)
	case *array.Time64:
		return clock(c.Value(row).ToTime(c.DataType().(*arrow.Time64Type).Unit))
	case *array.Timestamp:
		return timestamp(c, row)
	case *array.MonthDayNanoInterval:
		return interval(c.Value(row))
	case *array.Binary:
		return `\x` + hex.EncodeToString(c.Value(row))
	case *array.FixedSizeBinary:
		if id, err := uuid.FromBytes(c.Value(row)); err == nil {
			return id.String()
		}
		return `\x` + hex.EncodeToString(c.Value(row))
	case array.ListLike:
		return list(c, row)
	}
	return column.ValueStr(row)
}

func float(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case v == 0 || math.Abs(v) >= 1e-4 && math.Abs(v) < 1e15:
		return strconv.FormatFloat(v, 'f', -1, bits)
	}
	return strconv.FormatFloat(v, 'e', -1, bits)
}

func clock(t time.Time) string { return t.Format("15:04:05.999999999") }

func timestamp(c *array.Timestamp, row int) string {
	dt := c.DataType().(*arrow.TimestampType)
	t := c.Value(row).ToTime(dt.Unit)
	if dt.TimeZone == "" {
		return t.Format("2006-01-02 15:04:05.999999999")
	}
	return t.Format("2006-01-02 15:04:05.999999999") + "+00"
}

func interval(v arrow.MonthDayNanoInterval) string {
	var parts []string
	add := func(n int64, one, many string) {
		if n == 1 {
			parts = append(parts, "1 "+one)
		} else if n != 0 {
			parts = append(parts, strconv.FormatInt(n, 10)+" "+many)
		}
	}
	add(int64(v.Months/12), "year", "years")
	add(int64(v.Months%12), "mon", "mons")
	add(int64(v.Days), "day", "days")
	if v.Nanoseconds != 0 || len(parts) == 0 {
		parts = append(parts, duration(v.Nanoseconds))
	}
	return strings.Join(parts, " ")
}

// duration prints nanoseconds as hh:mm:ss with the fraction that is needed.
func duration(nanos int64) string {
	sign, n := "", uint64(nanos)
	if nanos < 0 {
		sign, n = "-", -n
	}
	s := fmt.Sprintf("%s%02d:%02d:%02d", sign, n/3600e9, n/60e9%60, n/1e9%60)
	if fraction := n % 1e9; fraction != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%09d", fraction), "0")
	}
	return s
}

func list(c array.ListLike, row int) string {
	start, end := c.ValueOffsets(row)
	values := c.ListValues()
	parts := make([]string, 0, end-start)
	for i := int(start); i < int(end); i++ {
		if values.IsNull(i) {
			parts = append(parts, "NULL")
			continue
		}
		item := text(values, i)
		if item == "" || strings.ContainsAny(item, `{}",\ `) || strings.EqualFold(item, "null") {
			item = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(item) + `"`
		}
		parts = append(parts, item)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// appendJSON appends one value as JSON. Numbers keep all their digits; values
// that JSON has no form for become strings.
func appendJSON(dst []byte, column arrow.Array, row int) ([]byte, error) {
	if column.IsNull(row) {
		return append(dst, "null"...), nil
	}
	switch c := column.(type) {
	case *array.Boolean, *array.Int16, *array.Int32, *array.Int64, *array.Decimal128:
		return append(dst, text(column, row)...), nil
	case *array.Float32:
		return jsonFloat(dst, float64(c.Value(row)), 32), nil
	case *array.Float64:
		return jsonFloat(dst, c.Value(row), 64), nil
	case *array.Struct:
		return jsonObject(dst, c.DataType().(*arrow.StructType).Fields(), c.Field, row)
	case array.ListLike:
		return jsonList(dst, c, row)
	}
	quoted, err := json.Marshal(text(column, row))
	return append(dst, quoted...), err
}

func jsonFloat(dst []byte, v float64, bits int) []byte {
	s := float(v, bits)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.AppendQuote(dst, s)
	}
	return append(dst, s...)
}

func jsonObject(dst []byte, fields []arrow.Field, column func(int) arrow.Array, row int) ([]byte, error) {
	dst = append(dst, '{')
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, name...), ':')
		if dst, err = appendJSON(dst, column(i), row); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func jsonList(dst []byte, c array.ListLike, row int) ([]byte, error) {
	start, end := c.ValueOffsets(row)
	dst = append(dst, '[')
	for i := int(start); i < int(end); i++ {
		if i > int(start) {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendJSON(dst, c.ListValues(), i); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}
