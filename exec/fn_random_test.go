package exec

import (
	"math"
	"testing"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

func TestVolatileFunctionsAreKnownToThePlanner(t *testing.T) {
	for name, f := range functions() {
		if (f.volatile() == Volatile) != planner.Volatile(name) {
			t.Errorf("%s is %s here, volatile in the planner: %v", name, f.volatile(), planner.Volatile(name))
		}
	}
}

func TestRandomIsDrawnForEveryRow(t *testing.T) {
	call := &planner.Call{Func: "random", DataType: catalog.Double}
	folded, err := Fold(call)
	if err != nil {
		t.Fatal(err)
	}
	if _, literal := folded.(*planner.Literal); literal {
		t.Fatal("random() was folded")
	}
	ev, err := Compile(call, nil)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 4096
	seen := make(map[float64]bool)
	sum := 0.0
	for range 4 {
		v, err := ev.Eval(&columnar.Batch{Len: rows})
		if err != nil {
			t.Fatal(err)
		}
		if v.Const {
			t.Fatal("one value stands for all rows")
		}
		for _, x := range columnar.Values[float64](v) {
			if x < 0 || x >= 1 {
				t.Fatalf("%v is out of range", x)
			}
			seen[x] = true
			sum += x
		}
	}
	if len(seen) < 4*rows-2 {
		t.Errorf("%d different values of %d", len(seen), 4*rows)
	}
	// Ten standard deviations of the mean.
	if mean := sum / (4 * rows); math.Abs(mean-0.5) > 10/math.Sqrt(12*4*rows) {
		t.Errorf("the mean is %v", mean)
	}
}

func TestRandomBetweenHasItsEnds(t *testing.T) {
	between := func(low, high int64) planner.Expr {
		return &planner.Call{Func: "random", DataType: catalog.BigInt, Args: []planner.Expr{
			&planner.Literal{Value: low, DataType: catalog.BigInt}, &planner.Literal{Value: high, DataType: catalog.BigInt}}}
	}
	for _, c := range []struct{ low, high int64 }{
		{1, 3}, {-2, 0}, {7, 7}, {math.MinInt64, math.MaxInt64}, {math.MaxInt64 - 1, math.MaxInt64},
	} {
		ev, err := Compile(between(c.low, c.high), nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := ev.Eval(&columnar.Batch{Len: 1000})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[int64]bool)
		for _, x := range columnar.Values[int64](v) {
			if x < c.low || x > c.high {
				t.Fatalf("%d is not within %d and %d", x, c.low, c.high)
			}
			seen[x] = true
		}
		if span := uint64(c.high - c.low); span < 10 && uint64(len(seen)) != span+1 {
			t.Errorf("%d values from %d to %d", len(seen), c.low, c.high)
		}
	}
	ev, err := Compile(between(2, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ev.Eval(&columnar.Batch{Len: 1}); err == nil {
		t.Error("an empty range has a value")
	}
}

func TestRandomUUIDs(t *testing.T) {
	ev, err := Compile(&planner.Call{Func: "gen_random_uuid", DataType: catalog.UUID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ev.Eval(&columnar.Batch{Len: 1000})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uuid.UUID]bool)
	for _, u := range columnar.Values[[16]byte](v) {
		id := uuid.UUID(u)
		if id.Version() != 4 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is not a UUID of version 4", id)
		}
		seen[id] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d different UUIDs of 1000", len(seen))
	}
}
