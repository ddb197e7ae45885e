package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// damages are what may happen to a file; at is a position in it.
var damages = map[string]func(b []byte, at int) []byte{
	"a bit flips":           func(b []byte, at int) []byte { b[at] ^= 1 << (at % 8); return b },
	"a byte is overwritten": func(b []byte, at int) []byte { b[at] = ^b[at]; return b },
	"a page is zero": func(b []byte, at int) []byte {
		clear(b[at:min(at+diskPage, len(b))])
		return b
	},
	"the end is missing": func(b []byte, at int) []byte { return b[:at] },
}

// openDamaged checks and opens a store, and reads all of it. It prints the
// digest, or that the store is refused, and why.
func openDamaged(t *childT, w childWork) (err error) {
	report, err := Check(w.Dir)
	switch {
	case err != nil:
		fmt.Println("check failed:", err)
	case len(report.Problems) > 0:
		fmt.Println("check damaged:", report.Problems[0])
	default:
		fmt.Println("check healthy")
	}
	s, err := Open(scriptOptions(w.Dir, w.Boot))
	if err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	defer func() {
		var failed childFailure
		if r := recover(); r != nil && !errors.As(asError(r), &failed) {
			panic(r)
		} else if r != nil {
			fmt.Println("refused:", r)
		}
		err = errors.Join(err, s.Close())
	}()
	tab, err := s.OpenTablet(scriptTable(), testTablet)
	if err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	digest(t, tab)
	if err := newScript(t, w.Seed, w.Count).replay(tab, nil); err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	fmt.Println("digest", digest(t, tab))
	return nil
}

func asError(r any) error {
	err, _ := r.(error)
	return err
}

// TestDamagedFiles damages every kind of file of a store that was closed, and
// of one whose process was killed, in many places: the store is refused with an
// error that says so, or a read is, or all data is right after the rest of the
// log was applied. The check says the same as the store.
func TestDamagedFiles(t *testing.T) {
	const seed, entries, places = 5, 24, 3
	log := newScript(t, seed, entries)
	digests := log.digests()
	t.Logf("seed %d", seed)
	for _, killed := range []bool{false, true} {
		good := t.TempDir()
		work := childWork{Kind: "script", Dir: good, Seed: seed, Count: entries, Boot: "first"}
		if killed {
			work.Point, work.Hit = FaultApplied, entries-1
		}
		if r := child(t, work); r.killed != killed || (!killed && r.code != 0) {
			t.Fatalf("the process ended with %d:\n%s", r.code, r.stderr)
		}
		work.Kind = "open"
		for _, name := range damageable(t, good, killed) {
			t.Run(fmt.Sprintf("killed %t/%s", killed, name), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
				outcomes := map[string]int{}
				for range places {
					for what, damage := range damages {
						outcomes[damageOne(t, work, good, name, what, damage, rng, digests[log.index])]++
					}
				}
				t.Log(outcomes)
			})
		}
	}
}

// damageable picks one file of each kind, two of those that go on growing, and
// expects that all are there.
func damageable(t *testing.T, dir string, killed bool) []string {
	t.Helper()
	files, err := listStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{manifestName, markName, "KEYREGISTRY", "DISCARD"}
	if len(files.tables) == 0 || len(files.values) < 2 || killed != (len(files.mems) > 0) {
		t.Fatalf("the store has %+v", files)
	}
	out = append(out, files.tables[len(files.tables)/2])
	out = append(out, files.values[0])
	return append(append(out, files.values[len(files.values)-1]), files.mems...)
}

// damageOne damages a copy of the store and returns what became of it.
func damageOne(t *testing.T, work childWork, good, name, what string, damage func([]byte, int) []byte, rng *rand.Rand, want uint64) string {
	t.Helper()
	work.Dir = t.TempDir()
	copyStore(t, good, work.Dir)
	path := filepath.Join(work.Dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Most of a log is room for more.
	used := max(len(bytes.TrimRight(b, "\x00")), 1)
	at := rng.IntN(used)
	before := slices.Clone(b)
	b = damage(b, at)
	if bytes.Equal(before, b) {
		return "unchanged"
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	r := child(t, work)
	answer := ""
	if len(r.lines) > 1 {
		answer = r.lines[1]
	}
	context := fmt.Sprintf("%s at byte %d of %d (%d used)", what, at, len(before), used)
	switch {
	case r.code != 0 || r.killed:
		t.Errorf("%s: the process ended with %d:\n%.2000s", context, r.code, r.stderr)
	case strings.HasPrefix(answer, "refused:"):
		if !strings.Contains(answer, "XX001") || !(strings.Contains(answer, work.Dir) || strings.Contains(answer, "tablet 42")) {
			t.Errorf("%s: %s", context, answer)
		}
		if r.lines[0] == "check healthy" {
			t.Errorf("%s: the check finds nothing, the store says %s", context, answer)
		}
		return "refused"
	case answer != fmt.Sprint("digest ", want):
		t.Errorf("%s: %q, want %d", context, answer, want)
	}
	return "right"
}
