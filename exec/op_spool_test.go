package exec

import (
	"context"
	"fmt"
	"testing"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// TestSpoolReadOneAfterTheOther reads one output to its end before the next is
// begun, which a bounded queue would never let happen, in memory and with a
// budget that sends most rows to disk.
func TestSpoolReadOneAfterTheOther(t *testing.T) {
	schema := opSchema(catalog.Text, catalog.BigInt, catalog.Decimal(30, 4), listType)
	for name, limit := range map[string]int64{"memory": 0, "disk": 300 << 10} {
		t.Run(name, func(t *testing.T) {
			batches := newGenerator(11).batches(schema, 40000)
			want := exactTexts(rowsOf(batches...))
			budget := NewBudget("query", limit, nil)
			closed := 0
			env := &Env{Budget: budget, SpillDir: t.TempDir()}
			s := must(NewSpool(context.Background(), &memOp{schema: schema, batches: batches, closed: &closed}, 3, env))
			for i, o := range s.Outputs() {
				rows, err := drainCtx(context.Background(), o)
				if err != nil {
					t.Fatal(err)
				}
				equalTexts(t, exactTexts(rows), want)
				if spilled := s.log.file != nil; i == 0 && spilled != (limit > 0) {
					t.Errorf("spilled %t", spilled)
				}
			}
			if err := s.Close(); err != nil || closed != 1 {
				t.Errorf("error %v, closed %d times", err, closed)
			}
			mustBeEmpty(t, budget)
		})
	}
}

func TestSpoolReadAtOnce(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text)
	batches := newGenerator(12).batches(schema, 30000)
	want := exactTexts(rowsOf(batches...))
	budget := NewBudget("query", 0, nil)
	s := must(NewSpool(context.Background(), &memOp{schema: schema, batches: batches}, 4, &Env{Budget: budget}))
	parts, errs := consume(s.Outputs())
	for i := range parts {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		equalTexts(t, exactTexts(parts[i]), want)
	}
	mustBeEmpty(t, budget)
}

// TestSpoolForgets checks that rows which all consumers have read are given up,
// also when one that had read nothing goes away.
func TestSpoolForgets(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	budget := NewBudget("query", 0, nil)
	vals := make([]int64, columnar.BatchRows)
	in := &memOp{schema: schema, batches: []*columnar.Batch{intBatch(vals...)}, endless: true}
	s := must(NewSpool(context.Background(), in, 3, &Env{Budget: budget}))
	outs := s.Outputs()
	for range 50 {
		for _, o := range outs[:2] {
			if b, err := o.Next(context.Background()); b == nil || err != nil {
				t.Fatal(b, err)
			}
		}
	}
	held := budget.Used()
	if err := outs[2].Close(); err != nil {
		t.Fatal(err)
	}
	if left := budget.Used(); left > held/10 {
		t.Errorf("%d of %d bytes are still held", left, held)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustBeEmpty(t, budget)
}

func TestSpoolPassesErrorsToAll(t *testing.T) {
	failure := sqlstate.New(sqlstate.NumericOutOfRange, "bigint out of range")
	in := &memOp{schema: opSchema(catalog.BigInt), batches: []*columnar.Batch{intBatch(1, 2, 3)}, failAt: failure}
	s := must(NewSpool(context.Background(), in, 2, &Env{}))
	for _, o := range s.Outputs() {
		if _, err := drainCtx(context.Background(), o); sqlstate.CodeOf(err) != sqlstate.NumericOutOfRange {
			t.Errorf("error %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	full := &memOp{schema: opSchema(catalog.BigInt), batches: []*columnar.Batch{intBatch(make([]int64, 9000)...)}}
	s = must(NewSpool(context.Background(), full, 2, &Env{Budget: NewBudget("query", 1<<10, nil)}))
	if _, err := drainCtx(context.Background(), s.Outputs()[0]); sqlstate.CodeOf(err) != sqlstate.OutOfMemory {
		t.Errorf("without a spill directory: error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// countingOps are those of: WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT
// n % modulus + 1 FROM r).
func countingOps(distinct bool, modulus int64) []planner.Operator {
	schema := publicSchema(opSchema(catalog.BigInt))
	constant := func(v int64) planner.Expr { return &planner.Literal{Value: v, DataType: catalog.BigInt} }
	call := func(op string, x, y planner.Expr) planner.Expr {
		return &planner.Call{Func: op, Args: []planner.Expr{x, y}, DataType: catalog.BigInt, Null: true}
	}
	next := call("+", call("%", planner.ColumnOf(schema, 0), constant(modulus)), constant(1))
	return []planner.Operator{
		&planner.ValuesSource{Schema: schema, Rows: [][]planner.Expr{{constant(1)}}},
		&planner.RecursiveOp{Name: "r", Distinct: distinct, Schema: schema, Step: []planner.Operator{
			&planner.StoredSource{Schema: schema},
			&planner.ProjectOp{Exprs: []planner.Expr{next}, Schema: schema},
		}},
	}
}

func TestRecursionEnds(t *testing.T) {
	budget := NewBudget("query", 0, nil)
	op := must(Build(context.Background(), countingOps(true, 2000), &Env{Budget: budget}))
	rows := drain(t, op)
	for i, r := range rows {
		if r[0] != int64(i+1) {
			t.Fatalf("row %d is %v", i, r)
		}
	}
	if len(rows) != 2000 {
		t.Errorf("%d rows", len(rows))
	}
	mustBeEmpty(t, budget)
}

func TestRecursionStopsWithItsReader(t *testing.T) {
	for _, limit := range []int64{0, 1, 300} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			budget := NewBudget("query", 0, nil)
			ops := append(countingOps(false, 1<<40), &planner.LimitOp{Limit: limit})
			op := must(Build(context.Background(), ops, &Env{Budget: budget}))
			if rows := drain(t, op); int64(len(rows)) != limit {
				t.Errorf("%d rows", len(rows))
			}
			mustBeEmpty(t, budget)
		})
	}
}

func TestRecursionIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	budget := NewBudget("query", 0, nil)
	op := must(Build(ctx, countingOps(false, 1<<40), &Env{Budget: budget}))
	for range 10 {
		if b, err := op.Next(ctx); b == nil || err != nil {
			t.Fatal(b, err)
		}
	}
	cancel()
	if _, err := op.Next(ctx); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Errorf("error %v", err)
	}
	if err := op.Close(); err != nil {
		t.Fatal(err)
	}
	mustBeEmpty(t, budget)
}

// TestRecursionWithoutEnd: a recursion of no end and no reader's limit ends in an
// error, without using more and more memory.
func TestRecursionWithoutEnd(t *testing.T) {
	op := must(Build(context.Background(), countingOps(false, 3), &Env{Budget: NewBudget("query", 1<<20, nil)}))
	r := op.(*rootOp).input.(*recursiveOp)
	r.round = maxRounds - 5
	r.stored[0], r.next = r.next, r.stored[0]
	if err := r.stored[0].append(intBatch(1)); err != nil {
		t.Fatal(err)
	}
	r.step = newLogReader(r.stored[0])
	_, err := drainCtx(context.Background(), op)
	if sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded {
		t.Errorf("error %v", err)
	}
}
