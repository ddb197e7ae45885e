package compare

import (
	"math"
	"math/big"
	"strings"
	"testing"
)

func rat(s string) *big.Rat {
	r, _ := new(big.Rat).SetString(s)
	return r
}

func TestDifference(t *testing.T) {
	for _, tc := range []struct {
		name      string
		got, want Rows
		ordered   []int
		diff      string
	}{
		{"equal", Rows{{rat("1.50"), "a", nil}}, Rows{{rat("1.5"), "a", nil}}, []int{0}, ""},
		{"any order", Rows{{"a"}, {"b"}}, Rows{{"b"}, {"a"}}, nil, ""},
		{"wrong order", Rows{{"a"}, {"b"}}, Rows{{"b"}, {"a"}}, []int{0}, "row 1, ordered column 1: a, want b"},
		{"ties in any order", Rows{{"a", "x"}, {"a", "y"}}, Rows{{"a", "y"}, {"a", "x"}}, []int{0}, ""},
		{"floats", Rows{{1.0000000001}}, Rows{{1.0}}, []int{0}, ""},
		{"floats too far", Rows{{1.00001}}, Rows{{1.0}}, nil, "1.00001, want 1"},
		{"minus zero", Rows{{-1 / math.Inf(1), "b"}, {0.0, "a"}}, Rows{{0.0, "b"}, {0.0, "a"}}, nil, ""},
		{"null and float in either column", Rows{{nil, 1.5}, {1.5, nil}}, Rows{{1.5, nil}, {nil, 1.5}}, nil, ""},
		{"close floats", Rows{{29.0}, {28.999999}}, Rows{{28.999999}, {29.0}}, nil, ""},
		{"lists", Rows{{List([]Value{-1 / math.Inf(1), nil})}}, Rows{{List([]Value{0.0, nil})}}, nil, ""},
		{"intervals", Rows{{Interval(1, 0, 0)}}, Rows{{Interval(0, 29, 86_400_000_000)}}, nil, ""},
		{"other intervals", Rows{{Interval(1, 0, 0)}}, Rows{{Interval(0, 31, 0)}}, nil, "want interval"},
		{"decimal against float", Rows{{rat("0.1")}}, Rows{{0.1}}, nil, ""},
		{"decimals are exact", Rows{{rat("1.000000000001")}}, Rows{{rat("1")}}, nil, "want 1"},
		{"null against value", Rows{{nil}}, Rows{{"a"}}, nil, "<nil>, want a"},
		{"number against text", Rows{{rat("1")}}, Rows{{"1"}}, nil, "want 1"},
		{"row count", Rows{}, Rows{{"a"}}, nil, "0 rows, want 1"},
		{"column count", Rows{{"a", "b"}}, Rows{{"a"}}, nil, "2 columns, want 1"},
		{"duplicates count", Rows{{"a"}, {"a"}, {"b"}}, Rows{{"a"}, {"b"}, {"b"}}, nil, "sorted row 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Difference(tc.got, tc.want, tc.ordered)
			if (got == "") != (tc.diff == "") || !strings.Contains(got, tc.diff) {
				t.Errorf("difference is %q, want %q", got, tc.diff)
			}
		})
	}
}
