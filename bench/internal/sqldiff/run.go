package sqldiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"skein/bench/internal/compare"
)

// Options say what a run does.
type Options struct {
	Seed    uint64
	Round   uint64 // the first round
	Queries int
	// Changes is how many changes each round ends with.
	Changes int
	// Limit ends the run early, between queries; 0 is no limit.
	Limit time.Duration
	// Shrink bounds the candidates tried for each difference.
	Shrink int
	// Stop ends the run after so many differences; 0 never.
	Stop int
	// Timeout bounds each statement.
	Timeout time.Duration
	Verbose bool // print refused and tolerated queries too
	// Large is how many of a hundred tables have 5,000 rows.
	Large int
	// SmallMemory says that Skein may run out of the memory it was given.
	SmallMemory bool
	// Slow is the time from which on a query is reported that took Skein ten
	// times as long as DuckDB: it might be one that a planner should do better.
	Slow time.Duration
}

// perRound is how many queries share one schema.
const perRound = 100

// Summary counts what happened.
type Summary struct {
	Queries, Changes int
	Verdicts         map[Verdict]int
	Refusals         map[string]int // by Skein's message
	Differences      []string       // reports
}

// Run compares the engines and writes each difference, shrunk, to w.
func Run(ctx context.Context, p Pair, o Options, w io.Writer) (*Summary, error) {
	p = Pair{timed{p.Skein, o.Timeout}, timed{p.Duck, o.Timeout}, o.SmallMemory}
	run := &run{Pair: p, Options: o, w: w, sum: &Summary{Verdicts: map[Verdict]int{}, Refusals: map[string]int{}}}
	// PostgreSQL, too, lets aggregates order by constants.
	if err := p.Duck.Exec(ctx, "SET order_by_non_integer_literal = true"); err != nil {
		return run.sum, err
	}
	began := time.Now()
	for round := o.Round; run.sum.Queries < o.Queries; round++ {
		if o.Limit > 0 && time.Since(began) > o.Limit {
			break
		}
		if err := run.round(ctx, round, began); err != nil {
			return run.sum, fmt.Errorf("round %d of seed %d: %w", round, o.Seed, err)
		}
		if o.Stop > 0 && len(run.sum.Differences) >= o.Stop {
			break
		}
	}
	return run.sum, nil
}

// timed gives every statement a deadline.
type timed struct {
	Engine
	limit time.Duration
}

func (t timed) Query(ctx context.Context, sql string) (compare.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	rows, err := t.Engine.Query(ctx, sql)
	if err != nil && ctx.Err() != nil { // however the engine puts it
		err = ctx.Err()
	}
	return rows, err
}

// QueryPrepared is that of Preparer.
func (t timed) QueryPrepared(ctx context.Context, sql string, values []any) (compare.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	rows, err := t.Engine.(Preparer).QueryPrepared(ctx, sql, values)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return rows, err
}

// prepares reports whether an engine has prepared statements.
func prepares(e Engine) bool {
	if t, ok := e.(timed); ok {
		e = t.Engine
	}
	_, ok := e.(Preparer)
	return ok
}

func (t timed) Exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	return t.Engine.Exec(ctx, sql)
}

type run struct {
	Pair
	Options
	w   io.Writer
	sum *Summary
}

func (r *run) round(ctx context.Context, round uint64, began time.Time) (err error) {
	g := newGenerator(r.Seed, round, r.Large)
	defer func() {
		for _, t := range g.tables {
			s, d := r.exec(ctx, [2]string{"DROP TABLE IF EXISTS " + t.Name, "DROP TABLE IF EXISTS " + t.Name})
			err = errors.Join(err, s, d)
		}
	}()
	for _, t := range g.tables {
		if err := r.create(ctx, t); err != nil {
			return err
		}
	}
	for i := 0; i < perRound && r.sum.Queries < r.Queries; i++ {
		if r.Limit > 0 && time.Since(began) > r.Limit || r.Stop > 0 && len(r.sum.Differences) >= r.Stop {
			return nil
		}
		q := g.query()
		r.sum.Queries++
		o := r.check(ctx, q)
		if err := ctx.Err(); err != nil {
			return err
		}
		r.count(q, o)
		if o.Verdict != Different {
			continue
		}
		if o.lost() { // nothing is left to shrink it with
			return fmt.Errorf("the server is gone after query %d, %s: %s", i, o.Detail, q.SQL(Skein))
		}
		if err := r.report(ctx, g, q, o, fmt.Sprintf("seed %d, round %d, query %d", r.Seed, round, i)); err != nil {
			return err
		}
	}
	return r.changes(ctx, g, round)
}

func (r *run) create(ctx context.Context, t *Table) error {
	if err := r.execBoth(ctx, t.CreateSQL(Skein), t.CreateSQL(Duck)); err != nil {
		return err
	}
	return r.fill(ctx, t)
}

