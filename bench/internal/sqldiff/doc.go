// Package sqldiff compares Skein with DuckDB on random schemas, data, queries
// and changes to rows.
//
// A seed decides everything. A query is generated once, as a tree, and printed
// once for each engine: where DuckDB's semantics are not PostgreSQL's, the two
// texts differ so that they mean the same (integer division is `//`, a missing
// NULLS FIRST is spelled out, integer constants are cast to the type that
// PostgreSQL gives them, sums of integers are cast to BIGINT, and so on: see
// the templates of forms*.go). Results are compared as multisets, or in order
// where the query orders by all it selects. A difference is shrunk, first the
// query, then the rows, until nothing can be left out.
//
// An error of both engines is agreement. An error of one is a difference,
// except for those of [tolerated], each with its reason.
//
// Not generated, since the engines mean different things by them:
//
//   - text of floating-point values, whose digits are the implementation's;
//   - comparing, grouping or ordering by results of inexact arithmetic (division
//     of floating-point values, roots, averages, ...): they are only selected;
//   - functions over DuckDB's negative positions in substring, characters of
//     several code points in reverse, and case of letters without a single
//     counterpart (ß);
//   - LIKE with a backslash and without ESCAPE, where DuckDB has no escape;
//   - TIME - TIME and TIMESTAMPTZ, whose session zone DuckDB keeps in an extension;
//   - numbers from text that has a fraction, which DuckDB rounds;
//   - comparing intervals that were computed: DuckDB does not always take 1 day
//     719:00:00 as equal to 30 days 23:00:00, nor 3600 days to 10 years;
//   - telling intervals apart that are equal, as 1 month and 30 days are: of
//     equal values in a group, any may be the one that is shown;
//   - infinite dates, and CHAR(n), which DuckDB does not pad or cut;
//   - row_number, lag, first_value and the like where their order has ties.
package sqldiff
