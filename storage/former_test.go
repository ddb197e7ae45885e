package storage

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// formerTable is what the stores of former releases hold.
func formerTable() *catalog.Table {
	return tableOf([]int{0}, catalog.BigInt, catalog.Text, catalog.Decimal(15, 2), catalog.Double, catalog.Date, catalog.Boolean)
}

// formerRows are the rows with keys from first on, of which every seventh has
// nothing but its key.
func formerRows(t testing.TB, first, n int) *columnar.Batch {
	cols := make([]*columnar.Vector, len(formerTable().Columns))
	for c, column := range formerTable().Columns {
		b, err := columnar.NewBuilder(catalog.PhysicalType(column.Type))
		if err != nil {
			t.Fatal(err)
		}
		for key := first; key < first+n; key++ {
			switch {
			case c == 0:
				columnar.AppendFixed(b, int64(key))
			case key%7 == 0:
				b.AppendNull()
			case c == 1:
				if err := b.AppendBytes(fmt.Appendf(nil, "text %d, %d", key%50, key*key)); err != nil {
					t.Fatal(err)
				}
			case c == 2:
				columnar.AppendFixed(b, int64(key*101))
			case c == 3:
				columnar.AppendFixed(b, float64(key)/8)
			case c == 4:
				columnar.AppendFixed(b, int32(10_000+key%9))
			default:
				columnar.AppendFixed(b, uint8(key%2))
			}
		}
		cols[c] = b.Finish()
	}
	return batchOf(cols...)
}

// formerStore makes a store of the records that a former release wrote: lines of
// key, Badger's user byte and value.
func formerStore(t *testing.T, file string, change func(key, value []byte)) *Store {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := openQuiet(t, t.TempDir(), Options{CompactAfter: 2, QuietAfter: time.Nanosecond})
	err = s.db.Update(func(txn *badger.Txn) error {
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var key, value string
			var meta byte
			if _, err := fmt.Sscan(lines.Text(), &key, &meta, &value); err != nil {
				return err
			}
			k, err := base64.StdEncoding.DecodeString(key)
			if err != nil {
				return err
			}
			v, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return err
			}
			change(k, v)
			if err := txn.SetEntry(badger.NewEntry(k, v).WithMeta(meta)); err != nil {
				return err
			}
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFormerReleases opens what former releases stored. Each inserted 5,000 rows
// and 20, deleted three of them if it could, prepared three and staged three.
func TestFormerReleases(t *testing.T) {
	for _, tc := range []struct {
		name              string
		segments, records byte // versions
		deleted           []uint64
	}{
		{"segments1-records1", 1, 1, nil},
		{"segments2-records2", 2, 2, []uint64{3, 4999, 5001}},
		{"segments2-records3", 2, 3, []uint64{3, 4999, 5001}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			heads, records := 0, 0
			s := formerStore(t, filepath.Join("testdata", "former", tc.name+".gz"), func(_, value []byte) {
				switch {
				case len(value) > 4 && binary.LittleEndian.Uint32(value) == segmentMagic:
					heads++
					if value[4] != tc.segments {
						t.Fatalf("a segment of version %d", value[4])
					}
				case len(value) > 0 && value[0] == tc.records:
					records++
				}
			})
			if heads != 4 || records < 3 { // two manifest records and the counters
				t.Fatalf("%d segments and %d records of these versions", heads, records)
			}
			tab := mustTablet(t, s, formerTable())
			want := make([]uint64, 0, 5020)
			for key := range uint64(5020) {
				if len(tc.deleted) == 0 || (key != tc.deleted[0] && key != tc.deleted[1] && key != tc.deleted[2]) {
					want = append(want, key)
				}
			}
			if _, err := tab.Snapshot(100 << 12); err == nil || !strings.Contains(err.Error(), "in doubt") {
				t.Fatalf("a reader does not wait for the prepared transaction: %v", err)
			}
			// The log goes on: the prepared rows get in, a key that exists does not.
			mustOutcome(t, tab, Committed, Commit{Txn: "p", Segments: 1, Timestamp: 40 << 12})
			mustOutcome(t, tab, Committed, Commit{Txn: "q", Segments: 1, Timestamp: 41 << 12})
			want = append(want, 6000, 6001, 6002, 7000, 7001, 7002)
			sameFormer(t, tab, want)
			again := Commit{Txn: "again", Timestamp: 42 << 12, Inline: encoded(t, formerTable(), formerRows(t, 17, 1)).Parts()[0]}
			if r := mustOutcome(t, tab, Aborted, again)[0]; sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
				t.Fatalf("a key that exists: %v", r.Err)
			}
			mustOutcome(t, tab, Committed, Commit{Txn: "gone", Timestamp: 43 << 12, InlineDelete: []uint64{0}})
			settle(t, tab)
			if n := len(tab.view.Load().manifest); n != 1 {
				t.Fatalf("%d segments after compaction", n)
			}
			sameFormer(t, tab, want[1:])
		})
	}
}

// sameFormer checks that a tablet holds the rows with these keys.
func sameFormer(t *testing.T, tab *Tablet, keys []uint64) {
	t.Helper()
	got := readAll(t, tab, 100<<12)
	var parts []*columnar.Batch
	for _, key := range keys {
		parts = append(parts, formerRows(t, int(key), 1))
	}
	for c := range formerTable().Columns {
		vectors := make([]*columnar.Vector, len(parts))
		for i, p := range parts {
			vectors[i] = p.Cols[c]
		}
		want, err := columnar.Concat(vectors[0].Type, vectors)
		if err != nil {
			t.Fatal(err)
		}
		if err := sameValues(got.Cols[c], want); err != nil {
			t.Fatalf("column %d: %v", c, err)
		}
	}
}

// TestLaterReleases: what a later release wrote is refused, not misread.
func TestLaterReleases(t *testing.T) {
	file := filepath.Join("testdata", "former", "segments2-records3.gz")
	for name, change := range map[string]func(key, value []byte){
		"segment": func(_, value []byte) {
			if len(value) > 4 && binary.LittleEndian.Uint32(value) == segmentMagic {
				value[4] = segmentVersion + 1
				end := segmentHead + binary.LittleEndian.Uint32(value[5:])
				binary.LittleEndian.PutUint64(value[end:], xxhash.Sum64(value[:end]))
			}
		},
		"manifest": func(key, value []byte) {
			if len(key) > 18 && key[0] == 'd' && key[18] == keyManifest {
				value[0] = manifestVersion + 1
				end := len(value) - 4
				copy(value, appendSum(value[:end:end]))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := formerStore(t, file, change)
			_, err := s.OpenTablet(formerTable(), testTablet)
			if sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported || !strings.Contains(err.Error(), "version") || !strings.Contains(err.Error(), "reads up to") {
				t.Fatalf("opening it: %v", err)
			}
		})
	}
}
