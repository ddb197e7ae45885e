// Package compare tells whether two query results are the same: exact values,
// except for floating point, in any order, except for the columns that the
// query orders by.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

// tolerance is the relative difference that floating-point values may have:
// engines add them up in different orders.
const tolerance = 1e-9

// Value is one of nil, *big.Rat (integers and decimals), float64, string or
// bool; dates and times are strings.
type Value = any

// Rows are the rows of one result.
type Rows [][]Value

// Difference returns the first difference between got and want, "" if there is
// none. ordered lists the columns whose order counts.
func Difference(got, want Rows, ordered []int) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d rows, want %d", len(got), len(want))
	}
	for i := range got {
		if len(got[i]) != len(want[i]) {
			return fmt.Sprintf("%d columns, want %d", len(got[i]), len(want[i]))
		}
		for _, c := range ordered {
			if !equal(got[i][c], want[i][c]) {
				return fmt.Sprintf("row %d, ordered column %d: %s, want %s", i+1, c+1, text(got[i][c]), text(want[i][c]))
			}
		}
	}
	got, want = sorted(got), sorted(want)
	for i := range got {
		for c := range got[i] {
			if !equal(got[i][c], want[i][c]) {
				return fmt.Sprintf("sorted row %d, column %d: %s, want %s", i+1, c+1, text(got[i][c]), text(want[i][c]))
			}
		}
	}
	return ""
}

func equal(a, b Value) bool {
	x, xFloat := a.(float64)
	y, yFloat := b.(float64)
	if xFloat != yFloat { // an exact value on one side
		if r, ok := a.(*big.Rat); ok && !xFloat {
			x, _ = r.Float64()
			xFloat = true
		}
		if r, ok := b.(*big.Rat); ok && !yFloat {
			y, _ = r.Float64()
			yFloat = true
		}
	}
	if xFloat && yFloat {
		return x == y || math.IsNaN(x) && math.IsNaN(y) ||
			math.Abs(x-y) <= tolerance*math.Max(math.Abs(x), math.Abs(y))
	}
	p, ok := a.(*big.Rat)
	q, ok2 := b.(*big.Rat)
	if ok && ok2 {
		return p.Cmp(q) == 0
	}
	return a == b
}

// sorted orders rows by their exact columns first: floating-point ones may
// differ in the last digits and decide only among rows equal otherwise.
func sorted(rows Rows) Rows {
	if len(rows) == 0 {
		return rows
	}
	type keyed struct {
		key string
		row []Value
	}
	all := make([]keyed, len(rows))
	for i, row := range rows {
		var exact, inexact strings.Builder
		for _, v := range row {
			if f, ok := v.(float64); ok {
				if f == 0 {
					f = 0 // not -0, which is equal to it
				}
				fmt.Fprintf(&inexact, "%.11e\x00", f)
				exact.WriteString("\x01\x00") // a float is here, no NULL
			} else {
				exact.WriteString(text(v) + "\x00")
			}
		}
		all[i] = keyed{exact.String() + inexact.String(), row}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	out := make(Rows, len(rows))
	for i, k := range all {
		out[i] = k.row
	}
	return out
}

func text(v Value) string {
	if r, ok := v.(*big.Rat); ok {
		return r.RatString()
	}
	if v == 0.0 {
		return "0" // not -0
	}
	return fmt.Sprint(v)
}

// List is the text of a list of values.
func List(values []Value) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = text(v)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// Interval is an interval as both engines compare it: a month is 30 days, a day
// 24 hours, and values that are equal may stand for each other.
func Interval(months, days, micros int64) string {
	total := big.NewInt(months*30 + days)
	total.Mul(total, big.NewInt(86_400_000_000))
	return "interval of " + total.Add(total, big.NewInt(micros)).String() + " us"
}
