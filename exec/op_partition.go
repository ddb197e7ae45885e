package exec

import (
	"context"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// Fanout delivers one operator's rows to several consumers through bounded
// queues: it is the producing end of a repartition or broadcast exchange.
//
// The input runs in one goroutine, started by the first Next of any output. A
// full queue stops it, so the slowest consumer sets the pace, unless another one
// has nothing to read: then what comes for one that does not read on is put
// aside, in memory and then on disk. Closing an output drops what is addressed to it and lets the others go on; when all are
// closed the input is stopped and closed. An error of the input reaches every
// output that is still open.
type Fanout struct {
	input   Operator
	ctx     context.Context
	cancel  context.CancelCauseFunc
	route   router
	outputs []*fanoutOutput
	start   sync.Once
	wg      sync.WaitGroup

	env      *Env            // what is put aside is charged to its budget and spilled as it says
	limit    int             // of each queue
	changed  chan struct{}   // a token when an output has changed
	full     []*fanoutOutput // send's own
	patience time.Duration   // with a consumer that does not read while another waits

	mu       sync.Mutex
	open     int
	running  bool
	finished bool  // the input is closed
	over     bool  // nothing more comes
	err      error // of the input; set before over
}

// router copies the rows of a batch to the queues they belong to.
type router interface {
	add(f *Fanout, b *columnar.Batch) error
	// end sends the rows that are still gathered.
	end(f *Fanout) error
	// close gives the memory of unsent rows back.
	close()
	schema() *arrow.Schema
}

// NewPartitioner splits input into partitions outputs by a hash of the key
// columns: equal keys, from whatever producer, go to the output of the same
// number. queue is how many batches may wait for each consumer before others have
// to wait for it. ctx governs the goroutine that runs input. Waiting and partly
// filled batches are charged to env's budget; what outgrows the queues is spilled
// as env says.
func NewPartitioner(ctx context.Context, input Operator, keys []int, partitions, queue int, env *Env) (*Fanout, error) {
	if err := checkOrdinals("repartition key", keys, input.Schema()); err != nil {
		return nil, err
	}
	if len(keys) == 0 || partitions < 1 {
		return nil, malformed("a repartition over %d keys to %d consumers", len(keys), partitions)
	}
	for _, k := range keys {
		t := input.Schema().Field(k).Type
		if _, err := newKeyCoder([]int{k}, []arrow.DataType{t}, tableSeed{}); err != nil {
			return nil, err
		}
	}
	r := &hashRouter{
		hasher: partitionHasher{keys: keys},
		acct:   env.Budget.workingAccount("repartition"),
		spare:  &spareStores{limit: partitions * (queue + 2)},
		stores: make([]*rowStore, partitions),
		place:  newModulus(partitions),
		ends:   make([]int32, partitions),
		in:     input.Schema(),
	}
	for i := range r.stores {
		store, err := newRowStore(r.in, r.acct)
		if err != nil {
			return nil, err
		}
		r.stores[i] = store
	}
	return newFanout(ctx, input, r, partitions, queue, env), nil
}

// NewTee sends all rows of input to each of consumers outputs. The other
// arguments are those of NewPartitioner.
func NewTee(ctx context.Context, input Operator, consumers, queue int, env *Env) (*Fanout, error) {
	if consumers < 1 {
		return nil, malformed("a broadcast to %d consumers", consumers)
	}
	compact, err := newCompact(input, env.Budget)
	if err != nil {
		return nil, err
	}
	return newFanout(ctx, compact, &teeRouter{in: input.Schema(), acct: env.Budget.workingAccount("broadcast")}, consumers, queue, env), nil
}

func newFanout(ctx context.Context, input Operator, route router, n, queue int, env *Env) *Fanout {
	f := &Fanout{input: input, route: route, open: n, env: env.withSpill(), limit: max(1, queue), patience: spillAfter, changed: make(chan struct{}, 1)}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	for range n {
		f.outputs = append(f.outputs, &fanoutOutput{
			fanout: f, wake: make(chan struct{}, 1), stalledAt: -1, aside: make(chan struct{}, 1),
		})
	}
	return f
}

// Outputs are the consuming ends, one per partition or consumer. Each may be
// used by a goroutine of its own and must be closed.
func (f *Fanout) Outputs() []Operator {
	out := make([]Operator, len(f.outputs))
	for i, o := range f.outputs {
		out[i] = o
	}
	return out
}

// Close closes all outputs and waits for the input to be closed. No output may
// be in a call of Next, unless ctx has ended.
func (f *Fanout) Close() error {
	var first error
	for _, o := range f.outputs {
		if err := o.Close(); err != nil && first == nil {
			first = err
		}
	}
	f.wg.Wait()
	return first
}

// ownedBatch is a batch whose memory nobody reuses before all of refs outputs
// have released it.
type ownedBatch struct {
	batch *columnar.Batch
	acct  *Account
	store *rowStore    // that the batch is a view of, and
	spare *spareStores // where that goes for reuse; nil to leave both to the collector
	mu    sync.Mutex
	refs  int
}

func (b *ownedBatch) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refs--
	if b.refs > 0 || b.spare != nil && b.spare.put(b.store, b.acct) {
		return
	}
	b.acct.Close()
}

func (f *Fanout) run() {
	defer f.wg.Done()
	err := guard("sending rows to an exchange", func() error {
		for {
			b, err := f.input.Next(f.ctx)
			if err != nil {
				return err
			}
			if b == nil {
				return f.route.end(f)
			}
			if err := f.route.add(f, b); err != nil {
				return err
			}
		}
	})
	if e := f.finish(); err == nil {
		err = e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.over = err, true
	for _, o := range f.outputs {
		o.notify()
	}
}

// finish closes the input once.
func (f *Fanout) finish() error {
	f.mu.Lock()
	done := f.finished
	f.finished = true
	f.mu.Unlock()
	if done {
		return nil
	}
	return guard("closing an exchange", f.input.Close)
}

// begin starts the goroutine unless it runs or all outputs are closed.
func (f *Fanout) begin() {
	f.start.Do(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open > 0 {
			f.running = true
			f.wg.Add(1)
			go f.run()
		}
	})
}
