package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"skein/catalog"
	"skein/columnar"
)

func TestScanSkips(t *testing.T) {
	table := tableOf([]int{0}, catalog.BigInt, catalog.Text)
	tab := mustTablet(t, openTest(t, t.TempDir()), table)
	for i := range int64(4) {
		names, err := columnar.NewBuilder(catalog.Text)
		if err != nil {
			t.Fatal(err)
		}
		for range 10000 {
			if i == 3 {
				names.AppendNull()
			} else if err := names.AppendBytes([]byte(fmt.Sprintf("name %d", i))); err != nil {
				t.Fatal(err)
			}
		}
		b := batchOf(ints(sequence(i*10000, 10000)...), names.Finish())
		if r := insert(t, tab, fmt.Sprint(i), 1, b); r.Outcome != Committed {
			t.Fatal(r.Err)
		}
	}
	for name, tc := range map[string]struct {
		where []Predicate
		most  int // rows read
		least int // rows that match
	}{
		"all":              {nil, 40000, 40000},
		"key equality":     {[]Predicate{{0, OpEqual, []any{int64(12345)}}}, 1, 1},
		"absent key":       {[]Predicate{{0, OpEqual, []any{int64(40001)}}}, 0, 0},
		"key range":        {[]Predicate{{0, OpGreaterEqual, []any{int64(15000)}}, {0, OpLess, []any{int64(15010)}}}, 10, 10},
		"open range":       {[]Predicate{{0, OpGreater, []any{int64(39989)}}}, 10, 10},
		"up to":            {[]Predicate{{0, OpLessEqual, []any{int64(4)}}}, 5, 5},
		"in":               {[]Predicate{{0, OpIn, []any{int64(5), int64(9), nil}}}, 5, 2},
		"in null":          {[]Predicate{{0, OpIn, []any{nil}}}, 0, 0},
		"text":             {[]Predicate{{1, OpEqual, []any{"name 1"}}}, 10000, 10000},
		"text between":     {[]Predicate{{1, OpEqual, []any{"name 11"}}}, 0, 0},
		"text not equal":   {[]Predicate{{1, OpNotEqual, []any{"name 1"}}}, 20000, 20000},
		"null":             {[]Predicate{{1, OpIsNull, nil}}, 10000, 10000},
		"not null":         {[]Predicate{{1, OpIsNotNull, nil}}, 30000, 30000},
		"compared to null": {[]Predicate{{0, OpLess, []any{nil}}}, 0, 0},
	} {
		if got := readAll(t, tab, 1, tc.where...).Len; got > tc.most || got < tc.least {
			t.Errorf("%s: read %d rows, want %d to %d", name, got, tc.least, tc.most)
		}
	}
	s := mustSnapshot(t, tab, 1)
	for _, bad := range []Predicate{{5, OpEqual, []any{int64(1)}}, {0, OpEqual, nil}, {0, OpEqual, []any{"x"}}, {0, 0, nil}, {0, OpIsNull, []any{nil}}} {
		if _, err := s.Scan(ScanOptions{Predicates: []Predicate{bad}}); err == nil {
			t.Errorf("predicate %+v was accepted", bad)
		}
	}
	if st := s.Stats(); st.Rows != 40000 || st.Columns[0].Min != int64(0) || st.Columns[0].Max != int64(39999) ||
		st.Columns[1].Nulls != 10000 || st.Columns[1].Min != "name 0" || st.Columns[1].Max != "name 2" {
		t.Errorf("stats %+v", st)
	}
}

func TestParallelScannersShareRows(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	const segments, each = 3, 30000
	for i := range int64(segments) {
		txn := fmt.Sprint(i)
		mustOutcome(t, tab, Staged, stages(txn, 0, encoded(t, tab.Table(), intsBatch(sequence(i*each, each)...)))...)
		mustOutcome(t, tab, Committed, Commit{Txn: txn, Segments: 1, Timestamp: 1})
	}
	scanners, err := mustSnapshot(t, tab, 1).Scan(ScanOptions{Columns: []int{1, 0}, Parallelism: 4})
	if err != nil || len(scanners) != 4 {
		t.Fatalf("%d scanners, %v", len(scanners), err)
	}
	var mu sync.Mutex
	var all []int64
	var wg sync.WaitGroup
	for _, sc := range scanners {
		wg.Go(func() {
			for {
				b, err := sc.Next(context.Background())
				if err != nil || b == nil {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if b.Len > columnar.BatchRows {
					t.Errorf("batch of %d rows", b.Len)
				}
				mu.Lock()
				all = append(all, columnar.Values[int64](b.Cols[0])...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	if !slices.Equal(all, sequence(0, segments*each)) {
		t.Errorf("%d rows", len(all))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	scanners, err = mustSnapshot(t, tab, 1).Scan(ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scanners[0].Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}
