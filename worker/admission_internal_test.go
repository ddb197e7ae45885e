package worker

import (
	"testing"

	"skein/sqlstate"
	"skein/storage"
)

// TestFullDiskRefusesRowsOnly: what ends transactions must reach the log when
// no space is left for rows.
func TestFullDiskRefusesRowsOnly(t *testing.T) {
	for _, tc := range []struct {
		command storage.Command
		rows    bool
	}{
		{storage.Stage{Data: []byte{1}}, true},
		{storage.Commit{Inline: []byte{1}}, true},
		{storage.Commit{Segments: 1}, false},
		{storage.Prepare{}, false},
		{storage.Abort{}, false},
	} {
		if got := carriesRows(tc.command); got != tc.rows {
			t.Errorf("%T carries rows: %v", tc.command, got)
		}
	}
	store, err := storage.Open(storage.Options{Dir: t.TempDir(), ReserveBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := store.CheckSpace(); err != nil {
		t.Errorf("with space: %v", err)
	}
	if err := store.CheckSpaceFor(1 << 61); sqlstate.CodeOf(err) != sqlstate.DiskFull {
		t.Errorf("without: %v", err)
	}
}
