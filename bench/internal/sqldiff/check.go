package sqldiff

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"skein/bench/internal/compare"
)

// Engine is one of the two databases.
type Engine interface {
	// Query runs a query to its end.
	Query(ctx context.Context, sql string) (compare.Rows, error)
	// Exec runs a statement without rows.
	Exec(ctx context.Context, sql string) error
}

// Preparer is an engine that can run a query as a prepared statement.
type Preparer interface {
	// QueryPrepared prepares a query with parameters, runs it once with NULLs in
	// their places and returns the rows of its second run, with the values.
	QueryPrepared(ctx context.Context, sql string, values []any) (compare.Rows, error)
}

// Verdict is what a comparison came to.
type Verdict string

// The verdicts. Refused is Skein's 0A000, Tolerated an error of one engine that
// is no difference, Slow a query that one of them did not end in time.
const (
	Agreed     Verdict = "agreed"
	BothFailed Verdict = "both failed"
	Refused    Verdict = "refused"
	Tolerated  Verdict = "tolerated"
	Slow       Verdict = "slow"
	Different  Verdict = "different"
)

// Outcome is a verdict and what it rests on.
type Outcome struct {
	Verdict Verdict
	Code    string // Skein's SQLSTATE, if it failed
	Detail  string
	// Skein and Duck are how long each took.
	Skein, Duck time.Duration
	kind        string // of difference: rows, skein fails, duck fails
}

var statePattern = regexp.MustCompile(`SQLSTATE ([0-9A-Z]{5})`)

