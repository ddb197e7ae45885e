package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPowerFailure builds what a disk may hold after a power failure: tables,
// which are synced as they are written, and of the logs all that was there at
// the last Sync and any of the pages that were written since. The store must
// come back as of that Sync and take the rest of the log again.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	const seed = 3
	t.Logf("seed %d", seed)
	log := newScript(t, seed, 40)
	digests := log.digests()
	synced, failed := t.TempDir(), t.TempDir()
	durable, records := writeAndFail(t, log, synced, failed)
	rng := rand.New(rand.NewPCG(seed, 1))
	keep := map[string]func(name string) bool{
		"values are lost":      func(name string) bool { return !strings.HasSuffix(name, valueSuffix) },
		"memtables are lost":   func(name string) bool { return !strings.HasSuffix(name, memSuffix) },
		"all is lost":          func(string) bool { return false },
		"half is lost":         func(string) bool { return rng.IntN(2) == 0 },
		"one in ten is lost":   func(string) bool { return rng.IntN(10) > 0 },
		"nine in ten are lost": func(string) bool { return rng.IntN(10) == 0 },
	}
	for name, kept := range keep {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyStore(t, failed, dir)
			lost := loseUnsynced(t, dir, synced, kept)
			if lost == 0 {
				t.Fatal("no page was lost")
			}
			s := openQuiet(t, dir, scriptOptions(dir, "second"))
			tab := mustTablet(t, s, scriptTable())
			if tab.Applied() != durable || digest(t, tab) != digests[durable] {
				t.Fatalf("%d pages lost: the store is at %d and differs from the log: %t; the last sync was at %d",
					lost, tab.Applied(), digest(t, tab) != digests[tab.Applied()], durable)
			}
			if got := s.Records(1).Applied(); got != records {
				t.Fatalf("the records are at %d, not %d", got, records)
			}
			if err := log.replay(tab, nil); err != nil {
				t.Fatal(err)
			}
			settle(t, tab)
			if digest(t, tab) != digests[log.index] {
				t.Fatal("after the rest of the log the store differs from it")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if report, err := Check(dir); err != nil || len(report.Problems) > 0 {
				t.Fatalf("the check says %+v, %v", report, err)
			}
		})
	}
}

// writeAndFail applies the log and syncs half-way. It copies what is on the
// disk then, and at the end, when memtables have been flushed, segments merged
// and values moved. It returns the
// indexes of the tablet and the records at the sync.
func writeAndFail(t *testing.T, log *script, synced, failed string) (durable, records uint64) {
	dir := t.TempDir()
	s := openQuiet(t, dir, scriptOptions(dir, "first"))
	tab := mustTablet(t, s, scriptTable())
	n := 0
	err := log.replay(tab, func(e logEntry) error {
		switch n++; {
		case n == len(log.entries)/2:
			durable, records = e.index, s.Records(1).Applied()
			if err := s.Sync(); err != nil {
				return err
			}
			copyStill(t, dir, synced)
		case n%5 == 0:
			settle(t, tab)
		case n%7 == 0:
			return flushMemtable(s.Records(1), n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	copyStill(t, dir, failed)
	return durable, records
}

// flushMemtable writes more than a memtable of small values.
func flushMemtable(r *Records, n int) error {
	for i := range 40 {
		var puts []Record
		for k := range 64 {
			puts = append(puts, Record{Key: fmt.Appendf(nil, "%d-%d-%d", n, i, k), Value: bytes.Repeat([]byte{byte(k)}, valueThreshold-10)})
		}
		if err := r.Update(uint64(n), puts, nil); err != nil {
			return err
		}
	}
	return nil
}

// copyStill copies an open store of which the test writes nothing: again if
// Badger's own work changed the set of files meanwhile.
func copyStill(t *testing.T, from, to string) {
	t.Helper()
	for {
		before, err := listStore(from)
		if err != nil {
			t.Fatal(err)
		}
		copyStore(t, from, to)
		after, err := listStore(from)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(before.mems, after.mems) && slices.Equal(before.tables, after.tables) && slices.Equal(before.values, after.values) {
			return
		}
		entries, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.Remove(filepath.Join(to, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// loseUnsynced sets pages of logs that differ from the synced ones back unless
// they are kept, and returns how many.
func loseUnsynced(t *testing.T, dir, synced string, kept func(name string) bool) (lost int) {
	t.Helper()
	files, err := listStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(files.mems, files.values, []string{"DISCARD"}) {
		now, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.ReadFile(filepath.Join(synced, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		old = append(old[:min(len(old), len(now))], make([]byte, max(len(now)-len(old), 0))...)
		for at := 0; at < len(now); at += diskPage {
			end := min(at+diskPage, len(now))
			if !bytes.Equal(now[at:end], old[at:end]) && !kept(name) {
				copy(now[at:end], old[at:end])
				lost++
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return lost
}
