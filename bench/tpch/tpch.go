// Package tpch holds the TPC-H schema and queries, and what a benchmark must
// know about them: the tables in load order and each query's result order.
package tpch

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed schema.sql queries/*.sql
var files embed.FS

// Tables lists the tables in the order they are loaded.
var Tables = []string{"region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem"}

// Basic lists the queries without subqueries, the default of a run.
var Basic = []int{1, 3, 5, 6, 10, 12, 14}

// Count is the number of queries; they are numbered from 1.
const Count = 22

// orderedBy lists, for each query, the output columns of its ORDER BY.
var orderedBy = map[int][]int{
	1: {0, 1}, 2: {0, 2, 1, 3}, 3: {1, 2}, 4: {0}, 5: {1}, 7: {0, 1, 2}, 8: {0}, 9: {0, 1}, 10: {2},
	11: {1}, 12: {0}, 13: {1, 0}, 15: {0}, 16: {3, 0, 1, 2}, 18: {4, 3}, 20: {0}, 21: {1, 0}, 22: {0},
}

// CreateTables returns the statements that create the schema, one a table.
func CreateTables() []string {
	text, err := files.ReadFile("schema.sql")
	if err != nil {
		return nil // the embedded file is there or the package does not compile
	}
	var statements []string
	for s := range strings.SplitSeq(string(text), ";") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}

// Partitioned returns a CREATE TABLE statement of this schema with the table cut
// into tablets by the hash of its first column, so that tables joined on their
// leading key are colocated; region and nation stay whole.
func Partitioned(statement string, tablets int) string {
	table, columns, _ := strings.Cut(strings.TrimPrefix(statement, "CREATE TABLE "), " ")
	if tablets <= 1 || table == "region" || table == "nation" {
		return statement
	}
	key, _, _ := strings.Cut(strings.TrimPrefix(columns, "("), " ")
	return fmt.Sprintf("%s PARTITION BY HASH (%s) WITH (tablets = %d)", statement, key, tablets)
}

// CreateTable returns the statement for one table under another name.
func CreateTable(table, name string) (string, error) {
	prefix := "CREATE TABLE " + table + " "
	for _, s := range CreateTables() {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			return "CREATE TABLE " + name + " " + rest, nil
		}
	}
	return "", fmt.Errorf("no table %q in the TPC-H schema", table)
}

// Query returns the text of query n.
func Query(n int) (string, error) {
	text, err := files.ReadFile(fmt.Sprintf("queries/q%02d.sql", n))
	if err != nil {
		return "", fmt.Errorf("no TPC-H query %d", n)
	}
	return strings.TrimSpace(string(text)), nil
}

// OrderedBy returns the output columns that query n orders its result by.
func OrderedBy(n int) []int { return orderedBy[n] }