// stateOf finds the SQLSTATE in an error's text, as clients see it.
func stateOf(err error) string {
	if m := statePattern.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

// tolerated says why an error of only one engine is no difference, "" if it is
// one. eager queries evaluate every expression for every row.
func tolerated(skein, duck error, eager bool) string {
	if skein != nil {
		code := stateOf(skein)
		switch {
		case strings.HasPrefix(code, "22") && !eager:
			return "which rows an expression is evaluated for is an engine's choice"
		case code == "21000":
			return "a subquery of several rows may never be asked for its value"
		}
		return ""
	}
	text := duck.Error()
	switch {
	case !eager && duckDataError(text):
		return "which rows an expression is evaluated for is an engine's choice"
	case strings.Contains(text, "More than one row returned by a subquery"):
		return "a subquery of several rows may never be asked for its value"
	case strings.Contains(text, "Not implemented Error"), strings.Contains(text, "INTERNAL Error"),
		strings.Contains(text, "Invalid Error: unordered_map::at"):
		return "DuckDB does not do this"
	}
	return ""
}

// duckDataError recognises DuckDB's counterparts of SQLSTATE class 22.
func duckDataError(text string) bool {
	for _, s := range []string{"Out of Range Error", "Conversion Error", "Invalid Input Error"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// eager reports that a query evaluates all it says for all rows of one table.
func (q *Query) eager() bool {
	s := q.Select
	if s == nil || s.From == nil || s.From.Table == "" || s.Where != nil || s.Having != nil || len(s.Group) > 0 ||
		s.Distinct || len(s.DistinctOn) > 0 || q.Limit >= 0 || len(q.With) > 0 {
		return false
	}
	eager := true
	q.walk(func(e *Expr) { eager = eager && !e.Lazy && !e.Whole && e.Sub == nil })
	return eager
}

// Pair is the two engines.
type Pair struct {
	Skein, Duck Engine
	// SmallMemory tolerates that Skein runs out of memory.
	SmallMemory bool
}

// check runs a query on both and compares.
func (p Pair) check(ctx context.Context, q *Query) Outcome {
	began := time.Now()
	got, skeinErr := p.ask(ctx, q)
	skeinTook := time.Since(began)
	if skeinErr != nil && stateOf(skeinErr) == "0A000" {
		return Outcome{Verdict: Refused, Code: "0A000", Detail: skeinErr.Error()}
	}
	began = time.Now()
	want, duckErr := p.Duck.Query(ctx, q.SQL(Duck))
	duckTook := time.Since(began)
	var ordered []int
	if q.ordered() {
		for i := range q.width() {
			ordered = append(ordered, i)
		}
	}
	o := judge(got, want, skeinErr, duckErr, ordered, q.eager())
	o.Skein, o.Duck = skeinTook, duckTook
	if p.SmallMemory && (o.Code == "53200" || o.Code == "53100") {
		o.Verdict = Tolerated
	}
	return o
}

// lost reports that there was no server to answer.
func (o Outcome) lost() bool {
	return o.kind == "skein fails" && strings.Contains(o.Detail, "code = Unavailable")
}

// ask runs a query on Skein.
func (p Pair) ask(ctx context.Context, q *Query) (compare.Rows, error) {
	if q.Prepared && prepares(p.Skein) {
		if text, values := q.PreparedSQL(); len(values) > 0 {
			return p.Skein.(Preparer).QueryPrepared(ctx, text, values)
		}
	}
	return p.Skein.Query(ctx, q.SQL(Skein))
}

func judge(got, want compare.Rows, skeinErr, duckErr error, ordered []int, eager bool) Outcome {
	o := Outcome{Verdict: Agreed}
	if skeinErr != nil {
		o.Code = stateOf(skeinErr)
	}
	switch {
	case errors.Is(skeinErr, context.DeadlineExceeded), errors.Is(duckErr, context.DeadlineExceeded),
		o.Code == "57014", // the server or gRPC may see the deadline pass first
		skeinErr != nil && strings.Contains(skeinErr.Error(), "code = DeadlineExceeded"):
		o.Verdict = Slow
	case skeinErr != nil && (o.Code == "" || strings.HasPrefix(o.Code, "XX") || strings.HasPrefix(o.Code, "57")):
		// Never right, whatever the other side says.
		o.Verdict, o.kind, o.Detail = Different, "skein fails", "Skein: "+skeinErr.Error()
	case skeinErr != nil && duckErr != nil:
		o.Verdict = BothFailed
		o.Detail = skeinErr.Error() + " | " + duckErr.Error()
	case skeinErr != nil || duckErr != nil:
		o.Verdict, o.kind, o.Detail = Different, "skein fails", fmt.Sprint("Skein: ", skeinErr)
		if duckErr != nil {
			o.kind, o.Detail = "duck fails", fmt.Sprint("DuckDB: ", duckErr)
		}
		if why := tolerated(skeinErr, duckErr, eager); why != "" {
			o.Verdict, o.kind = Tolerated, ""
			o.Detail += " (" + why + ")"
		}
	default:
		if diff := compare.Difference(got, want, ordered); diff != "" {
			o.Verdict, o.kind, o.Detail = Different, "rows", "Skein's "+diff
		}
	}
	return o
}

// same reports that two outcomes are failures of one kind, so that a shrinker
// does not slip from one to another.
func (o Outcome) same(as Outcome) bool {
	if o.Verdict != Different || o.kind != as.kind || o.Code != as.Code {
		return false
	}
	mine, _, _ := strings.Cut(o.Detail, "(SQLSTATE")
	others, _, _ := strings.Cut(as.Detail, "(SQLSTATE")
	return o.kind != "skein fails" || mine == others
}

// exec runs a statement on both engines and returns both errors.
func (p Pair) exec(ctx context.Context, texts [2]string) (skein, duck error) {
	return p.Skein.Exec(ctx, texts[Skein]), p.Duck.Exec(ctx, texts[Duck])
}

// execBoth fails when either engine does.
func (p Pair) execBoth(ctx context.Context, skein, duck string) error {
	a, b := p.exec(ctx, [2]string{skein, duck})
	if err := errors.Join(a, b); err != nil {
		return fmt.Errorf("%.200s: %w", skein, err)
	}
	return nil
}
