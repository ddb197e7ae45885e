package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// wideTable resembles an order line: two key columns, decimals, dates, flags
// and a comment.
func wideTable() *catalog.Table {
	dec := catalog.Decimal(15, 2)
	return tableOf([]int{0, 3}, []arrow.DataType{
		catalog.BigInt, catalog.BigInt, catalog.BigInt, catalog.Integer, dec, dec, dec, dec,
		catalog.Text, catalog.Text, catalog.Date, catalog.Date, catalog.Date, catalog.Text, catalog.Text, catalog.Text,
	}...)
}

// wideBatches are rows in key order.
func wideBatches(b testing.TB, rows int) []*columnar.Batch {
	rng := rand.New(rand.NewPCG(1, 9))
	words := []string{"carefully", "final", "deposits", "sleep", "quickly", "above", "the", "blithely", "ironic", "packages", "haggle"}
	var out []*columnar.Batch
	key, line := int64(1), int32(0)
	for done := 0; done < rows; done += columnar.BatchRows {
		n := min(columnar.BatchRows, rows-done)
		builders := make([]*columnar.Builder, 16)
		for c, col := range wideTable().Columns {
			var err error
			if builders[c], err = columnar.NewBuilder(catalog.PhysicalType(col.Type)); err != nil {
				b.Fatal(err)
			}
		}
		text := func(c int, s string) {
			if err := builders[c].AppendBytes([]byte(s)); err != nil {
				b.Fatal(err)
			}
		}
		for range n {
			if line++; line > 4 {
				line, key = 1, key+1+int64(rng.IntN(8))/7*24
			}
			columnar.AppendFixed(builders[0], key)
			columnar.AppendFixed(builders[1], rng.Int64N(200000))
			columnar.AppendFixed(builders[2], rng.Int64N(10000))
			columnar.AppendFixed(builders[3], line)
			columnar.AppendFixed(builders[4], (1+rng.Int64N(50))*100)
			columnar.AppendFixed(builders[5], rng.Int64N(10_000_000))
			columnar.AppendFixed(builders[6], rng.Int64N(11))
			columnar.AppendFixed(builders[7], rng.Int64N(9))
			text(8, []string{"A", "N", "R"}[rng.IntN(3)])
			text(9, []string{"F", "O"}[rng.IntN(2)])
			for c := 10; c < 13; c++ {
				columnar.AppendFixed(builders[c], int32(8000+rng.IntN(2500)))
			}
			text(13, []string{"DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"}[rng.IntN(4)])
			text(14, []string{"TRUCK", "MAIL", "SHIP", "AIR", "RAIL"}[rng.IntN(5)])
			text(15, fmt.Sprintf("%s %s %s %s", words[rng.IntN(11)], words[rng.IntN(11)], words[rng.IntN(11)], words[rng.IntN(11)]))
		}
		batch := &columnar.Batch{Len: n}
		for _, bl := range builders {
			batch.Cols = append(batch.Cols, bl.Finish())
		}
		out = append(out, batch)
	}
	return out
}

func rowsPerSecond(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkEncodeSegment(b *testing.B) {
	table, batches := wideTable(), wideBatches(b, SegmentRows)
	var size int
	for b.Loop() {
		size = encoded(b, table, batches...).Bytes()
	}
	rowsPerSecond(b, SegmentRows)
	b.ReportMetric(float64(size)/SegmentRows, "bytes/row")
}

func BenchmarkDecodeColumn(b *testing.B) {
	table := wideTable()
	batches := wideBatches(b, SegmentRows)
	for _, c := range []int{0, 1, 3, 5, 8, 10, 15} {
		b.Run(fmt.Sprintf("%s_%d", catalog.TypeName(table.Columns[c].Type), c), func(b *testing.B) {
			v, err := gatherColumn(table, batches, c, SegmentRows)
			if err != nil {
				b.Fatal(err)
			}
			chunk, err := encodeChunk(nil, v)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := decodeChunk(v.Type, SegmentRows, chunk); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(chunk))/SegmentRows, "bytes/row")
		})
	}
}

