package storage

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"

	"skein/catalog"
	"skein/columnar"
)

func TestMain(m *testing.M) {
	if work := os.Getenv(childEnv); work != "" {
		os.Exit(runChild(work))
	}
	goleak.VerifyTestMain(m,
		// Badger's dependency starts these for the life of the process.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

func hashOf(key []byte) uint64 { return xxhash.Sum64(key) }

// openTest opens a store that is closed when the test ends.
// openTest opens a store whose clock stands at the epoch: the tests commit at
// small timestamps, which must not count as old.
func openTest(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Options{Dir: dir, Now: func() time.Time { return time.Unix(0, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const testTablet = catalog.TabletID(42)

func mustTablet(t testing.TB, s *Store, table *catalog.Table) *Tablet {
	t.Helper()
	tab, err := s.OpenTablet(table, testTablet)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// apply applies commands as the next log entry.
func apply(t testing.TB, tab *Tablet, commands ...Command) []Result {
	t.Helper()
	res, err := tab.Apply(tab.Applied()+1, commands...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func mustOutcome(t testing.TB, tab *Tablet, want Outcome, commands ...Command) []Result {
	t.Helper()
	results := apply(t, tab, commands...)
	for i, r := range results {
		if r.Outcome != want || (want != Aborted && r.Err != nil) {
			t.Fatalf("%T: %s, error %v; want %s", commands[i], r.Outcome, r.Err, want)
		}
	}
	return results
}

// stages are the commands that stage a segment.
func stages(txn string, seq uint32, seg *Segment) []Command {
	var out []Command
	for i, p := range seg.Parts() {
		out = append(out, Stage{Txn: txn, Seq: seq, Part: uint32(i), Parts: uint32(len(seg.Parts())), Data: p})
	}
	return out
}

// insert commits a batch in one command.
func insert(t testing.TB, tab *Tablet, txn string, ts uint64, b *columnar.Batch) Result {
	t.Helper()
	seg := encoded(t, tab.Table(), b)
	return apply(t, tab, Commit{Txn: txn, Timestamp: ts, Inline: seg.Parts()[0]})[0]
}

func mustSnapshot(t testing.TB, tab *Tablet, ts uint64) *Snapshot {
	t.Helper()
	s, err := tab.Snapshot(ts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// readAll returns the rows visible at ts in scan order.
func readAll(t testing.TB, tab *Tablet, ts uint64, predicates ...Predicate) *columnar.Batch {
	t.Helper()
	s := mustSnapshot(t, tab, ts)
	opts := ScanOptions{Parallelism: 2, Predicates: predicates}
	for c := range tab.Table().Columns {
		opts.Columns = append(opts.Columns, c)
	}
	return drain(t, s, opts)
}

func drain(t testing.TB, s *Snapshot, opts ScanOptions) *columnar.Batch {
	t.Helper()
	scanners, err := s.Scan(opts)
	if err != nil {
		t.Fatal(err)
	}
	n := len(opts.Columns)
	if opts.RowIDs {
		n++
	}
	out := &columnar.Batch{Cols: make([]*columnar.Vector, n)}
	builders := make([]*columnar.Builder, n)
	for _, sc := range scanners {
		for {
			b, err := sc.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			out.Len += b.Rows()
			for c, v := range b.Cols {
				if builders[c] == nil {
					if builders[c], err = columnar.NewBuilder(v.Type); err != nil {
						t.Fatal(err)
					}
				}
				if err := builders[c].AppendVector(v, b.Sel); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for c, b := range builders {
		out.Cols[c] = &columnar.Vector{Type: catalog.BigInt}
		if b != nil {
			out.Cols[c] = b.Finish()
		}
	}
	return out
}

// keysAt are the values of the first column, a bigint, visible at ts.
func keysAt(t testing.TB, tab *Tablet, ts uint64, predicates ...Predicate) []int64 {
	t.Helper()
	return columnar.Values[int64](readAll(t, tab, ts, predicates...).Cols[0])
}
