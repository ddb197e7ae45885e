package catalog

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"skein/columnar"
)

func hashTable(buckets uint32, tablets int, cols ...int) *Table {
	t := &Table{Schema: "public", Name: "t", Partitioning: Partitioning{Kind: Hash, Columns: cols, Buckets: buckets}}
	t.Columns = []Column{{Name: "a", Type: BigInt}, {Name: "b", Type: Text}, {Name: "c", Type: Integer}}
	ranges, err := BucketRanges(buckets, tablets)
	if err != nil {
		panic(err)
	}
	for i, r := range ranges {
		t.Tablets = append(t.Tablets, Tablet{ID: TabletID(10 + i), BucketLow: r.Low, BucketHigh: r.High})
	}
	return t
}

func TestBucketRanges(t *testing.T) {
	for _, tc := range []struct {
		buckets uint32
		tablets int
	}{{1, 1}, {10, 3}, {1024, 7}, {math.MaxUint32, 3}} {
		ranges, err := BucketRanges(tc.buckets, tc.tablets)
		if err != nil || len(ranges) != tc.tablets {
			t.Fatalf("%+v: %v, %v", tc, ranges, err)
		}
		at := uint32(0)
		for _, r := range ranges {
			if r.Low != at || r.High <= r.Low {
				t.Errorf("%+v: %v", tc, ranges)
			}
			at = r.High
		}
		if at != tc.buckets {
			t.Errorf("%+v ends at %d", tc, at)
		}
	}
	for _, bad := range []int{0, -1, 11} {
		if _, err := BucketRanges(10, bad); err == nil {
			t.Errorf("10 buckets were cut into %d", bad)
		}
	}
}

func TestHashRoutingIsTheSameOnEveryPath(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64(), 1, 50).Draw(rt, "values")
		narrow := make([]int32, len(values))
		for i, v := range values {
			narrow[i] = int32(v)
		}
		cols := []*columnar.Vector{
			{Type: BigInt, Len: len(values), Data: columnar.Bytes(values)},
			columnar.NewConst(Text, []byte("k"), len(values)),
			{Type: Integer, Len: len(values), Data: columnar.Bytes(narrow)},
		}
		for _, on := range [][]int{{0}, {2}, {1, 0}} {
			table := hashTable(64, 5, on...)
			r, err := NewRouter(table)
			if err != nil {
				rt.Fatal(err)
			}
			got, err := r.Route(cols, len(values), []int32{99})
			if err != nil || len(got) != 1+len(values) || got[0] != 99 {
				rt.Fatalf("%v, %v", got, err)
			}
			var key []*columnar.Vector
			for _, c := range on {
				key = append(key, cols[c])
			}
			for i := range values {
				k := AppendKey(nil, key, i)
				b := HashBucket(k, 64)
				tab := table.Tablets[got[1+i]]
				if b < tab.BucketLow || b >= tab.BucketHigh || r.RouteKey(k) != int(got[1+i]) {
					rt.Fatalf("columns %v, row %d: bucket %d went to tablet %d", on, i, b, got[1+i])
				}
			}
		}
	})
}

func TestHashSpreads(t *testing.T) {
	r, err := NewRouter(hashTable(1024, 4, 0))
	if err != nil {
		t.Fatal(err)
	}
	values := make([]int64, 40000)
	for i := range values {
		values[i] = int64(i)
	}
	got, err := r.Route([]*columnar.Vector{{Type: BigInt, Len: len(values), Data: columnar.Bytes(values)}}, len(values), nil)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int, 4)
	for _, o := range got {
		counts[o]++
	}
	if slices.Min(counts) < 9000 || slices.Max(counts) > 11000 {
		t.Errorf("sequential keys spread as %v", counts)
	}
}

func rangeTable(t *testing.T, bounds ...int64) *Table {
	table := &Table{
		Schema: "public", Name: "t", Columns: []Column{{Name: "a", Type: BigInt, Nullable: true}},
		Partitioning: Partitioning{Kind: Range, Columns: []int{0}},
	}
	var low []byte
	for i := range len(bounds) + 1 {
		tab := Tablet{ID: TabletID(10 + i), KeyLow: low}
		if i < len(bounds) {
			var err error
			if tab.KeyHigh, err = AppendKeyValue(nil, BigInt, bounds[i]); err != nil {
				t.Fatal(err)
			}
		}
		low = tab.KeyHigh
		table.Tablets = append(table.Tablets, tab)
	}
	return table
}

func TestRangeRouting(t *testing.T) {
	table := rangeTable(t, -10, 0, 1000)
	slices.Reverse(table.Tablets) // ordinals are those of the table, whatever its order
	r, err := NewRouter(table)
	if err != nil {
		t.Fatal(err)
	}
	v := vectorOf(t, BigInt, int64(math.MinInt64), int64(-11), int64(-10), int64(-1), int64(0), int64(999), int64(1000), nil)
	got, err := r.Route([]*columnar.Vector{v}, v.Len, nil)
	if want := []int32{3, 3, 2, 2, 1, 1, 0, 0}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := r.Route(nil, 1, nil); err == nil {
		t.Error("rows without the partition column were routed")
	}
}

func TestUnpartitioned(t *testing.T) {
	r, err := NewRouter(&Table{Partitioning: Partitioning{Kind: Unpartitioned}, Tablets: []Tablet{{ID: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Route(nil, 3, nil); err != nil || !slices.Equal(got, []int32{0, 0, 0}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNewRouterRefuses(t *testing.T) {
	gap := hashTable(64, 2, 0)
	gap.Tablets[1].BucketLow++
	overlap := hashTable(64, 2, 0)
	overlap.Tablets[1].BucketLow--
	outside := hashTable(64, 2, 0)
	outside.Tablets[1].BucketHigh++
	column := hashTable(64, 2, 7)
	none := hashTable(64, 2)
	hole := rangeTable(t, 1, 2)
	hole.Tablets = slices.Delete(hole.Tablets, 1, 2)
	ceiling := rangeTable(t, 1, 2)
	ceiling.Tablets = ceiling.Tablets[:2]
	for name, table := range map[string]*Table{
		"gap": gap, "overlap": overlap, "outside": outside, "column": column, "no columns": none,
		"hole": hole, "ceiling": ceiling, "two tablets": {Tablets: make([]Tablet, 2)},
		"kind": {Partitioning: Partitioning{Kind: "sorted"}, Tablets: make([]Tablet, 1)},
	} {
		if _, err := NewRouter(table); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	r, err := NewRouter(hashTable(1024, 4, 0))
	if err != nil {
		b.Fatal(err)
	}
	values := make([]int64, 4096)
	for i := range values {
		values[i] = int64(i)
	}
	cols := []*columnar.Vector{{Type: BigInt, Len: len(values), Data: columnar.Bytes(values)}}
	var dst []int32
	for b.Loop() {
		if dst, err = r.Route(cols, len(values), dst[:0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(values)), "ns/row")
}
