package exec

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

func joinSchema(left, right *arrow.Schema) *arrow.Schema {
	return publicSchema(arrow.NewSchema(append(left.Fields(), right.Fields()...), nil))
}

// naiveJoin pairs rows by nested loops.
func naiveJoin(left, right []row, on []planner.JoinKey) []row {
	var out []row
	for _, l := range left {
		for _, r := range right {
			match := true
			for _, k := range on {
				match = match && l[k.Left] != nil && r[k.Right] != nil &&
					compareCells(l[k.Left], r[k.Right]) == 0
			}
			if match {
				out = append(out, append(append(row{}, l...), r...))
			}
		}
	}
	return out
}

func TestJoinMatchesOracle(t *testing.T) {
	for seed := range uint64(90) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			var keys []arrow.DataType
			for range g.IntN(4) {
				keys = append(keys, opTypes[g.IntN(len(opTypes))])
			}
			left := opSchema(append(append([]arrow.DataType{catalog.Integer}, keys...), listType)...)
			right := opSchema(append(append([]arrow.DataType{}, keys...), catalog.Text)...)
			var on []planner.JoinKey
			for i := range keys {
				on = append(on, planner.JoinKey{Left: i + 1, Right: i})
			}
			size := 160
			if len(keys) == 0 {
				size = 50
			}
			lb, rb := g.batches(left, g.IntN(size)), g.batches(right, g.IntN(size))
			kind := planner.InnerJoin
			if len(keys) == 0 {
				kind = planner.CrossJoin
			}
			op := &planner.HashJoin{Kind: kind, On: on, Build: planner.BuildLeft, Schema: joinSchema(left, right)}
			if g.IntN(2) == 0 {
				op.Build = planner.BuildRight
			}
			budget := NewBudget("query", 0, nil)
			closed := 0
			nl, nr := 1+g.IntN(4), 1+g.IntN(4)
			parts := must(newJoinParts(op, g.split(left, lb, nl, &closed), g.split(right, rb, nr, &closed), &Env{Budget: budget}))
			got := drain(t, newUnion(parts))
			equalTexts(t, sortedTexts(got), sortedTexts(naiveJoin(rowsOf(lb...), rowsOf(rb...), on)))
			mustBeEmpty(t, budget)
			if closed < nl+nr {
				t.Errorf("%d of %d inputs were closed", closed, nl+nr)
			}
		})
	}
}

func TestJoinEmitsChainsInPieces(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	same := make([]int64, 300)
	in := func() []Operator {
		return []Operator{&memOp{schema: schema, batches: []*columnar.Batch{intBatch(same...)}}}
	}
	op := &planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinSchema(schema, schema)}
	join := must(newJoinParts(op, in(), in(), &Env{}))[0]
	total := 0
	for {
		b, err := join.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		if b.Rows() > columnar.BatchRows {
			t.Fatalf("a batch of %d rows", b.Rows())
		}
		total += b.Rows()
	}
	if err := join.Close(); err != nil || total != 90000 {
		t.Errorf("%d rows, error %v", total, err)
	}
}

func TestJoinResidual(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	in := func(vals ...int64) []Operator {
		return []Operator{&memOp{schema: schema, batches: []*columnar.Batch{intBatch(vals...)}}}
	}
	less := &planner.Call{Func: "<", DataType: catalog.Boolean, Args: []planner.Expr{
		&planner.Column{Index: 0, DataType: catalog.BigInt}, &planner.Column{Index: 1, DataType: catalog.BigInt}}}
	for _, build := range []planner.BuildSide{planner.BuildLeft, planner.BuildRight} {
		op := &planner.HashJoin{Kind: planner.CrossJoin, Build: build, Residual: less, Schema: joinSchema(schema, schema)}
		got := drain(t, must(newJoinParts(op, in(1, 2, 3), in(2, 3, 9), &Env{}))[0])
		want := []row{{int64(1), int64(2)}, {int64(1), int64(3)}, {int64(1), int64(9)}, {int64(2), int64(3)}, {int64(2), int64(9)}, {int64(3), int64(9)}}
		equalTexts(t, sortedTexts(got), sortedTexts(want))
	}
}

func TestJoinStopsAtEmptyBuildSide(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	probe := &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1)}, endless: true}
	op := &planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinSchema(schema, schema)}
	if got := drain(t, must(newJoinParts(op, []Operator{probe}, []Operator{&memOp{schema: schema}}, &Env{}))[0]); len(got) != 0 {
		t.Errorf("rows %v", got)
	}
	if probe.next != 0 {
		t.Error("the probe side was read")
	}
}

func TestJoinChecksItsPlan(t *testing.T) {
	ints, texts := opSchema(catalog.BigInt), opSchema(catalog.Text)
	for name, c := range map[string]struct {
		op   planner.HashJoin
		code sqlstate.Code
	}{
		"key types":   {planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildLeft, Schema: joinSchema(ints, texts)}, sqlstate.InternalError},
		"key ordinal": {planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{Left: 1}}, Build: planner.BuildLeft, Schema: joinSchema(ints, texts)}, sqlstate.InternalError},
		"build side":  {planner.HashJoin{Kind: planner.CrossJoin, Schema: joinSchema(ints, texts)}, sqlstate.InternalError},
		"schema":      {planner.HashJoin{Kind: planner.CrossJoin, Build: planner.BuildLeft, Schema: ints}, sqlstate.InternalError},
		"kind":        {planner.HashJoin{Kind: "theta", Build: planner.BuildLeft, Schema: joinSchema(ints, texts)}, sqlstate.FeatureNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newJoinParts(&c.op, []Operator{&memOp{schema: ints}}, []Operator{&memOp{schema: texts}}, &Env{})
			if sqlstate.CodeOf(err) != c.code {
				t.Errorf("error %v", err)
			}
		})
	}
}
