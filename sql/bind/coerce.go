package bind

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
	"skein/sqlstate"
)

// integerRank orders the numeric types by PostgreSQL's preference; 0 is not
// numeric.
func numericRank(dt arrow.DataType) int {
	switch dt.ID() {
	case arrow.INT16:
		return 1
	case arrow.INT32:
		return 2
	case arrow.INT64:
		return 3
	case arrow.DECIMAL128:
		return 4
	case arrow.FLOAT32:
		return 5
	case arrow.FLOAT64:
		return 6
	}
	return 0
}

func isNumeric(dt arrow.DataType) bool { return numericRank(dt) > 0 }

func isInteger(dt arrow.DataType) bool { r := numericRank(dt); return r >= 1 && r <= 3 }

func isDecimal(dt arrow.DataType) bool { return dt.ID() == arrow.DECIMAL128 }

func isFloat(dt arrow.DataType) bool { return numericRank(dt) >= 5 }

func isText(dt arrow.DataType) bool { return dt.ID() == arrow.STRING }

// integerDecimal is the DECIMAL that holds every value of an integer type.
func integerDecimal(dt arrow.DataType) *arrow.Decimal128Type {
	switch dt.ID() {
	case arrow.INT16:
		return &arrow.Decimal128Type{Precision: 5}
	case arrow.INT32:
		return &arrow.Decimal128Type{Precision: 10}
	}
	return &arrow.Decimal128Type{Precision: 19}
}

// commonType is the type two types meet in, as in CASE, UNION and
// comparisons; false if there is none.
func commonType(a, b arrow.DataType) (arrow.DataType, bool) {
	switch {
	case arrow.TypeEqual(a, b):
		return a, true
	case isNumeric(a) && isNumeric(b):
		return commonNumeric(a, b), true
	}
	return commonTemporal(a, b)
}

func commonNumeric(a, b arrow.DataType) arrow.DataType {
	switch {
	case isFloat(a) || isFloat(b):
		return catalog.Double
	case isDecimal(a) || isDecimal(b):
		x, y := asDecimal(a), asDecimal(b)
		scale := max(x.Scale, y.Scale)
		whole := max(x.Precision-x.Scale, y.Precision-y.Scale)
		return &arrow.Decimal128Type{Precision: min(whole+scale, catalog.MaxDecimalPrecision), Scale: scale}
	case numericRank(a) > numericRank(b):
		return a
	}
	return b
}

func asDecimal(dt arrow.DataType) *arrow.Decimal128Type {
	if d, ok := dt.(*arrow.Decimal128Type); ok {
		return d
	}
	return integerDecimal(dt)
}

// commonTemporal joins DATE, TIMESTAMP and TIMESTAMPTZ, in this order, at the
// finer of their units.
func commonTemporal(a, b arrow.DataType) (arrow.DataType, bool) {
	x, xStamp := a.(*arrow.TimestampType)
	y, yStamp := b.(*arrow.TimestampType)
	switch {
	case xStamp && yStamp:
		out := &arrow.TimestampType{Unit: max(x.Unit, y.Unit), TimeZone: x.TimeZone}
		if out.TimeZone == "" {
			out.TimeZone = y.TimeZone
		}
		return out, true
	case xStamp && b.ID() == arrow.DATE32:
		return a, true
	case yStamp && a.ID() == arrow.DATE32:
		return b, true
	}
	return nil, false
}

// unify converts expressions to their common type. what names the construct
// for errors.
func (b *binder) unify(what string, exprs []planner.Expr) ([]planner.Expr, arrow.DataType, error) {
	var common arrow.DataType
	decimals := anyDecimal(exprs)
	for _, e := range exprs {
		if isUntyped(e) {
			continue
		}
		dt := e.Type()
		if l, ok := e.(*planner.Literal); ok && isInteger(dt) && (common != nil && isDecimal(common) || decimals) {
			dt = minimalDecimal(l).DataType
		}
		if common == nil {
			common = dt
			continue
		}
		joined, ok := commonType(common, dt)
		if !ok {
			return nil, nil, b.errorAt(sqlstate.DatatypeMismatch, b.where(e), "%s types %s cannot be matched", what, typesNamed(common, dt))
		}
		common = joined
	}
	if common == nil {
		common = catalog.Text
	}
	out := make([]planner.Expr, len(exprs))
	for i, e := range exprs {
		var err error
		if out[i], err = b.convert(e, common); err != nil {
			return nil, nil, err
		}
	}
	return out, common, nil
}

func anyDecimal(exprs []planner.Expr) bool {
	for _, e := range exprs {
		if !isUntyped(e) && isDecimal(e.Type()) {
			return true
		}
	}
	return false
}

