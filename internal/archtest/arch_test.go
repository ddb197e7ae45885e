package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "skein"

// layers lists the top-level directories from the top down. A package may
// import its own directory and those of later layers, never one of its own
// layer or an earlier one.
var layers = [][]string{
	{"cmd"},
	{"gateway", "worker"},
	{"sql"},
	{"flightproto"},
	{"exec"},
	{"planner"},
	{"consensus"},
	{"storage"},
	{"catalog"},
	{"columnar"},
	{"sqlstate"},
}

// outside lists directories with packages that stand beside the layers and may
// be imported by none of them.
var outside = []string{"internal", "examples"}

// wired lists packages of outside that the commands give to the layers below,
// which know them by interfaces of their own.
var wired = []string{module + "/internal/certfiles"}

// forbidden lists modules that a package must not reach even through others.
var forbidden = map[string][]string{
	"planner":  {"google.golang.org/grpc", "github.com/dgraph-io/badger", "github.com/lni/dragonboat"},
	"exec":     {"google.golang.org/grpc", "github.com/dgraph-io/badger", "github.com/lni/dragonboat"},
	"sql":      {"google.golang.org/grpc", "github.com/dgraph-io/badger", "github.com/lni/dragonboat"},
	"storage":  {"google.golang.org/grpc", "github.com/lni/dragonboat"},
	"catalog":  {"google.golang.org/grpc", "github.com/dgraph-io/badger", "github.com/lni/dragonboat"},
	"columnar": {"google.golang.org/grpc", "github.com/dgraph-io/badger", "github.com/lni/dragonboat"},
}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports,Deps", "./...")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	all := map[string]pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles)+len(p.CgoFiles) > 0 {
			all[p.ImportPath] = p
		}
	}
}

// directory is the top-level directory of one of the module's packages.
func directory(importPath string) string {
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}

func layerOf(dir string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, dir) })
}

// violation says why from must not import to, "" if it may.
func violation(from, to string) string {
	a, b := directory(from), directory(to)
	if b == "" || a == b {
		return ""
	}
	switch {
	case a == "cmd" && slices.Contains(wired, to):
		return ""
	case slices.Contains(outside, b):
		return b + " is for no other package"
	case slices.Contains(outside, a):
		return ""
	case layerOf(a) < 0 || layerOf(b) < 0:
		return "one of them is in no layer"
	case layerOf(a) == layerOf(b):
		return "they are of the same layer"
	case layerOf(a) > layerOf(b):
		return "imports point down the layers"
	}
	return ""
}

func TestImportsPointDown(t *testing.T) {
	all := packages(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if path == module {
			continue
		}
		if dir := directory(path); layerOf(dir) < 0 && !slices.Contains(outside, dir) {
			t.Errorf("%s is in no layer; add its directory to the list", path)
			continue
		}
		for _, imported := range all[path].Imports {
			if why := violation(path, imported); why != "" {
				t.Errorf("%s imports %s: %s", path, imported, why)
			}
		}
	}
}

func TestViolation(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		allowed  bool
	}{
		{"skein/gateway", "skein/exec", true},
		{"skein/cmd/skein", "skein/worker", true},
		{"skein/cmd/skein", "skein/cmd/skein/internal/app", true},
		{"skein/exec", "google.golang.org/grpc", true},
		{"skein/gateway", "skein/worker", false},
		{"skein/worker", "skein/gateway", false},
		{"skein/planner", "skein/exec", false},
		{"skein/sqlstate", "skein/catalog", false},
		{"skein/gateway", "skein/cmd/skein", false},
		{"skein/gateway", "skein/internal/archtest", false},
		{"skein/cmd/skein", "skein/internal/archtest", false},
		{"skein/cmd/skein/internal/app", "skein/internal/certfiles", true},
		{"skein/consensus", "skein/internal/certfiles", false},
		{"skein/gateway", "skein/utils", false},
	} {
		if got := violation(tc.from, tc.to) == ""; got != tc.allowed {
			t.Errorf("%s importing %s: allowed is %t, want %t", tc.from, tc.to, got, tc.allowed)
		}
	}
}

func TestForbiddenDependencies(t *testing.T) {
	all := packages(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		for _, prefix := range forbidden[directory(path)] {
			for _, dep := range all[path].Deps {
				if dep == prefix || strings.HasPrefix(dep, prefix+"/") {
					t.Errorf("%s depends on %s", path, dep)
				}
			}
		}
	}
}

// TestPackageComments holds every package to one comment, in doc.go where
// there are several files.
func TestPackageComments(t *testing.T) {
	all := packages(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		p := all[path]
		if path == module || strings.HasSuffix(path, "/pb") { // generated, or no package of the program
			continue
		}
		var commented []string
		for _, name := range append(slices.Clone(p.GoFiles), p.CgoFiles...) {
			file := filepath.Join(p.Dir, name)
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if isPackageComment(parsed) {
				commented = append(commented, name)
			}
		}
		if len(commented) != 1 {
			t.Errorf("%s has %d package comments, want 1: %v", path, len(commented), commented)
		}
	}
}

func isPackageComment(f *ast.File) bool {
	return f.Doc != nil && (strings.HasPrefix(f.Doc.Text(), "Package "+f.Name.Name+" ") ||
		f.Name.Name == "main" && strings.HasPrefix(f.Doc.Text(), "Command "))
}
