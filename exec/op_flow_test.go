package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func TestLimitMatchesOracle(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text)
	for seed := range uint64(40) {
		g := newGenerator(seed)
		batches := g.batches(schema, g.IntN(9000))
		rows := rowsOf(batches...)
		offset, limit := g.IntN(len(rows)+10), g.IntN(len(rows)+10)-1
		want := rows[min(offset, len(rows)):]
		if limit >= 0 {
			want = want[:min(limit, len(want))]
		}
		closed := 0
		got := drain(t, newLimit(&memOp{schema: schema, batches: batches, closed: &closed}, int64(limit), int64(offset)))
		equalTexts(t, exactTexts(got), exactTexts(want))
		if closed != 1 {
			t.Errorf("seed %d: the input was closed %d times", seed, closed)
		}
	}
}

func TestLimitStopsEarly(t *testing.T) {
	closed := 0
	endless := func() Operator {
		return &memOp{schema: opSchema(catalog.BigInt), batches: []*columnar.Batch{intBatch(1, 2, 3)}, endless: true, closed: &closed}
	}
	op := newLimit(newUnion([]Operator{endless(), endless(), endless()}), 10, 5)
	total := 0
	for {
		b, err := op.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		total += b.Rows()
	}
	if total != 10 || closed != 3 {
		t.Errorf("%d rows, %d inputs closed before Close", total, closed)
	}
	if err := op.Close(); err != nil || closed != 3 {
		t.Errorf("error %v, closed %d times", err, closed)
	}
}

func TestCompactKeepsOrder(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text, listType)
	for seed := range uint64(10) {
		g := newGenerator(seed)
		var batches []*columnar.Batch
		for range g.IntN(40) {
			batches = append(batches, g.batches(schema, 1+g.IntN(40)*g.IntN(40))...)
		}
		budget := NewBudget("query", 0, nil)
		got := drain(t, must(newCompact(&memOp{schema: schema, batches: batches}, budget)))
		equalTexts(t, exactTexts(got), exactTexts(rowsOf(batches...)))
		mustBeEmpty(t, budget)
	}
}

func TestUnionReportsFirstError(t *testing.T) {
	failure := sqlstate.New(sqlstate.DivisionByZero, "division by zero")
	schema := opSchema(catalog.BigInt)
	closed := 0
	parts := []Operator{
		&memOp{schema: schema, batches: []*columnar.Batch{intBatch(1)}, endless: true, closed: &closed},
		&memOp{schema: schema, batches: []*columnar.Batch{intBatch(1)}, failAt: failure, closed: &closed},
		&memOp{schema: schema, batches: []*columnar.Batch{intBatch(1)}, endless: true, closed: &closed},
	}
	if _, err := drainCtx(context.Background(), newUnion(parts)); sqlstate.CodeOf(err) != sqlstate.DivisionByZero {
		t.Errorf("error %v", err)
	}
	if closed != 3 {
		t.Errorf("%d inputs closed", closed)
	}
}

// panicOp fails as a broken kernel would.
type panicOp struct{ memOp }

func (p *panicOp) Next(context.Context) (*columnar.Batch, error) { panic("broken kernel") }

func TestUnionSurvivesPanic(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	parts := []Operator{&panicOp{memOp{schema: schema}}, &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1)}, endless: true}}
	if _, err := drainCtx(context.Background(), newUnion(parts)); sqlstate.CodeOf(err) != sqlstate.InternalError {
		t.Errorf("error %v", err)
	}
}

func TestCancellation(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	endless := func() Operator {
		return &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1, 2)}, endless: true}
	}
	keyed := []Operator{endless(), endless()}
	for name, op := range map[string]Operator{
		"union": newUnion([]Operator{endless(), endless()}),
		"merge": must(newMerge(keyed, nil, -1, nil)),
		"limit": newLimit(endless(), -1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			for range 3 {
				if b, err := op.Next(ctx); b == nil || err != nil {
					t.Fatal(b, err)
				}
			}
			cancel(errors.New("the client went away"))
			var err error
			for err == nil {
				_, err = op.Next(ctx)
			}
			if sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
				t.Errorf("error %v", err)
			}
			if err := op.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// consume drains outputs, each in a goroutine.
func consume(outputs []Operator) ([][]row, []error) {
	rows, errs := make([][]row, len(outputs)), make([]error, len(outputs))
	var wg sync.WaitGroup
	for i, o := range outputs {
		wg.Go(func() { rows[i], errs[i] = drainCtx(context.Background(), o) })
	}
	wg.Wait()
	return rows, errs
}

func TestPartitionerRoutesEveryRowOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			types := []arrow.DataType{opTypes[g.IntN(len(opTypes))], opTypes[g.IntN(len(opTypes))], catalog.BigInt, listType}
			schema := opSchema(types...)
			batches := g.batches(schema, g.IntN(7000))
			budget := NewBudget("query", 0, nil)
			n := 1 + g.IntN(5)
			f := must(NewPartitioner(context.Background(), &memOp{schema: schema, batches: batches}, []int{0, 1}, n, 2, &Env{Budget: budget}))
			parts, errs := consume(f.Outputs())
			home := map[string]int{}
			var all []row
			for i, rows := range parts {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				for _, r := range rows {
					key := r[:2].text()
					if at, ok := home[key]; ok && at != i {
						t.Fatalf("key %s is in partitions %d and %d", key, at, i)
					}
					home[key] = i
				}
				all = append(all, rows...)
			}
			equalTexts(t, sortedTexts(all), sortedTexts(rowsOf(batches...)))
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			mustBeEmpty(t, budget)
		})
	}
}

