package exec

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// Spool delivers all rows of one operator to each of several consumers, which
// read at their own pace: it is the producing end of a shared exchange.
//
// No goroutine runs the input. A consumer that has read all there is pulls the
// next batch, for the others too, so none ever waits for another to read: that
// matters where one is read to its end before the other, as the two sides of a
// join are. Batches are kept, in memory and then on disk, until the slowest
// consumer has read them.
type Spool struct {
	input   Operator
	ctx     context.Context
	log     *rowLog
	turn    chan struct{} // holds a token while nobody uses what is below
	outputs []*spoolOutput
	base    int // entries of the log that all open outputs have passed
	open    int
	done    bool  // the input is at its end
	err     error // of the input
}

// NewSpool reads input, of which it takes possession, for consumers outputs.
// The input runs under ctx, whichever consumer asks for its rows; waiting rows
// are charged to env's budget and spilled as env says.
func NewSpool(ctx context.Context, input Operator, consumers int, env *Env) (*Spool, error) {
	if consumers < 1 {
		return nil, malformed("a shared exchange to %d consumers", consumers)
	}
	compact, err := newCompact(input, env.Budget)
	if err != nil {
		return nil, err
	}
	s := &Spool{
		input: compact, ctx: ctx, open: consumers, turn: make(chan struct{}, 1),
		log: newRowLog("a shared subquery", input.Schema(), env.withSpill()),
	}
	s.turn <- struct{}{}
	for range consumers {
		s.outputs = append(s.outputs, &spoolOutput{spool: s, logCursor: logCursor{log: s.log}})
	}
	return s, nil
}

// Outputs are the consuming ends. Each may be used by a goroutine of its own and
// must be closed.
func (s *Spool) Outputs() []Operator {
	out := make([]Operator, len(s.outputs))
	for i, o := range s.outputs {
		out[i] = o
	}
	return out
}

// Close closes all outputs, of which none may be in a call of Next, and with
// the last of them the input.
func (s *Spool) Close() error {
	var first error
	for _, o := range s.outputs {
		if err := o.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// spoolOutput is one consuming end.
type spoolOutput struct {
	logCursor
	spool  *Spool
	next   int // entry to read
	closed bool
}

func (o *spoolOutput) Schema() *arrow.Schema { return o.log.schema }

func (o *spoolOutput) Next(ctx context.Context) (*columnar.Batch, error) {
	if o.closed {
		return nil, nil
	}
	s := o.spool
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, canceled(ctx)
	}
	defer func() { s.turn <- struct{}{} }()
	s.forget()
	for o.next >= len(s.log.entries) {
		if s.err != nil || s.done {
			return nil, s.err
		}
		if s.err = s.pull(); s.err != nil {
			return nil, s.err
		}
	}
	o.next++
	return o.load(s.log.entries[o.next-1])
}

// pull adds the next batch of the input to the log.
func (s *Spool) pull() error {
	return guard("running a shared subquery", func() error {
		b, err := s.input.Next(s.ctx)
		if err != nil {
			return err
		}
		if b == nil {
			s.done = true
			return nil
		}
		return s.log.append(b)
	})
}

// forget gives up what all open outputs have read, but for the batches that
// they may still look at.
func (s *Spool) forget() {
	slowest := len(s.log.entries)
	for _, o := range s.outputs {
		if !o.closed {
			slowest = min(slowest, o.next-1)
		}
	}
	for ; s.base < slowest; s.base++ {
		s.log.release(s.base)
	}
}

func (o *spoolOutput) Close() error {
	s := o.spool
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	if o.closed {
		return nil
	}
	o.closed = true
	o.drop()
	if s.open--; s.open > 0 {
		s.forget()
		return nil
	}
	return errors.Join(guard("closing a shared subquery", s.input.Close), s.log.reset())
}
