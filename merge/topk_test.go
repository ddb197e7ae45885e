package merge

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func row(score uint64, tablet catalog.TabletID, id uint64) Candidate {
	return Candidate{Score: score, Tablet: tablet, Row: id}
}

func bounded(tablet catalog.TabletID, bound uint64, rows ...Candidate) Contribution {
	return Contribution{Tablet: tablet, Rows: rows, Bound: bound}
}

func exhausted(tablet catalog.TabletID, rows ...Candidate) Contribution {
	return Contribution{Tablet: tablet, Rows: rows, Exhausted: true}
}

func TestCompareBreaksTiesByIdentity(t *testing.T) {
	want := []Candidate{row(9, 4, 7), row(5, 1, 0), row(5, 1, 2), row(5, 2, 0), row(3, 1, 0)}
	got := []Candidate{want[3], want[2], want[0], want[4], want[1]}
	slices.SortFunc(got, Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMergeTopK(t *testing.T) {
	for _, c := range []struct {
		name    string
		in      []Contribution
		k       int
		winners []Candidate
		refill  []catalog.TabletID
	}{
		{"all exhausted", []Contribution{exhausted(1, row(100, 1, 0), row(90, 1, 1)), exhausted(2, row(96, 2, 0))}, 2,
			[]Candidate{row(100, 1, 0), row(96, 2, 0)}, nil},
		{"bound below the last winner", []Contribution{bounded(1, 95, row(100, 1, 0), row(90, 1, 1)), exhausted(2, row(96, 2, 0))}, 2,
			[]Candidate{row(100, 1, 0), row(96, 2, 0)}, nil},
		{"bound above the last winner", []Contribution{bounded(1, 97, row(100, 1, 0), row(90, 1, 1)), exhausted(2, row(96, 2, 0))}, 2,
			[]Candidate{row(100, 1, 0), row(96, 2, 0)}, []catalog.TabletID{1}},
		{"tie that a lower tablet wins", []Contribution{bounded(1, 96, row(100, 1, 0)), exhausted(2, row(96, 2, 9))}, 2,
			[]Candidate{row(100, 1, 0), row(96, 2, 9)}, []catalog.TabletID{1}},
		{"tie that a higher tablet loses", []Contribution{bounded(3, 96, row(100, 3, 0)), exhausted(2, row(96, 2, 9))}, 2,
			[]Candidate{row(100, 3, 0), row(96, 2, 9)}, nil},
		{"too few rows", []Contribution{bounded(1, 1, row(5, 1, 0)), exhausted(2)}, 3,
			[]Candidate{row(5, 1, 0)}, []catalog.TabletID{1}},
		{"several refills in order", []Contribution{bounded(7, 9), bounded(2, 9), bounded(5, 0)}, 1,
			nil, []catalog.TabletID{2, 5, 7}},
		{"none wanted", []Contribution{bounded(1, 9, row(9, 1, 0))}, 0, nil, nil},
		{"no tablets", nil, 4, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			winners, refill := MergeTopK(c.in, c.k)
			if !slices.Equal(winners, c.winners) || !slices.Equal(refill, c.refill) {
				t.Errorf("winners %v, refill %v; want %v, %v", winners, refill, c.winners, c.refill)
			}
		})
	}
}

func TestExactTopKRefillsOnlyWhatIsNeeded(t *testing.T) {
	all := []Candidate{row(100, 1, 0), row(99, 1, 1), row(98, 1, 2), row(97, 1, 3)}
	first := []Contribution{bounded(1, 98, all[:2]...), exhausted(2, row(96, 2, 0), row(95, 2, 1))}
	calls := 0
	got, err := ExactTopK(3, first, func(tablet catalog.TabletID) (Contribution, error) {
		calls++
		return exhausted(tablet, all[2:]...), nil
	})
	if err != nil || calls != 1 || !slices.Equal(got, all[:3]) {
		t.Errorf("got %v after %d refills, error %v", got, calls, err)
	}
	if len(first[0].Rows) != 2 {
		t.Error("the caller's contributions were changed")
	}
}

func TestExactTopKReportsBrokenTablets(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		first []Contribution
		next  Contribution
		err   error
	}{
		"no progress":    {[]Contribution{bounded(1, 10)}, bounded(1, 10), nil},
		"raised bound":   {[]Contribution{bounded(1, 10)}, bounded(1, 11, row(9, 1, 0)), nil},
		"wrong tablet":   {[]Contribution{bounded(1, 10)}, exhausted(2), nil},
		"twice the same": {[]Contribution{bounded(1, 10), bounded(1, 10)}, exhausted(1), nil},
		"refill fails":   {[]Contribution{bounded(1, 10)}, Contribution{}, down},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ExactTopK(1, c.first, func(catalog.TabletID) (Contribution, error) { return c.next, c.err })
			var broken *RefillError
			switch {
			case c.err != nil && !errors.Is(err, c.err):
				t.Errorf("error %v", err)
			case c.err == nil && (!errors.As(err, &broken) || broken.Tablet != 1):
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestExactTopKOracle compares with sorting all rows, for 1,000 random layouts
// with many ties.
func TestExactTopKOracle(t *testing.T) {
	refills := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		tablets, k, batch := 1+rng.IntN(8), rng.IntN(30), 1+rng.IntN(4)
		var all []Candidate
		rows := make([][]Candidate, tablets)
		for i := range rows {
			for id := range rng.IntN(40) {
				rows[i] = append(rows[i], row(rng.Uint64N(12), catalog.TabletID(i+1), uint64(id)))
			}
			slices.SortFunc(rows[i], Compare)
			all = append(all, rows[i]...)
		}
		slices.SortFunc(all, Compare)
		sent := make([]int, tablets)
		next := func(tablet catalog.TabletID) (Contribution, error) {
			mine, from := rows[tablet-1], sent[tablet-1]
			to := min(from+batch, len(mine))
			sent[tablet-1] = to
			c := Contribution{Tablet: tablet, Rows: mine[from:to], Exhausted: to == len(mine)}
			if !c.Exhausted {
				c.Bound = mine[to].Score
			}
			return c, nil
		}
		var first []Contribution
		for i := range tablets {
			c, _ := next(catalog.TabletID(i + 1))
			first = append(first, c)
		}
		rng.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
		got, err := ExactTopK(k, first, func(tablet catalog.TabletID) (Contribution, error) {
			refills++
			return next(tablet)
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := all[:min(k, len(all))]; !slices.Equal(got, want) {
			t.Fatalf("seed %d, k %d, batches of %d: got %v, want %v", seed, k, batch, got, want)
		}
	}
	if refills == 0 {
		t.Error("no layout needed a refill")
	}
}

func TestScoreKeysKeepOrder(t *testing.T) {
	ascending := map[string]*columnar.Vector{
		"bigint":    {Type: catalog.BigInt, Len: 5, Data: columnar.Bytes([]int64{math.MinInt64, -5, 0, 5, math.MaxInt64})},
		"integer":   {Type: catalog.Integer, Len: 3, Data: columnar.Bytes([]int32{math.MinInt32, 0, math.MaxInt32})},
		"smallint":  {Type: catalog.SmallInt, Len: 3, Data: columnar.Bytes([]int16{-1, 0, 1})},
		"double":    {Type: catalog.Double, Len: 7, Data: columnar.Bytes([]float64{math.Inf(-1), -math.MaxFloat64, -1.5, 0, 2.5, math.MaxFloat64, math.NaN()})},
		"real":      {Type: catalog.Real, Len: 3, Data: columnar.Bytes([]float32{-2, 0, 3})},
		"decimal":   {Type: catalog.PhysicalType(catalog.Decimal(9, 2)), Len: 3, Data: columnar.Bytes([]int64{-100, 0, 1})},
		"timestamp": {Type: catalog.Timestamp, Len: 2, Data: columnar.Bytes([]int64{-1, 1})},
		"uint64":    {Type: arrow.PrimitiveTypes.Uint64, Len: 3, Data: columnar.Bytes([]uint64{0, 1 << 63, math.MaxUint64})},
	}
	for name, v := range ascending {
		t.Run(name, func(t *testing.T) {
			keys, err := AppendScoreKeys(nil, v, nil)
			if err != nil || !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != v.Len {
				t.Errorf("keys %x, error %v", keys, err)
			}
			for i, want := range keys {
				if got, err := ScoreKey(v, i); got != want || err != nil {
					t.Errorf("row %d: key %x instead of %x, error %v", i, got, want, err)
				}
			}
		})
	}
}

func TestScoreKeySpecialValues(t *testing.T) {
	floats := &columnar.Vector{Type: catalog.Double, Len: 3, Valid: []byte{0b011}, Data: columnar.Bytes([]float64{0, math.Copysign(0, -1), 7})}
	keys, err := AppendScoreKeys(nil, floats, []int32{0, 1, 2})
	if err != nil || keys[0] != keys[1] || keys[2] != 0 {
		t.Errorf("keys %x, error %v", keys, err)
	}
	same := &columnar.Vector{Type: catalog.BigInt, Len: 3, Const: true, Data: columnar.Bytes([]int64{4})}
	if keys, err = AppendScoreKeys(nil, same, []int32{0, 2}); err != nil || keys[0] != keys[1] || len(keys) != 2 {
		t.Errorf("keys %x, error %v", keys, err)
	}
	if _, err := ScoreKey(&columnar.Vector{Type: catalog.Text, Len: 1}, 0); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("error %v", err)
	}
}
