package exec

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// spillAfter is how long a consumer may leave its full queue alone while another
// waits for rows of the same input, until what comes for it is put aside.
const spillAfter = 20 * time.Millisecond

// send puts a batch into the queues of the given outputs, first into those that
// have room.
func (f *Fanout) send(b *ownedBatch, outputs []*fanoutOutput) error {
	b.refs = len(outputs)
	f.full = f.full[:0]
	for _, o := range outputs {
		if !o.offer(b) {
			f.full = append(f.full, o)
		}
	}
	for i, o := range f.full {
		if err := f.await(o, b); err != nil {
			for range f.full[i:] {
				b.release()
			}
			return err
		}
	}
	return nil
}

// await delivers a batch to an output whose queue is full. While all outputs have
// something to read it waits, so that the slowest consumer sets the pace. When
// another one has nothing it may be that they wait for each other, for instance
// to merge the outputs of several producers: if this consumer does not read
// on soon, the batch goes to its log.
func (f *Fanout) await(o *fanoutOutput, b *ownedBatch) error {
	var timer *time.Timer
	var expired <-chan time.Time
	seen := 0
	for !o.offer(b) {
		starving, taken, stalled := f.starving(o)
		switch {
		case starving && stalled:
			return o.putAside(b)
		case starving && timer == nil:
			seen = taken
			timer = time.NewTimer(f.patience)
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case <-f.changed:
		case <-expired:
			if !f.stall(o, seen) {
				_, seen, _ = f.starving(o)
			}
			timer.Reset(f.patience)
		case <-f.ctx.Done():
			return canceled(f.ctx)
		}
	}
	return nil
}

// starving reports whether an output other than o has nothing to read, how many
// batches o has taken, and whether it is known not to take more.
func (f *Fanout) starving(o *fanoutOutput) (starving bool, taken int, stalled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.outputs {
		starving = starving || other != o && other.waiting && !other.left
	}
	return starving, o.taken, o.stalledAt == o.taken
}

// stall notes that an output has taken nothing since it had taken seen batches.
func (f *Fanout) stall(o *fanoutOutput, seen int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.taken != seen {
		return false
	}
	o.stalledAt = seen
	return true
}

// wakeProducer tells the producer that an output has changed.
func (f *Fanout) wakeProducer() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// fanoutOutput is one consuming end: a queue, and a log for what comes when the
// queue is full and may not hold the others up. While the log has batches that
// were not read, all that comes goes there.
type fanoutOutput struct {
	fanout *Fanout
	wake   chan struct{} // a token when there may be something new
	closed bool          // of the consumer alone, like the next three
	last   *ownedBatch
	view   columnar.Batch // the consumer's own copy of last's header
	cursor logCursor

	// Guarded by the fanout's mutex.
	queue     []*ownedBatch
	logged    int  // entries of the log that were not read
	waiting   bool // the consumer has nothing to read
	left      bool // it is not interested any more
	taken     int  // batches, in all
	stalledAt int  // of taken, when the producer gave up waiting

	// aside guards the log while both sides use it. It is taken alone.
	aside chan struct{}
	log   *rowLog // nil until it is needed
	read  int     // entries of the log that were read
}

// offer puts a batch into the queue, or drops it where nobody wants it. It
// reports whether that is done.
func (o *fanoutOutput) offer(b *ownedBatch) bool {
	f := o.fanout
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case o.left:
		b.release()
	case o.logged == 0 && len(o.queue) < f.limit:
		o.queue = append(o.queue, b)
		o.notify()
	default:
		return false
	}
	return true
}

// notify wakes the consumer; the fanout's mutex is held.
func (o *fanoutOutput) notify() {
	o.waiting = false
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// putAside adds a batch to the log.
func (o *fanoutOutput) putAside(b *ownedBatch) error {
	f := o.fanout
	o.aside <- struct{}{}
	defer func() { <-o.aside }()
	f.mu.Lock()
	left := o.left
	f.mu.Unlock()
	if left {
		b.release()
		return nil
	}
	if o.log == nil {
		o.log = newRowLog("an exchange", o.Schema(), f.env)
		o.log.most /= int64(len(f.outputs))
	}
	if err := o.log.append(b.batch); err != nil {
		return err
	}
	b.release()
	f.mu.Lock()
	defer f.mu.Unlock()
	o.logged++
	o.notify()
	return nil
}

func (o *fanoutOutput) Schema() *arrow.Schema { return o.fanout.route.schema() }

func (o *fanoutOutput) Next(ctx context.Context) (*columnar.Batch, error) {
	if o.closed {
		return nil, nil
	}
	o.fanout.begin()
	if err := o.drop(); err != nil {
		return nil, err
	}
	for {
		b, logged, over, err := o.take()
		switch {
		case b != nil:
			o.last, o.view = b, *b.batch
			return &o.view, nil
		case logged:
			return o.fromLog()
		case over:
			return nil, err
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil, canceled(ctx)
		}
	}
}

// take is the next batch of the queue, or says that there is one in the log, or
// that the input is over. Otherwise the consumer waits from now on.
func (o *fanoutOutput) take() (b *ownedBatch, logged, over bool, err error) {
	f := o.fanout
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(o.queue) > 0:
		b = o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.taken++
	case o.logged > 0:
		o.logged--
		o.taken++
		logged = true
	case f.over:
		return nil, false, true, f.err
	default:
		o.waiting = true
	}
	f.wakeProducer()
	return b, logged, false, nil
}

// fromLog reads the next batch of the log.
func (o *fanoutOutput) fromLog() (*columnar.Batch, error) {
	o.aside <- struct{}{}
	e := o.log.entries[o.read]
	o.cursor.log = o.log
	o.read++
	<-o.aside
	return o.cursor.load(e)
}

// drop gives back the batch that the consumer had last. A log that was read to
// its end gives its disk space back, too.
func (o *fanoutOutput) drop() error {
	if o.last != nil {
		o.last.release()
		o.last = nil
	}
	if o.cursor.log == nil {
		return nil
	}
	o.cursor.drop()
	o.aside <- struct{}{}
	defer func() { <-o.aside }()
	if o.read == 0 {
		return nil
	}
	o.log.release(o.read - 1)
	if o.read < len(o.log.entries) {
		return nil
	}
	o.read = 0
	return o.log.reset()
}

func (o *fanoutOutput) Close() error {
	if o.closed {
		return nil
	}
	o.closed = true
	err := o.drop()
	f := o.fanout
	f.mu.Lock()
	f.open--
	last, running := f.open == 0, f.running
	o.left = true
	for _, b := range o.queue {
		b.release()
	}
	o.queue, o.logged = nil, 0
	f.wakeProducer()
	f.mu.Unlock()
	if e := o.forget(); err == nil {
		err = e
	}
	if !last {
		return err
	}
	f.cancel(errStopped)
	if running {
		f.wg.Wait()
	} else if e := f.finish(); err == nil {
		err = e
	}
	f.route.close()
	return err
}

// forget gives up the log of an output that has left.
func (o *fanoutOutput) forget() error {
	o.aside <- struct{}{}
	defer func() { <-o.aside }()
	if o.log == nil {
		return nil
	}
	o.read = 0
	return o.log.reset()
}

func (o *fanoutOutput) isGone() bool {
	o.fanout.mu.Lock()
	defer o.fanout.mu.Unlock()
	return o.left
}