func loadWide(b *testing.B, segments int) *Tablet {
	s := openTest(b, b.TempDir())
	table := wideTable()
	tab := mustTablet(b, s, table)
	batches := wideBatches(b, segments*SegmentRows)
	per := SegmentRows / columnar.BatchRows
	for i := range segments {
		mustOutcome(b, tab, Staged, stages("load", uint32(i), encoded(b, table, batches[i*per:(i+1)*per]...))...)
	}
	mustOutcome(b, tab, Committed, Commit{Txn: "load", Segments: uint32(segments), Timestamp: 1})
	return tab
}

func BenchmarkScan(b *testing.B) {
	const segments = 4
	tab := loadWide(b, segments)
	for _, mode := range []string{"cold", "cached"} {
		b.Run(mode, func(b *testing.B) {
			for b.Loop() {
				if mode == "cold" {
					tab.store.cache.dropInstance(tab.state.instance)
				}
				snap := mustSnapshot(b, tab, 1)
				scanners, err := snap.Scan(ScanOptions{Columns: []int{4, 5, 6, 10}, Parallelism: 1})
				if err != nil {
					b.Fatal(err)
				}
				for {
					batch, err := scanners[0].Next(context.Background())
					if err != nil {
						b.Fatal(err)
					}
					if batch == nil {
						break
					}
				}
			}
			rowsPerSecond(b, segments*SegmentRows)
		})
	}
}

// BenchmarkCommit measures what a bulk load costs a replica: staging and
// committing encoded segments in key order, keys checked.
func BenchmarkCommit(b *testing.B) {
	table := wideTable()
	seg := encoded(b, table, wideBatches(b, SegmentRows)...)
	s := openTest(b, b.TempDir())
	n := 0
	for b.Loop() {
		n++
		tab, err := s.OpenTablet(table, catalog.TabletID(100+n))
		if err != nil {
			b.Fatal(err)
		}
		mustOutcome(b, tab, Staged, stages("a", 0, seg)...)
		mustOutcome(b, tab, Committed, Commit{Txn: "a", Segments: 1, Timestamp: 1})
	}
	rowsPerSecond(b, SegmentRows)
}

func BenchmarkInsertOneRow(b *testing.B) {
	s := openTest(b, b.TempDir())
	tab := mustTablet(b, s, intsTable())
	i := int64(0)
	for b.Loop() {
		i++
		if r := insert(b, tab, fmt.Sprint(i), uint64(i), intsBatch(i)); r.Outcome != Committed {
			b.Fatal(r.Err)
		}
	}
}

// BenchmarkCheckRandomKeys prepares a segment whose keys interleave with those
// of four committed ones.
func BenchmarkCheckRandomKeys(b *testing.B) {
	s := openTest(b, b.TempDir())
	table := intsTable()
	tab := mustTablet(b, s, table)
	random := func(lane int64) *Segment {
		rng := rand.New(rand.NewPCG(uint64(lane), 1))
		keys := make([]int64, SegmentRows)
		for i := range keys {
			keys[i] = rng.Int64()&^7 | lane
		}
		return encoded(b, table, intsBatch(keys...))
	}
	for lane := range int64(4) {
		txn := fmt.Sprint("base", lane)
		mustOutcome(b, tab, Staged, stages(txn, 0, random(lane))...)
		mustOutcome(b, tab, Committed, Commit{Txn: txn, Segments: 1, Timestamp: 1})
	}
	seg := random(5)
	n := 0
	for b.Loop() {
		n++
		txn := fmt.Sprint(n)
		mustOutcome(b, tab, Staged, stages(txn, 0, seg)...)
		mustOutcome(b, tab, Prepared, Prepare{Txn: txn, Segments: 1, Primary: 1})
		mustOutcome(b, tab, Aborted, Abort{Txn: txn})
	}
}