// convert makes an expression be of a type, by a cast if need be; that
// the cast is allowed here is the caller's business.
func (b *binder) convert(e planner.Expr, dt arrow.DataType) (planner.Expr, error) {
	if u, ok := e.(*untyped); ok {
		settled, err := b.settle(u, dt)
		if err != nil {
			return nil, err
		}
		e = settled
	}
	if arrow.TypeEqual(e.Type(), dt) || dt.ID() == arrow.NULL {
		return e, nil
	}
	location := b.where(e)
	if l, ok := e.(*planner.Literal); ok {
		if same, ok := exactly(l, dt); ok {
			return b.at(same, location), nil
		}
	}
	cast := b.cast(e, dt, location)
	if _, ok := e.(*planner.Literal); ok {
		return b.fold(cast)
	}
	return cast, nil
}

// implicit reports whether a value becomes the other type without being asked.
func implicit(from, to arrow.DataType) bool {
	if arrow.TypeEqual(from, to) || from.ID() == arrow.NULL {
		return true
	}
	if isNumeric(from) && isNumeric(to) {
		return numericRank(from) <= numericRank(to)
	}
	joined, ok := commonTemporal(from, to)
	return ok && arrow.TypeEqual(joined, to)
}

// assignable reports whether a value may be stored in a column of a type.
func assignable(from, to arrow.DataType) bool {
	switch {
	case implicit(from, to), isNumeric(from) && isNumeric(to):
		return true
	case isText(to):
		return exec.CanCast(from, to, false) || exec.CanCast(from, to, true)
	}
	_, temporal := commonTemporal(from, to)
	return temporal
}

// assign converts a value to a column's type by PostgreSQL's rules for storing.
func (b *binder) assign(e planner.Expr, c *catalog.Column) (planner.Expr, error) {
	if !isUntyped(e) && !assignable(e.Type(), c.Type) {
		return nil, b.errorAt(sqlstate.DatatypeMismatch, b.where(e),
			"column %q is of type %s but the expression is of type %s", c.Name, catalog.TypeName(c.Type), catalog.TypeName(e.Type())).
			WithHint("Cast the expression, as in CAST(... AS %s).", catalog.TypeName(c.Type))
	}
	return b.convert(e, c.Type)
}

// toBoolean converts a condition; what names where it stands.
func (b *binder) toBoolean(e planner.Expr, what string) (planner.Expr, error) {
	if !isUntyped(e) && e.Type().ID() != arrow.BOOL {
		return nil, b.errorAt(sqlstate.DatatypeMismatch, b.where(e),
			"the argument of %s must be of type boolean, not %s", what, catalog.TypeName(e.Type()))
	}
	return b.convert(e, catalog.Boolean)
}

// explicitCast is CAST(e AS t).
func (b *binder) explicitCast(e planner.Expr, t sqlType, location int32) (planner.Expr, error) {
	dt := t.DataType
	if u, ok := e.(*untyped); ok {
		if u.text != "" && t.interval != "" {
			text, err := b.intervalText(u.text, t.interval, location)
			if err != nil {
				return nil, err
			}
			e = b.at(&untyped{text: text}, b.where(u))
		}
	} else {
		if t.unbounded {
			dt = unboundedNumeric(e)
		}
		if !arrow.TypeEqual(e.Type(), dt) && !exec.CanCast(e.Type(), dt, true) {
			return nil, b.errorAt(sqlstate.CannotCoerce, location, "type %s cannot be cast to %s", catalog.TypeName(e.Type()), catalog.TypeName(dt))
		}
		if t.interval != "" {
			return nil, b.unsupported(location, "a cast to a single field of an interval")
		}
	}
	if u, ok := e.(*untyped); ok && t.unbounded && u.param == 0 && !u.null {
		if l, ok := numericText(u.text); ok {
			return b.at(l, location), nil
		}
	}
	converted, err := b.convert(e, dt)
	if err != nil {
		return nil, err
	}
	if t.maxLength > 0 {
		// A cast to VARCHAR(n) cuts, unlike storing into such a column.
		length := &planner.Literal{Value: int64(t.maxLength), DataType: catalog.Integer}
		return b.call("left", []planner.Expr{converted, b.at(length, location)}, location)
	}
	return converted, nil
}

// unboundedNumeric is the type that CAST(e AS NUMERIC) yields: the digits of e
// where its type bounds them.
func unboundedNumeric(e planner.Expr) arrow.DataType {
	switch dt := e.Type(); {
	case isDecimal(dt):
		return dt
	case isInteger(dt):
		if l, ok := e.(*planner.Literal); ok {
			return minimalDecimal(l).DataType
		}
		return integerDecimal(dt)
	}
	return catalog.Decimal(defaultPrecision, defaultScale)
}
