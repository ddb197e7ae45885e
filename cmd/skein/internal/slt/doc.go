// Package slt reads and runs test files in the format of sqllogictest:
// statements and queries with the results that they must have. It owns the
// format and the comparison of results and knows nothing of servers; what it
// runs against is a Database.
//
// A file is a list of records with empty lines between them; a # starts a
// comment line.
//
//	statement ok              the statement succeeds
//	statement count 3         and changes so many rows
//	statement error 42P01     it fails with this SQLSTATE
//	query IRT rowsort         the rows, in any order
//
// A query's columns are I for integers, R for other numbers, T for anything
// else. After its statement and a line of ---- come the rows, one per line,
// columns separated by tabs, NULL for null and (empty) for an empty text. The
// order of rows counts unless rowsort says otherwise. Numbers with a fraction
// are compared as numbers, everything else as text. halt ends a file early.
package slt
