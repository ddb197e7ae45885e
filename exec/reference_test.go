package exec

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/functions.md")

// reference is the page of all functions and operators.
func reference() string {
	var b strings.Builder
	b.WriteString(`# Functions and operators

Written by ` + "`go test ./exec -run TestReference -update`" + ` from the registry that names are resolved with. Aggregates and window
functions are in [sql.md](sql.md). *number* stands for numeric types promoted to a common one, *any* for any type, *same
type* for the type of the first argument. Unless the text says otherwise, the result is NULL when an argument is.

| function | result | |
|---|---|---|
`)
	for _, d := range FunctionDocs() {
		var calls, results []string
		for _, s := range d.Signatures {
			call, result, _ := strings.Cut(s, " -> ")
			calls = append(calls, "`"+strings.ReplaceAll(call, "|", `\|`)+"`")
			if len(results) == 0 || results[len(results)-1] != result {
				results = append(results, result)
			}
		}
		text := d.Doc
		if len(d.Aliases) > 0 {
			text += " Also `" + strings.Join(d.Aliases, "`, `") + "`."
		}
		b.WriteString("| " + strings.Join(calls, "<br>") + " | " + strings.Join(results, ", ") + " | " + strings.ReplaceAll(text, "|", `\|`) + " |\n")
	}
	return b.String()
}

func TestReference(t *testing.T) {
	const path = "../docs/functions.md"
	if *update {
		if err := os.WriteFile(path, []byte(reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != reference() {
		t.Errorf("%s is not what the registry says: run this test with -update", path)
	}
}
