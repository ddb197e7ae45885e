package exec

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// canceled returns the error of a call whose context has ended, else nil. A
// cause with a SQLSTATE is passed on.
func canceled(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	var known *sqlstate.Error
	if errors.As(cause, &known) {
		return cause
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return sqlstate.New(sqlstate.QueryCanceled, "the query exceeded its time limit: %w", cause)
	}
	return sqlstate.New(sqlstate.QueryCanceled, "the query was canceled: %w", cause)
}

// Guard runs f, which handles batches that operators made, and makes a panic
// in it an internal error (XX000) that says what was being done.
func Guard(doing string, f func() error) error { return guard(doing, f) }

// guard runs f and makes a panic in it an internal error.
func guard(doing string, f func() error) (err error) {
	// A page of a mapped file that cannot be read is a fault: let it be a panic.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			where := ""
			if op := panickedOperator(); op != "" {
				where = " in the operator " + op
			}
			err = sqlstate.New(sqlstate.InternalError, "internal error while %s%s: %v", doing, where, r).
				WithDetail("%s", debug.Stack())
		}
	}()
	return f()
}

// panickedOperator names the innermost operator on the stack of a panic: the
// type, without Op, whose Next or other method was running.
func panickedOperator() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		_, method, _ := strings.Cut(frame.Function, "/exec.(*")
		if name, _, ok := strings.Cut(method, "Op)."); ok && name != "root" {
			return name
		}
		if !more {
			return ""
		}
	}
}

// crew runs one goroutine per input, each at most one batch ahead of the
// consumer. A batch is lent until the consumer gives it back: only then does its
// goroutine call the input's Next again, as the batch's lifetime demands. The
// first error ends all of them.
type crew struct {
	inputs []Operator
	lanes  []*lane
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// lane is what a goroutine of a crew and the consumer exchange.
type lane struct {
	ready  chan delivery
	resume chan struct{}
}

// delivery is one result of an input's Next.
type delivery struct {
	input int
	batch *columnar.Batch
	err   error
}

// errStopped ends the goroutines of a crew that is closed early.
var errStopped = errors.New("the consumer stopped reading")

// start starts the goroutines under ctx. With shared, all inputs deliver to
// one channel, else to one each.
func (c *crew) start(ctx context.Context, shared bool) {
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	var common chan delivery
	if shared {
		common = make(chan delivery)
	}
	for i, in := range c.inputs {
		l := &lane{ready: common, resume: make(chan struct{}, 1)}
		if !shared {
			l.ready = make(chan delivery)
		}
		c.lanes = append(c.lanes, l)
		c.wg.Go(func() { c.drive(i, in, l) })
	}
}

func (c *crew) started() bool { return c.cancel != nil }

func (c *crew) drive(i int, in Operator, l *lane) {
	for {
		var b *columnar.Batch
		err := guard("running a query", func() (err error) {
			b, err = in.Next(c.ctx)
			return err
		})
		if err != nil {
			c.cancel(err)
		}
		if b != nil && err == nil && b.Rows() == 0 {
			if c.ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case l.ready <- delivery{input: i, batch: b, err: err}:
		case <-c.ctx.Done():
			return
		}
		if b == nil || err != nil {
			return
		}
		select {
		case <-l.resume:
		case <-c.ctx.Done():
			return
		}
	}
}

// receive waits for the next result on ch, which is of one lane or of all.
func (c *crew) receive(ctx context.Context, ch chan delivery) (delivery, error) {
	select {
	case d := <-ch:
		if d.err != nil {
			return d, c.failure(ctx)
		}
		return d, nil
	case <-c.ctx.Done():
		return delivery{}, c.failure(ctx)
	case <-ctx.Done():
		return delivery{}, canceled(ctx)
	}
}

// failure is the error that ended the crew: the first one of an input, or the
// cancellation from outside.
func (c *crew) failure(ctx context.Context) error {
	if err := canceled(ctx); err != nil {
		return err
	}
	cause := context.Cause(c.ctx)
	if cause == nil || errors.Is(cause, errStopped) {
		return fmt.Errorf("reading from a closed operator: %w", errStopped)
	}
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return canceled(c.ctx)
	}
	return cause
}

// giveBack ends the loan of input i's last batch.
func (c *crew) giveBack(i int) { c.lanes[i].resume <- struct{}{} }

// stop ends the goroutines, waits for them and closes the inputs.
func (c *crew) stop() error {
	if c.started() {
		c.cancel(errStopped)
		c.wg.Wait()
	}
	return closeAll(c.inputs)
}

// closeAll closes every operator and returns the first error.
func closeAll(ops []Operator) error {
	var first error
	for _, op := range ops {
		if err := guard("closing a query", op.Close); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// unionOp runs its inputs in parallel and emits their batches as they come.
// The context of the first Next governs the goroutines.
type unionOp struct {
	crew
	ready  chan delivery
	open   int // inputs that have not ended
	lent   int // input whose batch the consumer holds, -1 for none
	closed bool
}

// newUnion returns the union of at least one input of the same schema.
func newUnion(inputs []Operator) Operator {
	if len(inputs) == 1 {
		return inputs[0]
	}
	return &unionOp{crew: crew{inputs: inputs}, lent: -1, open: len(inputs)}
}

func (u *unionOp) Schema() *arrow.Schema { return u.inputs[0].Schema() }

func (u *unionOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if !u.started() {
		u.start(ctx, true)
		u.ready = u.lanes[0].ready
	}
	if u.lent >= 0 {
		u.giveBack(u.lent)
		u.lent = -1
	}
	for u.open > 0 {
		d, err := u.receive(ctx, u.ready)
		if err != nil {
			return nil, err
		}
		if d.batch == nil {
			u.open--
			continue
		}
		u.lent = d.input
		return d.batch, nil
	}
	return nil, nil
}

func (u *unionOp) Close() error {
	if u.closed {
		return nil
	}
	u.closed = true
	return u.stop()
}
