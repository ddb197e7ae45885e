package storage

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skein/catalog"
	"skein/columnar"
)

// ordersTable is a key, a customer, a price, a date, a status and a comment.
func ordersTable() *catalog.Table {
	return tableOf([]int{0}, catalog.BigInt, catalog.BigInt, catalog.Decimal(15, 2), catalog.Date, catalog.Text, catalog.Text)
}

// ordersBatch has the given keys.
func ordersBatch(b testing.TB, rng *rand.Rand, keys []int64) *columnar.Batch {
	n := len(keys)
	customers, prices, dates := make([]int64, n), make([]int64, n), make([]int32, n)
	texts := make([]*columnar.Builder, 2)
	for i := range texts {
		var err error
		if texts[i], err = columnar.NewBuilder(catalog.Text); err != nil {
			b.Fatal(err)
		}
	}
	for i := range keys {
		customers[i], prices[i], dates[i] = rng.Int64N(100000), rng.Int64N(1e7), 8000+rng.Int32N(2500)
		for c, s := range []string{[]string{"open", "paid", "sent"}[rng.IntN(3)], fmt.Sprintf("comment %d on order %d", rng.Int64(), keys[i])} {
			if err := texts[c].AppendBytes([]byte(s)); err != nil {
				b.Fatal(err)
			}
		}
	}
	return batchOf(ints(keys...), ints(customers...),
		&columnar.Vector{Type: catalog.PhysicalType(catalog.Decimal(15, 2)), Len: n, Data: columnar.Bytes(prices)},
		&columnar.Vector{Type: catalog.Date, Len: n, Data: columnar.Bytes(dates)}, texts[0].Finish(), texts[1].Finish())
}

// readPoint reads all columns of the row with a key.
func readPoint(b testing.TB, tab *Tablet, ts uint64, key int64) int {
	snap, err := tab.Snapshot(ts)
	if err != nil {
		b.Fatal(err)
	}
	defer snap.Release()
	scanners, err := snap.Scan(ScanOptions{
		Columns: []int{0, 1, 2, 3, 4, 5}, Parallelism: 1, Predicates: []Predicate{{0, OpEqual, []any{key}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	rows := 0
	for {
		batch, err := scanners[0].Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if batch == nil {
			return rows
		}
		rows += batch.Rows()
	}
}

// pointRows is the size of the table that point reads are measured on.
var pointRows = flag.Int("point-rows", 10_000_000, "rows of the table in BenchmarkPointRead")

// BenchmarkPointRead reads single rows of ten million by key, from segments in
// key order and from segments whose keys are shuffled.
func BenchmarkPointRead(b *testing.B) {
	rows := int64(*pointRows)
	for _, order := range []string{"sorted", "shuffled"} {
		b.Run(order, func(b *testing.B) {
			tab := mustTablet(b, openTest(b, b.TempDir()), ordersTable())
			rng := rand.New(rand.NewPCG(3, 4))
			for from := int64(0); from < rows; from += SegmentRows {
				keys := sequence(from, min(SegmentRows, rows-from))
				if order == "shuffled" {
					for i := range keys {
						keys[i] = from + (int64(i)*7919)%int64(len(keys))
					}
				}
				txn := fmt.Sprint(from)
				seg := encoded(b, tab.Table(), ordersBatch(b, rng, keys))
				mustOutcome(b, tab, Staged, stages(txn, 0, seg)...)
				mustOutcome(b, tab, Committed, Commit{Txn: txn, Segments: 1, Timestamp: 1})
			}
			for range 5000 { // sees the checksums of most chunks
				readPoint(b, tab, 1, rng.Int64N(rows))
			}
			b.ReportAllocs()
			var times []time.Duration
			b.ResetTimer()
			for b.Loop() {
				start := time.Now()
				if n := readPoint(b, tab, 1, rng.Int64N(rows)); n != 1 {
					b.Fatalf("%d rows", n)
				}
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}

// sumAll scans both columns of a table of integers.
func sumAll(b testing.TB, tab *Tablet, ts uint64) (sum int64) {
	snap, err := tab.Snapshot(ts)
	if err != nil {
		b.Fatal(err)
	}
	defer snap.Release()
	scanners, err := snap.Scan(ScanOptions{Columns: []int{0, 1}, Parallelism: 1})
	if err != nil {
		b.Fatal(err)
	}
	for {
		batch, err := scanners[0].Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if batch == nil {
			return sum
		}
		for _, v := range batch.Cols {
			values := columnar.Values[int64](v)
			if batch.Sel == nil {
				for _, x := range values[:batch.Len] {
					sum += x
				}
			}
			for _, row := range batch.Sel {
				sum += values[row]
			}
		}
	}
}

// upsertCount is how many rows BenchmarkUpsert replaces.
var upsertCount = flag.Int("upserts", 1_000_000, "rows that BenchmarkUpsert replaces")

// BenchmarkUpsert replaces single rows of a hundred thousand many times, while
// compaction runs as it does in a worker, and compares a scan after that with
// one of a table that was loaded at once.
func BenchmarkUpsert(b *testing.B) {
	const keys = 100_000
	table := intsTable()
	for b.Loop() {
		dir := b.TempDir()
		s, err := Open(Options{Dir: dir, DeletedHistory: time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		tab := mustTablet(b, s, table)
		rng := rand.New(rand.NewPCG(5, 6))
		ts := func() uint64 { return uint64(time.Now().UnixMicro()) << 12 }
		mustOutcome(b, tab, Committed, Commit{Txn: "load", Timestamp: ts(), Inline: encoded(b, table, intsBatch(sequence(0, keys)...)).Parts()[0]})
		start := time.Now()
		group := make([]Command, 0, 64)
		most := 0
		for i := range *upsertCount {
			seg := encoded(b, table, intsBatch(rng.Int64N(keys)))
			group = append(group, Commit{Txn: fmt.Sprint(i), Timestamp: ts(), Inline: seg.Parts()[0], OnConflict: OnConflictReplace})
			if len(group) == cap(group) {
				mustOutcome(b, tab, Committed, group...)
				group = group[:0]
				most = max(most, len(tab.view.Load().manifest))
			}
		}
		b.ReportMetric(float64(*upsertCount)/time.Since(start).Seconds(), "upserts/s")
		b.ReportMetric(float64(most), "most-segments")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		s = openQuiet(b, dir, Options{DeletedHistory: time.Millisecond, QuietAfter: time.Nanosecond})
		tab = mustTablet(b, s, table)
		start = time.Now()
		settle(b, tab)
		b.ReportMetric(time.Since(start).Seconds(), "catch-up-s")
		b.ReportMetric(float64(len(tab.view.Load().manifest)), "segments")
		fresh, err := s.OpenTablet(table, 4711)
		if err != nil {
			b.Fatal(err)
		}
		mustOutcome(b, fresh, Committed, Commit{Txn: "load", Timestamp: ts(), Inline: encoded(b, table, intsBatch(sequence(0, keys)...)).Parts()[0]})
		compare := func(tab *Tablet) time.Duration {
			best := time.Hour
			for range 20 {
				start := time.Now()
				if n := sumAll(b, tab, ts()); n != keys*(keys-1) {
					b.Fatalf("the sum of keys and values is %d", n)
				}
				best = min(best, time.Since(start))
			}
			return best
		}
		after, loaded := compare(tab), compare(fresh)
		b.ReportMetric(float64(after.Microseconds())/1000, "scan-ms")
		b.ReportMetric(float64(loaded.Microseconds())/1000, "fresh-scan-ms")
		b.ReportMetric(float64(after)/float64(loaded), "scan-ratio")
	}
}
