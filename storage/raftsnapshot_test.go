package storage

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"skein/sqlstate"
)

func saved(t testing.TB, tab *Tablet) []byte {
	t.Helper()
	snap, err := tab.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	var buf bytes.Buffer
	if err := tab.SaveSnapshot(snap, &buf, nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestRaftSnapshot(t *testing.T) {
	from := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	insert(t, from, "a", 1, intsBatch(sequence(0, 20000)...))
	mustOutcome(t, from, Staged, stages("p", 0, encoded(t, from.Table(), intsBatch(-1)))...)
	mustOutcome(t, from, Prepared, Prepare{Txn: "p", Segments: 1, Primary: 3})
	mustOutcome(t, from, Staged, stages("s", 0, encoded(t, from.Table(), intsBatch(-2)))...)
	pinned, err := from.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Release()
	insert(t, from, "later", 2, intsBatch(50000))
	var stream bytes.Buffer
	if err := pinned.Save(&stream, nil); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	s := openTest(t, dir)
	to := mustTablet(t, s, intsTable())
	insert(t, to, "old", 1, intsBatch(7, 8))
	reader := mustSnapshot(t, to, 1)
	good := stream.Bytes()
	for _, cut := range []int{0, 10, 18, 30, len(good) / 2, len(good) - 17, len(good) - 1} {
		if err := to.InstallSnapshot(bytes.NewReader(good[:cut]), nil); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
			t.Errorf("a stream cut at %d of %d: %v", cut, len(good), err)
		}
	}
	for _, at := range []int{0, 5, 8, 20, 40, len(good) / 2, len(good) - 3} {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if err := to.InstallSnapshot(bytes.NewReader(bad), nil); err == nil {
			t.Errorf("a stream damaged at %d was installed", at)
		}
	}
	stopped := make(chan struct{})
	close(stopped)
	if err := to.InstallSnapshot(bytes.NewReader(good), stopped); !errors.Is(err, errStopped) {
		t.Errorf("stopped: %v", err)
	}
	if got := keysAt(t, to, 1); !slices.Equal(got, []int64{7, 8}) || to.Applied() != 1 {
		t.Fatalf("after failed installs: rows %v, applied %d", got, to.Applied())
	}
	if err := to.InstallSnapshot(bytes.NewReader(good), nil); err != nil {
		t.Fatal(err)
	}
	check := func(to *Tablet) {
		t.Helper()
		if to.Applied() != pinned.Applied() || len(to.InDoubt()) != 1 || len(to.Staged()) != 1 || to.Rows() != 20000 {
			t.Fatalf("applied %d of %d, %d rows", to.Applied(), pinned.Applied(), to.Rows())
		}
	}
	check(to)
	if got := drain(t, reader, ScanOptions{Columns: []int{0}}).Len; got != 2 {
		t.Errorf("a reader of the replaced state sees %d rows", got)
	}
	reader.Release()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	to = mustTablet(t, openTest(t, dir), intsTable())
	check(to)
	mustOutcome(t, to, Committed, Commit{Txn: "p", Segments: 1, Timestamp: 5}, Commit{Txn: "s", Segments: 1, Timestamp: 5})
	if got := readAll(t, to, 5).Len; got != 20002 {
		t.Errorf("%d rows", got)
	}
	if r := insert(t, to, "dup", 6, intsBatch(123)); sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
		t.Errorf("%+v", r)
	}
	if err := to.InstallSnapshot(bytes.NewReader(saved(t, to)), nil); err != nil {
		t.Errorf("installing twice: %v", err)
	}
}
