package worker

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/planner"
	"skein/storage"
)

// comparison is a comparison as the store knows it, and the same with its sides
// exchanged.
type comparison struct {
	op, flipped storage.Op
}

func comparisonOf(function string) (comparison, bool) {
	switch function {
	case "=":
		return comparison{storage.OpEqual, storage.OpEqual}, true
	case "<>":
		return comparison{storage.OpNotEqual, storage.OpNotEqual}, true
	case "<":
		return comparison{storage.OpLess, storage.OpGreater}, true
	case "<=":
		return comparison{storage.OpLessEqual, storage.OpGreaterEqual}, true
	case ">":
		return comparison{storage.OpGreater, storage.OpLess}, true
	case ">=":
		return comparison{storage.OpGreaterEqual, storage.OpLessEqual}, true
	}
	return comparison{}, false
}

// predicates extracts what rows can be skipped by from a scan's filter: columns
// compared with constants of exactly their types. Skipping is optional, so
// whatever is not surely understood is left out.
func predicates(scan *planner.TabletScan) []storage.Predicate {
	var out []storage.Predicate
	var walk func(planner.Expr)
	walk = func(e planner.Expr) {
		switch e := e.(type) {
		case *planner.Call:
			if e.Func == "and" {
				for _, arg := range e.Args {
					walk(arg)
				}
				return
			}
			if p, ok := callPredicate(scan, e); ok {
				out = append(out, p)
			}
		case *planner.InList:
			if p, ok := inPredicate(scan, e); ok {
				out = append(out, p)
			}
		}
	}
	walk(scan.Filter)
	return out
}

func callPredicate(scan *planner.TabletScan, e *planner.Call) (storage.Predicate, bool) {
	if len(e.Args) == 1 {
		return nullPredicate(scan, e)
	}
	c, ok := comparisonOf(e.Func)
	if !ok || len(e.Args) != 2 {
		return storage.Predicate{}, false
	}
	operand, constant, op := e.Args[0], e.Args[1], c.op
	if _, isLiteral := operand.(*planner.Literal); isLiteral {
		operand, constant, op = constant, operand, c.flipped
	}
	literal, ok := constant.(*planner.Literal)
	if !ok {
		return storage.Predicate{}, false
	}
	column, value, ok := comparable(scan, operand, literal)
	if !ok {
		return storage.Predicate{}, false
	}
	return storage.Predicate{Column: column, Op: op, Values: []any{value.Value}}, true
}

func nullPredicate(scan *planner.TabletScan, e *planner.Call) (storage.Predicate, bool) {
	column, ok := scanColumn(scan, e.Args[0])
	switch e.Func {
	case "is null":
		return storage.Predicate{Column: column, Op: storage.OpIsNull}, ok
	case "is not null":
		return storage.Predicate{Column: column, Op: storage.OpIsNotNull}, ok
	}
	return storage.Predicate{}, false
}

func inPredicate(scan *planner.TabletScan, e *planner.InList) (storage.Predicate, bool) {
	if e.Negate {
		return storage.Predicate{}, false
	}
	p := storage.Predicate{Op: storage.OpIn}
	for _, literal := range e.List {
		if literal.Value == nil {
			continue // x IN (..., NULL) is never true because of the NULL
		}
		column, value, ok := comparable(scan, e.Arg, literal)
		if !ok {
			return storage.Predicate{}, false
		}
		p.Column, p.Values = column, append(p.Values, value.Value)
	}
	return p, len(p.Values) > 0
}

// scanColumn returns the table ordinal that an expression reads as it is.
func scanColumn(scan *planner.TabletScan, e planner.Expr) (int, bool) {
	c, ok := e.(*planner.Column)
	if !ok || c.Index < 0 || c.Index >= len(scan.Projection) {
		return 0, false
	}
	ordinal := scan.Projection[c.Index]
	return ordinal, ordinal >= 0 // hidden columns are in no zone map
}

