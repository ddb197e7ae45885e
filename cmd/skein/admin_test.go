package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listing is the names, sizes and times of a directory's files.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAdminCheck checks a node's data while it runs, after it was killed, and
// after files were damaged: the exit code says which, and nothing changes.
func TestAdminCheck(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	server := startDev(t, data)
	c := dial(t, server.flight)
	mustExec(t, c, crashTables["single"])
	b := batch{"b", "single", 50_000}
	if err := b.ingest(testContext(t), c); err != nil {
		t.Fatal(err)
	}
	expect := func(when, dir string, code int, want ...string) {
		t.Helper()
		before := ""
		if code != exitInUse && code != exitFailure {
			before = listing(t, dir)
		}
		out, errs, got := command(t, "", "admin", "check", dir)
		if got != code {
			t.Errorf("%s: code %d, not %d: %s%s", when, got, code, out, errs)
		}
		for _, text := range want {
			if !strings.Contains(out+errs, text) {
				t.Errorf("%s: %q and %q do not say %q", when, out, errs, text)
			}
		}
		if before != "" && listing(t, dir) != before {
			t.Errorf("%s: the directory has changed", when)
		}
	}
	expect("running", data, exitInUse, "55006", "in use by process", "stop the node")
	server.kill()
	expect("killed", data, 0, "the node was not stopped", "1 tablets", "50000 rows")
	startDev(t, data).stop()
	expect("stopped", data, 0, "1 tablets", "50000 rows")
	expect("missing", filepath.Join(data, "nothing"), exitFailure, "no such file")

	store := storeDir(data)
	tables, err := filepath.Glob(filepath.Join(store, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, path := range []string{tables[0], filepath.Join(store, "MANIFEST")} {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(nil), good...)
		bad[len(bad)/2] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		expect("damaged", data, exitDamaged, "damaged: ", filepath.Base(path), "1 damages in "+data)
		_, errs, code := command(t, "", "dev", "--data", data, "--flight", "127.0.0.1:0", "--http", "")
		if code != exitFailure || !strings.Contains(errs, "XX001") || !strings.Contains(errs, filepath.Base(path)) || strings.Contains(errs, "goroutine ") {
			t.Errorf("starting with a damaged %s: code %d, %q", filepath.Base(path), code, errs)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startDev(t, data).stop()
}
