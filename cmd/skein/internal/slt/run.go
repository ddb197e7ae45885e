package slt

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Result is what a statement gave.
type Result struct {
	Columns string     // I, R or T for each column
	Rows    [][]string // texts; NULL for null, (empty) for an empty text
	Changed int64      // rows that a statement without a result set changed
}

// Database runs statements.
type Database interface {
	// Run runs one statement to its end. The error of a statement that the
	// database refuses is a *Refusal; any other ends the file.
	Run(ctx context.Context, sql string) (*Result, error)
}

// Refusal is a database's answer to a statement that failed.
type Refusal struct {
	Code string // SQLSTATE
	Err  error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error inside.
func (r *Refusal) Unwrap() error { return r.Err }

// Check runs a record and returns what is wrong with the answer.
func (r *Record) Check(ctx context.Context, db Database) error {
	got, err := db.Run(ctx, r.SQL)
	refusal, refused := err.(*Refusal)
	switch {
	case r.Kind == Error && err == nil:
		return fmt.Errorf("succeeded instead of failing with %s", r.Code)
	case r.Kind == Error && refused && refusal.Code == r.Code:
		return nil
	case r.Kind == Error:
		return fmt.Errorf("failed with another error than %s: %w", r.Code, err)
	case err != nil:
		return err
	case r.Kind == Count && got.Changed != r.Rows:
		return fmt.Errorf("changed %d rows instead of %d", got.Changed, r.Rows)
	case r.Kind == Query:
		return r.compare(got)
	}
	return nil
}

func (r *Record) compare(got *Result) error {
	if got.Columns != r.Types {
		return fmt.Errorf("the columns are %q instead of %q", got.Columns, r.Types)
	}
	want, have := r.Want, got.Rows
	if r.Sort {
		want, have = sorted(want), sorted(have)
	}
	equal := len(want) == len(have)
	for i := 0; equal && i < len(want); i++ {
		equal = slices.EqualFunc(want[i], have[i], sameValue)
	}
	if equal {
		return nil
	}
	return fmt.Errorf("rows:\n%s\nwanted:\n%s", lines(have), lines(want))
}

func sorted(rows [][]string) [][]string {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b []string) int { return slices.Compare(a, b) })
	return rows
}

// sameValue compares two texts; those of numbers with a fraction or an exponent
// by what they mean, as the digits printed are the implementation's.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(a+b, ".e") {
		return false
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && math.Abs(x-y) <= 1e-12*max(math.Abs(x), math.Abs(y))
}

func lines(rows [][]string) string {
	var b strings.Builder
	for _, row := range rows {
		b.WriteString("    " + strings.Join(row, "\t") + "\n")
	}
	return b.String()
}
