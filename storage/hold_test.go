package storage

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"skein/sqlstate"
)

func TestHoldsKeepTheirPromises(t *testing.T) {
	type step struct {
		hold Hold
		at   Bounds // of a command after the hold
		want uint64 // what its timestamp must exceed
	}
	for name, steps := range map[string][]step{
		"none":           {{Hold{}, Bounds{Session: 7}, 0}},
		"reads before":   {{Hold{}, Bounds{After: 5}, 5}},
		"closed":         {{Hold{Closed: 9}, Bounds{Session: 7, After: 5}, 9}},
		"own lease":      {{Hold{Session: 7, Until: 20}, Bounds{Session: 7}, 0}},
		"foreign lease":  {{Hold{Session: 7, Until: 20}, Bounds{Session: 8}, 20}, {Hold{}, Bounds{}, 20}},
		"closed by less": {{Hold{Closed: 9}, Bounds{}, 9}, {Hold{Closed: 3}, Bounds{}, 9}},
		"extended":       {{Hold{Session: 7, Until: 20}, Bounds{}, 20}, {Hold{Session: 7, Until: 30}, Bounds{}, 30}, {Hold{Session: 7, Until: 25}, Bounds{}, 30}},
		"taken over":     {{Hold{Session: 7, Until: 20}, Bounds{}, 20}, {Hold{Session: 8, Until: 10}, Bounds{Session: 8}, 20}, {Hold{}, Bounds{Session: 7}, 20}},
		"released":       {{Hold{Session: 7, Until: 20}, Bounds{}, 20}, {Hold{Session: 7, Until: 12, Release: true}, Bounds{}, 12}},
		"not released":   {{Hold{Session: 7, Until: 20}, Bounds{}, 20}, {Hold{Session: 8, Until: 12, Release: true}, Bounds{}, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			var h holdCounters
			for i, s := range steps {
				h.hold(s.hold)
				if got := h.floor(s.at); got != s.want {
					t.Errorf("step %d: floor %d, want %d", i, got, s.want)
				}
			}
		})
	}
}

// TestHoldsBoundCommands: timestamps and floors move up, what was prepared stays,
// and all of it survives a restart.
func TestHoldsBoundCommands(t *testing.T) {
	dir := t.TempDir()
	store := openTest(t, dir)
	table := intsTable()
	tablet, err := store.OpenTablet(table, 1)
	if err != nil {
		t.Fatal(err)
	}
	index := uint64(0)
	apply := func(c Command) Result {
		t.Helper()
		index++
		encoded, err := EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := DecodeCommand(encoded)
		if err != nil {
			t.Fatal(err)
		}
		results, err := tablet.Apply(index, decoded)
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	row := func(key int64) []byte { return encoded(t, table, intsBatch(key)).Parts()[0] }
	apply(Stage{Txn: "p", Parts: 1, Data: row(1)})
	if r := apply(Prepare{Txn: "p", Segments: 1, Primary: 1, Floor: 10}); r.Outcome != Prepared {
		t.Fatal(r)
	}
	apply(Hold{Session: 7, Until: 100, Closed: 50})
	if closed, own := tablet.Promised(7); closed != 50 || own != 100 {
		t.Fatalf("promised %d and %d", closed, own)
	}
	if r := apply(Commit{Txn: "p", Segments: 1, Timestamp: 11}); r.Timestamp != 11 {
		t.Fatalf("a prepared transaction commits as %+v", r)
	}
	if r := apply(Commit{Txn: "own", Timestamp: 20, Inline: row(2), Bounds: Bounds{Session: 7}}); r.Timestamp != 51 {
		t.Fatalf("the holder commits as %+v", r)
	}
	if r := apply(Commit{Txn: "other", Timestamp: 20, Inline: row(3), Bounds: Bounds{Session: 8}}); r.Timestamp != 101 {
		t.Fatalf("another session commits as %+v", r)
	}
	apply(Stage{Txn: "q", Parts: 1, Data: row(4)})
	apply(Prepare{Txn: "q", Segments: 1, Primary: 1, Floor: 60})
	if doubt := tablet.InDoubt(); len(doubt) != 1 || doubt[0].Floor != 100 {
		t.Fatalf("in doubt: %+v", doubt)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openTest(t, dir)
	if tablet, err = store.OpenTablet(table, 1); err != nil {
		t.Fatal(err)
	}
	if closed, own := tablet.Promised(7); closed != 50 || own != 100 || tablet.LastTimestamp() != 101 {
		t.Fatalf("promised %d and %d, last timestamp %d after a restart", closed, own, tablet.LastTimestamp())
	}
	if r := apply(Truncate{Txn: "r", Timestamp: 30}); r.Outcome != Aborted {
		t.Fatalf("truncating under a prepared transaction: %+v", r)
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	for name, letter := range map[string]byte{"values": keyPart, "manifest": keyManifest, "counters": keyApplied} {
		t.Run(name, func(t *testing.T) {
			store := openTest(t, t.TempDir())
			table := intsTable()
			tablet, err := store.OpenTablet(table, 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tablet.Apply(1, Commit{Txn: "a", Timestamp: 5, Inline: encoded(t, table, intsBatch(1)).Parts()[0]}); err != nil {
				t.Fatal(err)
			}
			read := 0
			pace := func(_ context.Context, bytes int) error { read += bytes; return nil }
			if err := tablet.Verify(t.Context(), pace); err != nil || read == 0 {
				t.Fatalf("%d bytes, %v", read, err)
			}
			if err := tablet.Verify(t.Context(), func(context.Context, int) error { return errChecksum }); !errors.Is(err, errChecksum) {
				t.Fatalf("a pace that gives up: %v", err)
			}
			err = store.db.Update(func(txn *badger.Txn) error {
				return tablet.state.space.scan(txn, []byte{letter}, func(key, value []byte) error {
					bad := append([]byte(nil), value...)
					bad[len(bad)-1] ^= 1
					return txn.Set(tablet.state.space.key(key), bad)
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := tablet.Verify(t.Context(), pace); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
				t.Fatalf("damage is answered by %v", err)
			}
			snapshot, err := tablet.PrepareSnapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snapshot.Release()
			if err := snapshot.Save(io.Discard, nil); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
				t.Fatalf("a damaged snapshot is sent: %v", err)
			}
		})
	}
}
