package exec

import (
	"fmt"
	"testing"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// TestJoinBuiltByAllCores compares tables that several goroutines build with
// those that one does, for keys of both fixed-width shapes, unique and not.
func TestJoinBuiltByAllCores(t *testing.T) {
	const rows = parallelRows + 5000
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	for _, c := range []struct {
		on     int // key columns
		repeat int // every so manieth row repeats the key of an earlier one; 0 for none
	}{{1, 0}, {1, 10}, {2, 0}, {2, 10}} {
		t.Run(fmt.Sprintf("%d columns, repeat %d", c.on, c.repeat), func(t *testing.T) {
			key := func(i int) int64 {
				if c.repeat > 0 && i%c.repeat == 0 {
					i /= c.repeat
				}
				return int64(i) * 0x1234567 // too far apart for an array
			}
			side := func(step int) []*columnar.Batch {
				var out []*columnar.Batch
				for lo := 0; lo < rows; lo += columnar.BatchRows * step {
					n := min(columnar.BatchRows, (rows-lo+step-1)/step)
					out = append(out, &columnar.Batch{Len: n, Cols: []*columnar.Vector{
						benchInts(catalog.BigInt, n, func(i int) int64 { return key(lo + i*step) }),
						benchInts(catalog.BigInt, n, func(i int) int64 { return key(lo+i*step) % 1000 }),
					}})
				}
				return out
			}
			on := []planner.JoinKey{{}, {Left: 1, Right: 1}}[:c.on]
			op := &planner.HashJoin{Kind: planner.InnerJoin, On: on, Build: planner.BuildRight, Schema: joinSchema(schema, schema)}
			var want []string
			for _, parallelism := range []int{1, 3} {
				budget := NewBudget("query", 0, nil)
				parts := must(newJoinParts(op, []Operator{&memOp{schema: schema, batches: side(7)}}, []Operator{&memOp{schema: schema, batches: side(1)}},
					&Env{Parallelism: parallelism, Budget: budget}))
				got := exactTexts(drain(t, parts[0]))
				if parallelism == 1 {
					want = got
				}
				equalTexts(t, got, want)
				mustBeEmpty(t, budget)
			}
			if len(want) < rows/7 {
				t.Errorf("%d rows", len(want))
			}
		})
	}
}
