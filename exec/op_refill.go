package exec

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// Cursor is the consuming end of an exchange whose producer sends its rows,
// which are sorted, in portions.
type Cursor interface {
	Operator
	// Unseen is what the newest batch says of the rows behind it. Nil: they come,
	// or the end does. Else the producer waits for a refill, and no row's sort key
	// is below the bound.
	Unseen() ([]byte, error)
	// Refill asks a waiting producer for its next rows, at most so many.
	Refill(ctx context.Context, rows int) error
}

// RefillError reports a producer that broke the rules of a top-k.
type RefillError struct {
	Input  int // its place among the inputs of the top-k
	Reason string
}

// Error says which producer did what.
func (e *RefillError) Error() string {
	return fmt.Sprintf("top-k: input %d %s", e.Input, e.Reason)
}

// Unwrap makes it an internal error to users.
func (e *RefillError) Unwrap() error {
	return sqlstate.New(sqlstate.InternalError, "%s", e.Error())
}

// refillOp is the coordinator's half of a distributed top-k. Every input first
// sends a portion of its best rows and a bound on the keys of the others. The
// first k of the rows received are those of all rows once no input withholds
// rows whose bound is below the k-th; until then the inputs that do are asked
// for more, each for no more than could still win. Which rows come out, and
// which inputs are asked for how many, depends on the rows alone.
type refillOp struct {
	lanes  []*refillLane
	schema *arrow.Schema
	k      int
	first  int
	coder  *sortKeyCoder
	acct   *Account
	store  *rowStore // candidates, in order of arrival
	keys   sortKeys  // of the candidates
	ranked []int32   // the best k candidates, best first
	done   bool
	at     int // of ranked: rows that were put out
	closed bool
	out    columnar.Batch
}

// refillLane is one input.
type refillLane struct {
	part   Operator
	source Operator // part without its meter
	rows   int      // received
	asked  int      // of the portion on its way
	bound  []byte   // of the last portion; nil at the end
}

func newRefill(parts, sources []Operator, keys []planner.SortKey, op *planner.TopK, env *Env) (Operator, error) {
	schema := parts[0].Schema()
	coder, err := newSortKeyCoder(schema, keys)
	if err != nil {
		return nil, err
	}
	if op.K > math.MaxInt32 || op.First > op.K {
		return nil, malformed("a top-k of %d rows, %d at first, cannot be refilled", op.K, op.First)
	}
	r := &refillOp{schema: schema, k: int(op.K), first: int(op.First), coder: coder, acct: env.overflowAccount("top-k")}
	for i := range parts {
		r.lanes = append(r.lanes, &refillLane{part: parts[i], source: sources[i], asked: r.first})
	}
	if r.store, err = newRowStore(schema, r.acct); err != nil {
		return nil, err
	}
	r.out.Cols = outVectors(schema)
	return r, nil
}

func (r *refillOp) Schema() *arrow.Schema { return r.schema }

func (r *refillOp) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.closeLanes()
	r.store, r.keys = nil, sortKeys{}
	r.acct.Close()
	return err
}

func (r *refillOp) closeLanes() error {
	parts := make([]Operator, len(r.lanes))
	for i, l := range r.lanes {
		parts[i] = l.part
	}
	r.lanes = nil
	return closeAll(parts)
}

func (r *refillOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if !r.done {
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
		r.done = true
	}
	n := min(len(r.ranked)-r.at, columnar.BatchRows)
	if n == 0 {
		return nil, nil
	}
	r.store.gather(r.ranked[r.at:r.at+n], r.out.Cols)
	r.out.Len = n
	r.at += n
	return &r.out, nil
}

// settle receives rows until the first k are certain, and lets the producers go.
func (r *refillOp) settle(ctx context.Context) error {
	reading := make([]int, len(r.lanes))
	for i := range reading {
		reading[i] = i
	}
	for len(reading) > 0 {
		// All producers are at work by now; their rows are taken in turn.
		for _, i := range reading {
			if err := r.receive(ctx, i); err != nil {
				return err
			}
		}
		if err := r.rank(ctx); err != nil {
			return err
		}
		reading = reading[:0]
		group, ctx := errgroup.WithContext(ctx)
		for i, l := range r.lanes {
			l.asked = min(r.useful(l.bound), max(r.first, l.rows))
			if l.asked == 0 {
				continue
			}
			reading = append(reading, i)
			cursor := l.source.(Cursor) // or it would have no bound
			group.Go(func() error { return cursor.Refill(ctx, l.asked) })
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("refilling a top-k: %w", err)
		}
	}
	return r.closeLanes()
}

// receive reads one portion of an input.
func (r *refillOp) receive(ctx context.Context, i int) error {
	l := r.lanes[i]
	before := l.bound
	l.bound = nil
	got := 0
	for {
		b, err := l.part.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			return nil
		}
		from := len(r.keys.ends)
		if err := r.coder.encode(&r.keys, b.Cols, b.Sel, b.Len, r.acct); err != nil {
			return err
		}
		if err := r.store.append(b.Cols, b.Sel, b.Rows()); err != nil {
			return err
		}
		got += b.Rows()
		l.rows += b.Rows()
		switch {
		case got > l.asked:
			return &RefillError{i, fmt.Sprintf("sent %d rows when asked for %d", got, l.asked)}
		case b.Rows() > 0 && bytes.Compare(r.keys.key(from), before) < 0:
			return &RefillError{i, "sent a row below its bound"}
		}
		cursor, ok := l.source.(Cursor)
		if !ok {
			continue
		}
		if l.bound, err = cursor.Unseen(); err != nil {
			return err
		}
		if l.bound == nil {
			continue
		}
		if got == 0 {
			return &RefillError{i, "made no progress"}
		}
		if bytes.Compare(l.bound, before) < 0 {
			return &RefillError{i, "lowered its bound"}
		}
		return nil
	}
}

// rank puts the best k candidates in order.
func (r *refillOp) rank(ctx context.Context) error {
	work := sortSpace{acct: r.acct}
	defer work.free()
	if err := work.alloc(r.store.rows); err != nil {
		return err
	}
	for i := range work.entries {
		work.entries[i] = sortEntry{word: r.keys.word(i, 0), row: int32(i)}
	}
	if err := sortEntries(ctx, work.entries, work.scratch, &r.keys); err != nil {
		return err
	}
	keep := min(r.k, len(work.entries))
	var err error
	if r.ranked, err = growSlice(r.acct, r.ranked[:0], keep); err != nil {
		return err
	}
	for _, e := range work.entries[:keep] {
		r.ranked = append(r.ranked, e.row)
	}
	return nil
}

// useful is how many rows whose keys are not below a bound could be among the
// first k: none where there is no bound, that is, where there are no more rows.
func (r *refillOp) useful(bound []byte) int {
	if bound == nil {
		return 0
	}
	ahead := sort.Search(len(r.ranked), func(i int) bool {
		return bytes.Compare(r.keys.key(int(r.ranked[i])), bound) > 0
	})
	return r.k - ahead
}
