package tpch

import (
	"strings"
	"testing"
)

func TestFilesAreWhole(t *testing.T) {
	if got := len(CreateTables()); got != len(Tables) {
		t.Errorf("%d statements for %d tables", got, len(Tables))
	}
	for _, table := range Tables {
		if s, err := CreateTable(table, "copy"); err != nil || !strings.HasPrefix(s, "CREATE TABLE copy (") {
			t.Errorf("%s: %q, %v", table, s, err)
		}
	}
	if _, err := CreateTable("item", "copy"); err == nil {
		t.Error("an unknown table gave no error")
	}
	for n := 1; n <= Count; n++ {
		text, err := Query(n)
		if err != nil {
			t.Error(err)
		}
		if ordered := strings.Contains(text[strings.LastIndex(text, "FROM"):], "ORDER BY"); ordered != (len(OrderedBy(n)) > 0) {
			t.Errorf("query %d: ORDER BY is %t, columns are %v", n, ordered, OrderedBy(n))
		}
	}
	if _, err := Query(Count + 1); err == nil {
		t.Error("an unknown query gave no error")
	}
}

func TestPartitioned(t *testing.T) {
	for _, s := range CreateTables() {
		if got := Partitioned(s, 1); got != s {
			t.Errorf("one tablet: %q became %q", s, got)
		}
	}
	lineitem, err := CreateTable("lineitem", "copy")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Partitioned(lineitem, 3), lineitem+" PARTITION BY HASH (l_orderkey) WITH (tablets = 3)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