// comparable returns the column behind an operand, seen through casts that
// neither lose nor reorder values, and the constant in the column's type.
func comparable(scan *planner.TabletScan, operand planner.Expr, literal *planner.Literal) (int, *planner.Literal, bool) {
	for {
		cast, ok := operand.(*planner.Cast)
		if !ok {
			break
		}
		if !keepsOrder(cast.Arg.Type(), cast.DataType) {
			return 0, nil, false
		}
		operand = cast.Arg
	}
	column, ok := scanColumn(scan, operand)
	if !ok || literal.Value == nil {
		return 0, nil, false
	}
	dt := scan.Table.Columns[column].Type
	if dt.ID() == arrow.INTERVAL_MONTH_DAY_NANO || !catalog.KeyableType(dt) {
		return 0, nil, false // no order by which data could be skipped
	}
	value, ok := asType(literal, dt)
	return column, value, ok
}

// keepsOrder reports whether a cast maps every value to an equal one.
func keepsOrder(from, to arrow.DataType) bool {
	if arrow.TypeEqual(from, to) {
		return true
	}
	fromBits, fromInt := intBits(from)
	toBits, toInt := intBits(to)
	if fromInt && toInt {
		return fromBits <= toBits
	}
	f, fromDecimal := catalog.PublicType(from).(*arrow.Decimal128Type)
	t, toDecimal := catalog.PublicType(to).(*arrow.Decimal128Type)
	switch {
	case fromDecimal && toDecimal:
		return f.Scale <= t.Scale && f.Precision-f.Scale <= t.Precision-t.Scale
	case fromInt && toDecimal:
		// The widest integer of the type has this many digits.
		digits := map[int]int32{16: 5, 32: 10, 64: 19}[fromBits]
		return t.Precision-t.Scale >= digits
	}
	return false
}

func intBits(dt arrow.DataType) (int, bool) {
	switch dt.ID() {
	case arrow.INT16:
		return 16, true
	case arrow.INT32:
		return 32, true
	case arrow.INT64:
		return 64, true
	}
	return 0, false
}

// asType converts a constant to a column's type if it has an equal value there.
func asType(l *planner.Literal, dt arrow.DataType) (*planner.Literal, bool) {
	if arrow.TypeEqual(l.DataType, dt) {
		if f, ok := l.Value.(float64); ok && math.IsNaN(f) {
			return nil, false
		}
		return l, true
	}
	bits, toInt := intBits(dt)
	decimal, toDecimal := catalog.PublicType(dt).(*arrow.Decimal128Type)
	switch v := l.Value.(type) {
	case int64:
		if _, fromInt := intBits(l.DataType); !fromInt {
			return nil, false
		}
		if toInt {
			return &planner.Literal{Value: v, DataType: dt}, v<<(64-bits)>>(64-bits) == v
		}
		if toDecimal {
			return rescaled(decimal128.FromI64(v), 0, decimal, dt)
		}
	case decimal128.Num:
		from, ok := catalog.PublicType(l.DataType).(*arrow.Decimal128Type)
		if !ok {
			return nil, false
		}
		if toDecimal {
			return rescaled(v, from.Scale, decimal, dt)
		}
		if toInt {
			whole, err := v.Rescale(from.Scale, 0)
			if err != nil || !whole.FitsInPrecision(18) {
				return nil, false
			}
			return asType(&planner.Literal{Value: int64(whole.LowBits()), DataType: catalog.BigInt}, dt)
		}
	}
	return nil, false
}

// rescaled is a decimal at the scale of a column, if that is exact.
func rescaled(v decimal128.Num, scale int32, to *arrow.Decimal128Type, dt arrow.DataType) (*planner.Literal, bool) {
	out, err := v.Rescale(scale, to.Scale)
	if err != nil || !out.FitsInPrecision(to.Precision) {
		return nil, false
	}
	return &planner.Literal{Value: out, DataType: dt}, true
}