func (r *run) fill(ctx context.Context, t *Table) error {
	duck := t.InsertSQL(Duck)
	for i, s := range t.InsertSQL(Skein) {
		if err := r.execBoth(ctx, s, duck[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) refill(ctx context.Context, t *Table) error {
	if err := r.execBoth(ctx, "DELETE FROM "+t.Name, "DELETE FROM "+t.Name); err != nil {
		return err
	}
	return r.fill(ctx, t)
}

func (r *run) count(q *Query, o Outcome) {
	r.sum.Verdicts[o.Verdict]++
	if o.Verdict == Refused {
		text, _, _ := strings.Cut(o.Detail, " (SQLSTATE")
		if _, after, ok := strings.Cut(text, "desc = "); ok {
			text = after
		}
		r.sum.Refusals[text]++
	}
	if r.Slow > 0 && o.Skein > r.Slow && o.Skein > 10*o.Duck || o.Verdict == Slow {
		fmt.Fprintf(r.w, "-- slow, Skein took %s, DuckDB %s:\n%s;\n", o.Skein.Round(time.Millisecond), o.Duck.Round(time.Millisecond), q.SQL(Skein))
	}
	if r.Verbose && (o.Verdict == Tolerated || o.Verdict == BothFailed || o.Verdict == Refused) {
		fmt.Fprintf(r.w, "-- %s: %s\n%s;\n", o.Verdict, o.Detail, q.SQL(Skein))
	}
}

// report shrinks a difference and writes it down.
func (r *run) report(ctx context.Context, g *generator, q *Query, o Outcome, where string) error {
	fails := func(c *Query) bool { return r.check(ctx, c).same(o) }
	small := q
	if fails(q) {
		small = shrink(q, r.Shrink, fails)
	} else {
		where += ", not repeatable"
	}
	used := make(map[string]bool)
	small.tables(used)
	var tables []*Table
	for _, t := range g.tables {
		if used[t.Name] {
			tables = append(tables, t)
		}
	}
	restore, err := r.shrinkTables(ctx, tables, func() bool { return fails(small) })
	if err != nil {
		return err
	}
	last := r.check(ctx, small)
	var b strings.Builder
	fmt.Fprintf(&b, "== %s: %s\n", where, o.Detail)
	for _, t := range tables {
		fmt.Fprintf(&b, "%s;\n", t.CreateSQL(Skein))
		if len(t.Rows) > largestShrunk {
			fmt.Fprintf(&b, "-- and its %d rows\n", len(t.Rows))
			continue
		}
		for _, s := range t.InsertSQL(Skein) {
			fmt.Fprintf(&b, "%s;\n", s)
		}
	}
	fmt.Fprintf(&b, "%s;\n-- DuckDB: %s;\n-- %s\n", small.SQL(Skein), small.SQL(Duck), last.Detail)
	r.sum.Differences = append(r.sum.Differences, b.String())
	if _, err := io.WriteString(r.w, b.String()); err != nil {
		return err
	}
	return restore()
}

// largestShrunk is how many rows a table may have for its rows to be left out
// one by one; every try stores those that remain.
const largestShrunk = 100

// shrinkTables leaves rows out of the tables. The returned function puts them
// back.
func (r *run) shrinkTables(ctx context.Context, tables []*Table, fails func() bool) (restore func() error, err error) {
	full := make([][][]Literal, len(tables))
	for i, t := range tables {
		full[i] = t.Rows
		if len(t.Rows) > largestShrunk {
			continue
		}
		t.Rows = shrinkRows(t.Rows, r.Shrink/4, func(rows [][]Literal) bool {
			before := t.Rows
			t.Rows = rows
			defer func() { t.Rows = before }()
			e := r.refill(ctx, t)
			err = errors.Join(err, e)
			return e == nil && fails()
		})
		err = errors.Join(err, r.refill(ctx, t))
	}
	return func() error {
		var errs []error
		for i, t := range tables {
			t.Rows = full[i]
			errs = append(errs, r.refill(ctx, t))
		}
		return errors.Join(errs...)
	}, err
}

// changes runs changes and compares the table after each.
func (r *run) changes(ctx context.Context, g *generator, round uint64) error {
	var history []string
	broken := make(map[string]bool)
	for i := range r.Changes {
		c := g.change(100_000 * (i + 1))
		if broken[c.Table] {
			continue
		}
		r.sum.Changes++
		skeinErr, duckErr := r.exec(ctx, c.Texts)
		if err := ctx.Err(); err != nil {
			return err
		}
		o := judge(nil, nil, skeinErr, duckErr, nil, false)
		if skeinErr != nil && o.Code == "0A000" {
			o.Verdict = Refused
		}
		history = append(history, c.Texts[Skein])
		if o.Verdict == Agreed || o.Verdict == BothFailed {
			o = r.check(ctx, all(g, c.Table))
		}
		r.sum.Verdicts[o.Verdict]++
		if o.Verdict == Different {
			text := fmt.Sprintf("== seed %d, round %d, change %d to %s: %s\n%s;\n-- DuckDB: %s\n", r.Seed, round, i, c.Table, o.Detail,
				strings.Join(history, ";\n"), c.Texts[Duck])
			r.sum.Differences = append(r.sum.Differences, text)
			if _, err := io.WriteString(r.w, text); err != nil {
				return err
			}
		}
		// After an error of one side, the tables are no longer the same.
		broken[c.Table] = o.Verdict != Agreed && o.Verdict != BothFailed
	}
	return nil
}

// all selects everything that a table holds.
func all(g *generator, table string) *Query {
	s := &Select{From: &From{Table: table, Alias: "x"}}
	for _, t := range g.tables {
		if t.Name == table {
			s.Items = g.tableScope(t, "x").columns
		}
	}
	return &Query{Select: s, Limit: -1}
}

// Print writes the counts.
func (s *Summary) Print(w io.Writer) {
	fmt.Fprintf(w, "%d queries, %d changes\n", s.Queries, s.Changes)
	for _, v := range slices.Sorted(maps.Keys(s.Verdicts)) {
		fmt.Fprintf(w, "%8d %s\n", s.Verdicts[v], v)
	}
	for _, text := range slices.Sorted(maps.Keys(s.Refusals)) {
		fmt.Fprintf(w, "%8d refused: %s\n", s.Refusals[text], text)
	}
}