// TestPartitionHashIgnoresWidth pins the property that lets the two sides of a
// join be hashed apart, and the hash values themselves: nodes must agree.
func TestPartitionHashIgnoresWidth(t *testing.T) {
	hash := func(v *columnar.Vector) uint64 {
		h := partitionHasher{keys: []int{0}}
		return h.hash(&columnar.Batch{Len: 1, Cols: []*columnar.Vector{v}})[0]
	}
	minus := int64(-7)
	same := []uint64{
		hash(&columnar.Vector{Type: catalog.SmallInt, Len: 1, Data: columnar.Bytes([]int16{-7})}),
		hash(&columnar.Vector{Type: catalog.Integer, Len: 1, Data: columnar.Bytes([]int32{-7})}),
		hash(&columnar.Vector{Type: catalog.BigInt, Len: 1, Data: columnar.Bytes([]int64{-7})}),
		hash(&columnar.Vector{Type: catalog.PhysicalType(catalog.Decimal(9, 0)), Len: 1, Data: columnar.Bytes([]int64{-7})}),
		hash(&columnar.Vector{Type: catalog.Decimal(30, 0), Len: 1, Data: columnar.Bytes([]word128{{uint64(minus), uint64(minus >> 63)}})}),
	}
	if len(slices.Compact(slices.Clone(same))) != 1 {
		t.Errorf("hashes %x", same)
	}
	plain := &columnar.Vector{Type: catalog.Text, Len: 1, Data: []byte("goose"), Offsets: []int32{0, 5}}
	dict := &columnar.Vector{Type: catalog.Text, Len: 1, Codes: []int32{0}, Dict: plain}
	if hash(plain) != hash(dict) {
		t.Error("a dictionary changes the hash")
	}
	if got := []uint64{same[0], hash(plain)}; got[0] != 0x29ed199582e8d4e8 || got[1] != 0xcbfb3c8c80c509b9 {
		t.Errorf("the partition hash changed: %#x", got)
	}
}

func TestTeeCopiesToAll(t *testing.T) {
	g := newGenerator(5)
	schema := opSchema(catalog.Text, catalog.BigInt)
	batches := g.batches(schema, 12000)
	budget := NewBudget("query", 0, nil)
	f := must(NewTee(context.Background(), &memOp{schema: schema, batches: batches}, 3, 1, &Env{Budget: budget}))
	parts, errs := consume(f.Outputs())
	for i := range parts {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		equalTexts(t, exactTexts(parts[i]), exactTexts(rowsOf(batches...)))
	}
	mustBeEmpty(t, budget)
}

// TestFanoutOutlivesConsumers closes one output early: the others get their
// rows all the same, and the last one stops the input.
func TestFanoutOutlivesConsumers(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	vals := make([]int64, 5000)
	for i := range vals {
		vals[i] = int64(i)
	}
	budget := NewBudget("query", 0, nil)
	closed := 0
	in := &memOp{schema: schema, batches: []*columnar.Batch{intBatch(vals...)}, endless: true, closed: &closed}
	f := must(NewPartitioner(context.Background(), in, []int{0}, 3, 1, &Env{Budget: budget}))
	outs := f.Outputs()
	if err := outs[0].Close(); err != nil {
		t.Error(err)
	}
	for range 20 {
		for _, o := range outs[1:] {
			if b, err := o.Next(context.Background()); b == nil || err != nil {
				t.Fatal(b, err)
			}
		}
	}
	if err := f.Close(); err != nil || closed != 1 {
		t.Errorf("error %v, closed %d times", err, closed)
	}
	mustBeEmpty(t, budget)
}

func TestFanoutPassesErrorsToAll(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	failure := sqlstate.New(sqlstate.NumericOutOfRange, "bigint out of range")
	for name, cancelFirst := range map[string]bool{"input": false, "canceled": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			in := &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1, 2, 3)}, failAt: failure}
			f := must(NewPartitioner(ctx, in, []int{0}, 2, 1, &Env{}))
			want := sqlstate.NumericOutOfRange
			if cancelFirst {
				cancel()
				want = sqlstate.QueryCanceled
			}
			_, errs := consume(f.Outputs())
			for _, err := range errs {
				if sqlstate.CodeOf(err) != want {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

func TestFanoutClosedUnread(t *testing.T) {
	closed := 0
	in := &memOp{schema: opSchema(catalog.BigInt), closed: &closed}
	f := must(NewTee(context.Background(), in, 2, 1, &Env{}))
	if err := f.Close(); err != nil || closed != 1 {
		t.Errorf("error %v, closed %d times", err, closed)
	}
}
