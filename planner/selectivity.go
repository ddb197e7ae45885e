package planner

import (
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Shares of rows that conditions are assumed to keep when statistics do not
// tell.
const (
	defaultEqual   = 0.05
	defaultRange   = 1.0 / 3
	defaultBetween = 0.15
	defaultPrefix  = 0.05
	defaultLike    = 0.1
	defaultNulls   = 0.05
	defaultOther   = 1.0 / 3
)

// selectivity is the share of rows, in [0, 1], for which the condition is
// true. Columns describe the condition's input.
func selectivity(e Expr, columns []columnEstimate) float64 {
	switch e := e.(type) {
	case *Literal:
		if b, ok := e.Value.(bool); ok && b {
			return 1
		}
		return 0
	case *Column:
		return 0.5
	case *InList:
		return inListSelectivity(e, columns)
	case *Call:
		return callSelectivity(e, columns)
	}
	return defaultOther
}

func callSelectivity(e *Call, columns []columnEstimate) float64 {
	switch e.Func {
	case "and":
		return andSelectivity(conjuncts(e), columns)
	case "or":
		miss := 1.0
		for _, d := range disjuncts(e) {
			miss *= 1 - selectivity(d, columns)
		}
		return 1 - miss
	case "not":
		return clampShare(1 - selectivity(e.Args[0], columns))
	case "is null":
		return nullShare(e.Args[0], columns)
	case "is not null":
		return 1 - nullShare(e.Args[0], columns)
	case "like", "ilike":
		return likeSelectivity(e)
	case "not like", "not ilike":
		return 1 - likeSelectivity(e)
	}
	if len(e.Args) != 2 {
		return defaultOther
	}
	switch e.Func {
	case "=", "is not distinct from":
		return equalSelectivity(e.Args[0], e.Args[1], columns)
	case "<>", "!=", "is distinct from":
		return 1 - equalSelectivity(e.Args[0], e.Args[1], columns)
	case "<", "<=", ">", ">=":
		if _, upper, share, ok := rangeBound(e, columns); ok {
			if upper {
				return share
			}
			return 1 - share
		}
		return defaultRange
	}
	return defaultOther
}

// andSelectivity multiplies independent conditions, but takes a lower and an
// upper bound of one column together.
func andSelectivity(conds []Expr, columns []columnEstimate) float64 {
	type bounds struct {
		low, high float64 // shares placed by statistics
		unplaced  int     // conditions without statistics
	}
	ranges := make(map[int]*bounds)
	var order []int // keeps the product, and with it plans, reproducible
	s := 1.0
	for _, c := range conds {
		column, upper, share, known := rangeColumn(c, columns)
		if column < 0 {
			s *= selectivity(c, columns)
			continue
		}
		b := ranges[column]
		if b == nil {
			b = &bounds{high: 1}
			ranges[column] = b
			order = append(order, column)
		}
		switch {
		case !known:
			b.unplaced++
		case upper:
			b.high = min(b.high, share)
		default:
			b.low = max(b.low, share)
		}
	}
	for _, column := range order {
		b := ranges[column]
		s *= max(b.high-b.low, 0.0001)
		switch b.unplaced {
		case 0:
		case 1:
			s *= defaultRange
		default:
			s *= defaultBetween
		}
	}
	return clampShare(s)
}

// rangeColumn finds the column that a condition bounds, -1 for other
// conditions, and whether statistics place the bound.
func rangeColumn(e Expr, columns []columnEstimate) (column int, upper bool, share float64, known bool) {
	c, ok := e.(*Call)
	if !ok || len(c.Args) != 2 {
		return -1, false, 0, false
	}
	switch c.Func {
	case "<", "<=", ">", ">=":
		return rangeBound(c, columns)
	}
	return -1, false, 0, false
}

// rangeBound places the constant of "column < constant" within the column's
// values: share of them lie below it.
func rangeBound(e *Call, columns []columnEstimate) (column int, upper bool, share float64, known bool) {
	col, lit, op := e.Args[0], e.Args[1], e.Func
	if _, ok := col.(*Literal); ok {
		col, lit, op = lit, col, flipComparison(op)
	}
	c, ok := col.(*Column)
	constant, isLiteral := lit.(*Literal)
	if !ok || !isLiteral {
		return -1, false, 0, false
	}
	upper = op == "<" || op == "<="
	stats := columns[c.Index]
	low, okLow := number(stats.min, c.DataType)
	high, okHigh := number(stats.max, c.DataType)
	at, okAt := number(constant.Value, constant.DataType)
	if !okLow || !okHigh || !okAt || high <= low {
		return c.Index, upper, 0, false
	}
	return c.Index, upper, clampShare((at - low) / (high - low)), true
}

func flipComparison(op string) string {
	switch op {
	case "<":
		return ">"
	case "<=":
		return ">="
	case ">":
		return "<"
	case ">=":
		return "<="
	}
	return op
}

func equalSelectivity(a, b Expr, columns []columnEstimate) float64 {
	d := max(distinctOf(a, columns), distinctOf(b, columns))
	if d == 0 {
		return defaultEqual
	}
	return clampShare(1 / float64(d))
}

func distinctOf(e Expr, columns []columnEstimate) uint64 {
	if c, ok := e.(*Column); ok {
		return columns[c.Index].distinct
	}
	return 0
}

func inListSelectivity(e *InList, columns []columnEstimate) float64 {
	one := defaultEqual
	if d := distinctOf(e.Arg, columns); d > 0 {
		one = 1 / float64(d)
	}
	s := clampShare(one * float64(len(e.List)))
	if e.Negate {
		return 1 - s
	}
	return s
}

func likeSelectivity(e *Call) float64 {
	if len(e.Args) < 2 {
		return defaultLike
	}
	lit, ok := e.Args[1].(*Literal)
	if !ok {
		return defaultLike
	}
	pattern, ok := lit.Value.(string)
	if ok && pattern != "" && !strings.ContainsAny(pattern[:1], "%_") {
		return defaultPrefix
	}
	return defaultLike
}

func nullShare(e Expr, columns []columnEstimate) float64 {
	if !e.Nullable() {
		return 0
	}
	if c, ok := e.(*Column); ok && columns[c.Index].nulls >= 0 {
		return clampShare(columns[c.Index].nulls)
	}
	return defaultNulls
}

// number maps a literal value onto the real line, where values of one type
// compare as their numbers do.
func number(v any, dt arrow.DataType) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case decimal128.Num:
		if d, ok := dt.(*arrow.Decimal128Type); ok {
			return v.ToFloat64(d.Scale), true
		}
	case string:
		// The first bytes order most strings.
		var f float64
		for i := range 6 {
			f *= 256
			if i < len(v) {
				f += float64(v[i])
			}
		}
		return f, true
	}
	return 0, false
}

func clampShare(s float64) float64 { return min(max(s, 0), 1) }
