package demo

import (
	"bytes"
	"testing"

	"skein/cmd/skein/internal/source"
)

func TestSampleFilesAreWhole(t *testing.T) {
	total := 0
	for name, want := range map[string]int64{"geese.csv": 24, "fixes.csv": 24 * 150} {
		content, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(content)
		rows, err := source.NewCSV(bytes.NewReader(content), source.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		for rows.Next() {
			n += rows.RecordBatch().NumRows()
		}
		if rows.Err() != nil || n != want {
			t.Errorf("%s: %d rows, error %v; want %d", name, n, rows.Err(), want)
		}
		rows.Release()
	}
	if total > 300<<10 {
		t.Errorf("the samples take %d bytes of the binary", total)
	}
}
