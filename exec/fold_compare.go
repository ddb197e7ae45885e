package exec

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
)

// narrowComparison rewrites "CAST(x AS wider) op constant" to "x op' constant",
// so that scans can compare, and prune by, the stored values. It covers dates
// compared as timestamps and integers compared as wider integers, and leaves
// comparisons alone that no rewritten constant can express.
func narrowComparison(c *planner.Call) (planner.Expr, bool) {
	op, ok := comparisonOf(c.Func)
	if !ok || len(c.Args) != 2 {
		return nil, false
	}
	cast, isCast := c.Args[0].(*planner.Cast)
	lit, isLit := c.Args[1].(*planner.Literal)
	if !isCast || !isLit {
		if cast, isCast = c.Args[1].(*planner.Cast); !isCast {
			return nil, false
		}
		if lit, isLit = c.Args[0].(*planner.Literal); !isLit {
			return nil, false
		}
		op = op.flip()
	}
	value, isInt := lit.Value.(int64)
	if !isInt {
		return nil, false
	}
	from, to := kindOf(cast.Arg.Type()), kindOf(cast.DataType)
	exact := true
	switch {
	case from == kDate && (to == kTimestamp || to == kTimestampTZ) && !overflowsUnit(cast.DataType):
		days, rest := splitDay(value, unitsPerSecond(cast.DataType)*secondsPerDay)
		value, exact = days, rest == 0
	case from.isInteger() && to.isInteger() && from < to:
	default:
		return nil, false
	}
	if !exact {
		switch op {
		case cmpEQ, cmpNE:
			return nil, false
		case cmpLT: // before noon of a day is on that day or earlier
			op = cmpLE
		case cmpGE:
			op = cmpGT
		}
	}
	if !fitsKind(value, from) {
		return nil, false
	}
	return &planner.Call{
		Func:     comparisonName(op),
		Args:     []planner.Expr{cast.Arg, &planner.Literal{Value: value, DataType: catalog.PublicType(cast.Arg.Type())}},
		DataType: c.DataType, Null: c.Null,
	}, true
}

// overflowsUnit reports a resolution in which some dates have no timestamp, so
// that dropping the cast would drop its error.
func overflowsUnit(dt arrow.DataType) bool { return unitsPerSecond(dt) > 1_000_000 }

func fitsKind(x int64, k kind) bool {
	switch k {
	case kInt2:
		return x == int64(int16(x))
	case kInt4, kDate:
		return x >= math.MinInt32 && x <= math.MaxInt32
	}
	return true
}

func comparisonName(op comparison) string {
	return [...]string{cmpEQ: "=", cmpNE: "<>", cmpLT: "<", cmpLE: "<=", cmpGT: ">", cmpGE: ">="}[op]
}
