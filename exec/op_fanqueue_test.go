package exec

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// oneKeyBatches are n batches of (key, sequence), in order of the sequence, which
// starts at from.
func oneKeyBatches(key int64, from, n int) []*columnar.Batch {
	var out []*columnar.Batch
	for i := range n {
		keys, seq := make([]int64, columnar.BatchRows), make([]int64, columnar.BatchRows)
		for k := range keys {
			keys[k], seq[k] = key, int64((from+i)*columnar.BatchRows+k)
		}
		out = append(out, &columnar.Batch{Len: len(keys), Cols: []*columnar.Vector{intVector(keys), intVector(seq)}})
	}
	return out
}

func intVector(vals []int64) *columnar.Vector {
	return &columnar.Vector{Type: catalog.BigInt, Len: len(vals), Data: columnar.Bytes(vals)}
}

// keysOfPartitions finds a key for each of two partitions.
func keysOfPartitions() [2]int64 {
	var keys [2]int64
	var found [2]bool
	h := partitionHasher{keys: []int{0}}
	for k := int64(1); !found[0] || !found[1]; k++ {
		p := newModulus(2).of(h.hash(intBatch(k))[0])
		keys[p], found[p] = k, true
	}
	return keys
}

// crossed is two producers in the order of their second column and two consumers
// that each merge one output of both. One producer has all rows of the first
// consumer before those of the second, the other one the other way round: each
// consumer waits for what comes behind rows that only the other one can take.
func crossed(batches int, env func() *Env) (merges []Operator, fans []*Fanout) {
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	keys := keysOfPartitions()
	outs := make([][]Operator, 2)
	for p := range 2 {
		rows := append(oneKeyBatches(keys[p], 0, batches), oneKeyBatches(keys[1-p], batches, batches)...)
		f := must(NewPartitioner(context.Background(), &memOp{schema: schema, batches: rows}, []int{0}, 2, 2, env()))
		fans = append(fans, f)
		for c, o := range f.Outputs() {
			outs[c] = append(outs[c], o)
		}
	}
	for _, inputs := range outs {
		merges = append(merges, must(newMerge(inputs, []planner.SortKey{{Column: 1}}, -1, env().Budget)))
	}
	return merges, fans
}

func TestMergesOfCrossedProducersEnd(t *testing.T) {
	const batches = 40
	for name, limit := range map[string]int64{"memory": 0, "disk": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget("query", limit, nil)
			dir := t.TempDir()
			spilled := &Env{Budget: budget, SpillDir: dir}
			merges, fans := crossed(batches, func() *Env { return spilled })
			parts, errs := consume(merges)
			for i, rows := range parts {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				if len(rows) != 2*batches*columnar.BatchRows {
					t.Fatalf("consumer %d has %d rows", i, len(rows))
				}
				if !slices.IsSortedFunc(rows, func(a, b row) int { return int(a[1].(int64) - b[1].(int64)) }) {
					t.Errorf("the rows of consumer %d are not in order", i)
				}
			}
			for _, f := range fans {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			mustBeEmpty(t, budget)
		})
	}
}

func TestFanoutSpillsWithinItsBound(t *testing.T) {
	for name, tc := range map[string]struct {
		env  func(dir string) *Env
		want sqlstate.Code
	}{
		"disk":   {func(dir string) *Env { return &Env{SpillDir: dir, MaxSpill: 100 << 10} }, sqlstate.DiskFull},
		"memory": {func(string) *Env { return &Env{} }, sqlstate.OutOfMemory},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget("query", 1<<20, nil)
			env := tc.env(t.TempDir())
			env.Budget = budget
			shared := env.Shared()
			merges, fans := crossed(200, func() *Env { return shared })
			var wg sync.WaitGroup
			errs := make([]error, len(merges))
			for i, m := range merges {
				wg.Go(func() { _, errs[i] = drainCtx(context.Background(), m) })
			}
			wg.Wait()
			if !slices.ContainsFunc(errs, func(err error) bool { return sqlstate.CodeOf(err) == tc.want }) {
				t.Errorf("errors %v", errs)
			}
			for _, f := range fans {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			mustBeEmpty(t, budget)
		})
	}
}

// A consumer that reads on, if slowly, sets the pace: nothing is put aside for
// it although another one has nothing to read.
func TestFanoutWaitsForReaders(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	key := keysOfPartitions()[0]
	budget := NewBudget("query", 0, nil)
	f := must(NewPartitioner(context.Background(), &memOp{schema: schema, batches: oneKeyBatches(key, 0, 60)}, []int{0}, 2, 2, &Env{Budget: budget}))
	f.patience = time.Hour
	parts, errs := consume(f.Outputs())
	if errs[0] != nil || errs[1] != nil || len(parts[0]) != 60*columnar.BatchRows || len(parts[1]) != 0 {
		t.Errorf("%d and %d rows, errors %v", len(parts[0]), len(parts[1]), errs)
	}
	if f.outputs[0].log != nil {
		t.Error("rows were put aside for a consumer that reads")
	}
	if peak, most := budget.Peak(), int64(8*columnar.BatchRows*32); peak > most {
		t.Errorf("%d bytes were held at once, more than %d", peak, most)
	}
	mustBeEmpty(t, budget)
}

// One consumer reads nothing until another one has read all, and leaves in the
// middle of what was put aside.
func TestFanoutConsumersReadOneAfterTheOther(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text, listType)
	for _, limit := range []int64{0, 600 << 10} {
		for _, leave := range []bool{false, true} {
			t.Run(fmt.Sprintf("limit %d leave %t", limit, leave), func(t *testing.T) {
				batches := newGenerator(3).batches(schema, 40000)
				budget := NewBudget("query", limit, nil)
				env := &Env{Budget: budget, SpillDir: t.TempDir()}
				f := must(NewTee(context.Background(), &memOp{schema: schema, batches: batches}, 2, 2, env))
				want := exactTexts(rowsOf(batches...))
				outs := f.Outputs()
				first, err := drainCtx(context.Background(), outs[0])
				if err != nil {
					t.Fatal(err)
				}
				equalTexts(t, exactTexts(first), want)
				if leave {
					for range 4 {
						if b, err := outs[1].Next(context.Background()); b == nil || err != nil {
							t.Fatal(b, err)
						}
					}
				} else {
					second, err := drainCtx(context.Background(), outs[1])
					if err != nil {
						t.Fatal(err)
					}
					equalTexts(t, exactTexts(second), want)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				mustBeEmpty(t, budget)
			})
		}
	}
}
