package bind

import (
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// constant binds a constant of the grammar. Strings and NULL are untyped.
func (b *binder) constant(c *pgquery.A_Const) (planner.Expr, error) {
	if c.Isnull {
		return b.at(&untyped{null: true}, c.Location), nil
	}
	switch v := c.Val.(type) {
	case *pgquery.A_Const_Ival:
		return b.at(&planner.Literal{Value: int64(v.Ival.Ival), DataType: catalog.Integer}, c.Location), nil
	case *pgquery.A_Const_Boolval:
		return b.at(&planner.Literal{Value: v.Boolval.Boolval, DataType: catalog.Boolean}, c.Location), nil
	case *pgquery.A_Const_Sval:
		return b.at(&untyped{text: v.Sval.Sval}, c.Location), nil
	case *pgquery.A_Const_Fval:
		l, ok := numericLiteral(v.Fval.Fval)
		if !ok {
			return nil, b.errorAt(sqlstate.NumericOutOfRange, c.Location,
				"the number %s has more than %d digits", v.Fval.Fval, catalog.MaxDecimalPrecision).
				WithHint("Write it with an exponent or as a string cast to double precision.")
		}
		return b.at(l, c.Location), nil
	}
	return nil, b.unsupported(c.Location, "a bit string constant")
}

// numericLiteral types a numeric constant that is not a 32-bit integer: BIGINT
// where it fits, else DECIMAL of just its digits. Only a constant written with
// an exponent may become DOUBLE, when DECIMAL cannot hold it.
func numericLiteral(text string) (*planner.Literal, bool) {
	plain := strings.ReplaceAll(text, "_", "")
	if i, err := strconv.ParseInt(text, 0, 64); err == nil && !leadingZero(plain) {
		return integerLiteral(i), true
	}
	if i, err := strconv.ParseInt(plain, 10, 64); err == nil {
		return integerLiteral(i), true
	}
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(plain), "e")
	shift := 0
	if scientific {
		var err error
		if shift, err = strconv.Atoi(exponent); err != nil {
			shift = math.MaxInt32
		}
	}
	if l, ok := decimalLiteral(mantissa, shift); ok {
		return l, true
	}
	if scientific {
		f, err := strconv.ParseFloat(plain, 64)
		return &planner.Literal{Value: f, DataType: catalog.Double}, err == nil
	}
	return nil, false
}

// leadingZero reports a decimal constant such as 017, which Go would read as
// octal.
func leadingZero(text string) bool {
	text = strings.TrimPrefix(text, "-")
	return len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9'
}

func integerLiteral(i int64) *planner.Literal {
	dt := catalog.BigInt
	if i == int64(int32(i)) {
		dt = catalog.Integer
	}
	return &planner.Literal{Value: i, DataType: dt}
}

// decimalLiteral is the DECIMAL of the digits written, times 10^shift.
func decimalLiteral(mantissa string, shift int) (*planner.Literal, bool) {
	negative := strings.HasPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	scale := len(fraction) - shift
	if scale < 0 && digits != "" {
		if -scale > catalog.MaxDecimalPrecision {
			return nil, false
		}
		digits += strings.Repeat("0", -scale)
	}
	scale = max(scale, 0)
	precision := max(len(digits), scale, 1)
	if precision > catalog.MaxDecimalPrecision {
		return nil, false
	}
	if digits == "" {
		digits = "0"
	}
	if negative {
		digits = "-" + digits
	}
	num, err := decimal128.FromString(digits, catalog.MaxDecimalPrecision, 0)
	if err != nil {
		return nil, false
	}
	return &planner.Literal{Value: num, DataType: catalog.Decimal(precision, scale)}, true
}

// minimalDecimal is an integer constant as the DECIMAL of its digits.
func minimalDecimal(l *planner.Literal) *planner.Literal {
	i, ok := l.Value.(int64)
	if !ok {
		return &planner.Literal{DataType: catalog.Decimal(1, 0)}
	}
	digits := len(strings.TrimPrefix(strconv.FormatInt(i, 10), "-"))
	return &planner.Literal{Value: decimal128.FromI64(i), DataType: catalog.Decimal(digits, 0)}
}

// exactly converts a constant to another type if that changes nothing about
// its value, so that the other side of a comparison need not be converted.
func exactly(l *planner.Literal, dt arrow.DataType) (*planner.Literal, bool) {
	if arrow.TypeEqual(l.DataType, dt) {
		return l, true
	}
	if l.Value == nil {
		return &planner.Literal{DataType: dt}, true
	}
	switch v := l.Value.(type) {
	case int64:
		if isInteger(l.DataType) {
			return exactlyInteger(v, dt)
		}
		if from, ok := l.DataType.(*arrow.TimestampType); ok && from.TimeZone == "" && dt.ID() == arrow.DATE32 {
			day := int64(86400) * unitsPerSecond(from.Unit)
			return &planner.Literal{Value: v / day, DataType: dt}, v%day == 0
		}
	case decimal128.Num:
		return exactlyDecimal(v, l.DataType.(*arrow.Decimal128Type), dt)
	}
	return nil, false
}

func exactlyInteger(v int64, dt arrow.DataType) (*planner.Literal, bool) {
	switch t := dt.(type) {
	case *arrow.Int16Type:
		return &planner.Literal{Value: v, DataType: dt}, v == int64(int16(v))
	case *arrow.Int32Type:
		return &planner.Literal{Value: v, DataType: dt}, v == int64(int32(v))
	case *arrow.Int64Type:
		return &planner.Literal{Value: v, DataType: dt}, true
	case *arrow.Float64Type:
		f := float64(v)
		return &planner.Literal{Value: f, DataType: dt}, math.Abs(f) <= 1<<53
	case *arrow.Decimal128Type:
		return exactlyDecimal(decimal128.FromI64(v), &arrow.Decimal128Type{Precision: 19}, t)
	}
	return nil, false
}

func exactlyDecimal(v decimal128.Num, from *arrow.Decimal128Type, dt arrow.DataType) (*planner.Literal, bool) {
	switch t := dt.(type) {
	case *arrow.Decimal128Type:
		moved, err := v.Rescale(from.Scale, t.Scale)
		return &planner.Literal{Value: moved, DataType: dt}, err == nil && moved.FitsInPrecision(t.Precision)
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		whole, err := v.Rescale(from.Scale, 0)
		if err != nil || !whole.FitsInPrecision(18) {
			return nil, false
		}
		return exactlyInteger(int64(whole.LowBits()), dt)
	}
	return nil, false
}

func unitsPerSecond(unit arrow.TimeUnit) int64 {
	switch unit {
	case arrow.Second:
		return 1
	case arrow.Millisecond:
		return 1e3
	case arrow.Microsecond:
		return 1e6
	}
	return 1e9
}

// numericText reads a string constant cast to NUMERIC as the DECIMAL of its
// digits.
func numericText(text string) (*planner.Literal, bool) {
	text = strings.TrimSpace(text)
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Count(digits, ".") > 1 || strings.Trim(digits, "0123456789.") != "" || digits == "." {
		return nil, false
	}
	return decimalLiteral(text, 0)
}
