package consensus

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skein/catalog"
)

func TestIdentityClaimsOnceAndFailsClosed(t *testing.T) {
	mine, err := Founder("c", "id", 7, map[catalog.NodeID]Peer{7: {RaftAddress: "h:1", FlightAddress: "h:2"}})
	if err != nil {
		t.Fatal(err)
	}
	claimed := func(t *testing.T) (dir, file string) {
		dir = t.TempDir()
		if err := Provision(dir, mine); err != nil {
			t.Fatal(err)
		}
		return dir, filepath.Join(dir, identityFile)
	}
	rewrite := func(edit func([]byte) []byte) func(t *testing.T) string {
		return func(t *testing.T) string {
			dir, file := claimed(t)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, edit(data), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}
	}
	replace := func(from, to string) func(t *testing.T) string {
		return rewrite(func(b []byte) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) })
	}
	for _, test := range []struct {
		name   string
		dir    func(t *testing.T) string
		accept bool
	}{
		{"fresh", func(t *testing.T) string { return t.TempDir() }, true},
		{"own", func(t *testing.T) string { dir, _ := claimed(t); return dir }, true},
		{"interrupted first start", func(t *testing.T) string {
			dir := t.TempDir()
			for _, name := range []string{lockFile, identityFile + ".tmp"} {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		}, true},
		{"garbage", func(t *testing.T) string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "photo.jpg"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}, false},
		{"other node", replace(`"node": 7`, `"node": 8`), false},
		{"other cluster", replace(`"c"`, `"d"`), false},
		{"newer format", replace(`"format": 2`, `"format": 3`), false},
		{"missing", func(t *testing.T) string { return filepath.Join(t.TempDir(), "new") }, true},
		{"half created", func(t *testing.T) string {
			dir, file := claimed(t)
			if err := errors.Join(os.Remove(file), os.Mkdir(filepath.Join(dir, "store"), 0o755)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, false},
		{"joined", replace(`"incarnation"`, `"joined": true, "incarnation"`), false},
		{"unknown field", replace(`"format"`, `"shape"`), false},
		{"truncated", rewrite(func(b []byte) []byte { return b[:len(b)/2] }), false},
		{"empty", rewrite(func([]byte) []byte { return nil }), false},
		{"trailing", rewrite(func(b []byte) []byte { return append(b, "{}"...) }), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := test.dir(t)
			err := Provision(dir, mine)
			if got, again := ReadIdentity(dir); err == nil && (again != nil || got.String() != mine.String() || got.ClusterID != "id") {
				t.Fatalf("read back %+v, %v", got, again)
			}
			if test.accept && err != nil {
				t.Fatal(err)
			}
			if !test.accept && !errors.Is(err, ErrForeignDirectory) {
				t.Fatalf("got %v", err)
			}
		})
	}
	dir, _ := claimed(t)
	other := mine
	other.Node = 9
	err = Provision(dir, other)
	if !errors.Is(err, ErrForeignDirectory) || !strings.Contains(err.Error(), "node 7") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("another node's directory: %v", err)
	}
}

func TestDirectoryLockNamesItsHolder(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDirectory(dir, "the first")
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDirectory(dir, "the second")
	if !errors.Is(err, ErrDirectoryInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "the first") {
		t.Fatalf("second lock: %v", err)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	second, err := lockDirectory(dir, "the second")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.release(); err != nil {
		t.Fatal(err)
	}
}

func TestStartNodeRefusals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	ctx := testContext(t)
	refuse := func(name string, want error, edit func(*NodeConfig)) {
		t.Helper()
		cfg := c.config(1)
		edit(&cfg)
		n, err := StartNode(ctx, cfg)
		if err == nil {
			_ = n.Close(ctx)
			t.Fatalf("%s: started", name)
		}
		if want != nil && !errors.Is(err, want) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	refuse("second process", ErrDirectoryInUse, func(*NodeConfig) {})
	refuse("port in use", nil, func(cfg *NodeConfig) { cfg.DataDir = t.TempDir() })
	refuse("not a member", nil, func(cfg *NodeConfig) { cfg.NodeID = 5 })
	refuse("address twice", nil, func(cfg *NodeConfig) {
		cfg.Members = map[catalog.NodeID]Peer{1: c.members[1], 2: c.members[1]}
	})
	c.stop(1)
	refuse("other cluster", ErrForeignDirectory, func(cfg *NodeConfig) { cfg.Cluster = "else" })
	refuse("other members", ErrMembership, func(cfg *NodeConfig) {
		cfg.Members = map[catalog.NodeID]Peer{1: c.members[1], 2: {RaftAddress: freeAddress(t)}}
	})
	refuse("not provisioned", ErrNotProvisioned, func(cfg *NodeConfig) {
		cfg.InitIfEmpty, cfg.DataDir = false, t.TempDir()
	})
	refuse("no directory", ErrNotProvisioned, func(cfg *NodeConfig) {
		cfg.InitIfEmpty, cfg.DataDir = false, filepath.Join(t.TempDir(), "none")
	})
	refuse("lost Raft log", ErrForeignDirectory, func(cfg *NodeConfig) {
		if err := os.Rename(filepath.Join(cfg.DataDir, "raft"), filepath.Join(t.TempDir(), "raft")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseIsRepeatable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	n := c.nodes[1]
	for range 2 {
		if err := n.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
