package exec

import (
	"math"
	"math/bits"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// routedRows is how many rows of a partition are gathered before they are sent:
// a message between workers costs about as much as moving some thousand rows.
const routedRows = 2 * columnar.BatchRows

// hashRouter gathers rows per partition and sends batches of about routedRows.
type hashRouter struct {
	in     *arrow.Schema
	hasher partitionHasher
	acct   *Account
	stores []*rowStore
	place  modulus // of hashes: their partition
	parts  []int32 // by row of the batch: its partition
	ends   []int32 // by partition: where its rows end in sel
	sel    []int32 // rows of the batch, by partition
	spare  *spareStores
}

// modulus is a divisor whose remainders take no division. A hash modulo the number
// of partitions is a row's partition, which all nodes of a query must agree on.
type modulus struct{ by, inverse uint64 }

func newModulus(by int) modulus {
	return modulus{by: uint64(by), inverse: math.MaxUint64 / uint64(by)}
}

// of is x modulo the divisor: the quotient that the inverse gives is right or one
// too small.
func (m modulus) of(x uint64) uint64 {
	q, _ := bits.Mul64(x, m.inverse)
	r := x - q*m.by
	if r >= m.by {
		r -= m.by
	}
	return r
}

// spareStores are stores whose rows have been read. Filling them again saves
// allocating, clearing and growing memory for every batch.
type spareStores struct {
	limit int

	mu     sync.Mutex
	closed bool
	list   []spareStore
}

type spareStore struct {
	store *rowStore
	acct  *Account // holds its memory
}

// put keeps a store unless there are enough.
func (s *spareStores) put(store *rowStore, acct *Account) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.list) >= s.limit {
		return false
	}
	s.list = append(s.list, spareStore{store, acct})
	return true
}

// take returns an empty store whose memory acct holds from now on, nil if there
// is none.
func (s *spareStores) take(acct *Account) *rowStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list)
	if n == 0 {
		return nil
	}
	last := s.list[n-1]
	s.list = s.list[:n-1]
	acct.absorb(last.acct)
	last.store.reset()
	return last.store
}

func (s *spareStores) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, spare := range s.list {
		spare.acct.Close()
	}
	s.list = nil
}

func (r *hashRouter) schema() *arrow.Schema { return r.in }

func (r *hashRouter) add(f *Fanout, b *columnar.Batch) error {
	from := int32(0)
	for p, to := range r.divide(b) {
		sel := r.sel[from:to]
		from = to
		if len(sel) == 0 {
			continue
		}
		if f.outputs[p].isGone() {
			r.stores[p].free()
			continue
		}
		if err := r.stores[p].append(b.Cols, sel, len(sel)); err != nil {
			return err
		}
		if r.stores[p].rows >= routedRows {
			if err := r.send(f, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// divide sorts the rows of a batch into sel by partition and returns where those
// of each end.
func (r *hashRouter) divide(b *columnar.Batch) []int32 {
	hashes := r.hasher.hash(b)
	r.parts, r.sel = resize(r.parts, len(hashes)), resize(r.sel, len(hashes))
	parts, sel, ends, place := r.parts[:len(hashes)], r.sel, r.ends, r.place
	clear(ends)
	for i, h := range hashes {
		p := int32(place.of(h))
		parts[i] = p
		ends[p]++
	}
	start := int32(0)
	for p, n := range ends {
		ends[p], start = start, start+n
	}
	if b.Sel == nil {
		for i, p := range parts {
			sel[ends[p]] = int32(i)
			ends[p]++
		}
		return ends
	}
	rows := b.Sel[:len(parts)]
	for i, p := range parts {
		sel[ends[p]] = rows[i]
		ends[p]++
	}
	return ends
}

// send hands the rows gathered for a partition over, with their memory.
func (r *hashRouter) send(f *Fanout, p int) error {
	full := r.stores[p]
	if r.stores[p] = r.spare.take(r.acct); r.stores[p] == nil {
		r.stores[p] = full.successor()
		if err := r.stores[p].presize(full.rows); err != nil {
			return err
		}
	}
	acct := r.acct.split(full.held())
	return f.send(&ownedBatch{batch: full.batch(), acct: acct, store: full, spare: r.spare}, f.outputs[p:p+1])
}

// end sends what is left.
func (r *hashRouter) end(f *Fanout) error {
	for p, store := range r.stores {
		if store.rows == 0 {
			continue
		}
		if err := r.send(f, p); err != nil {
			return err
		}
	}
	return nil
}

func (r *hashRouter) close() {
	r.spare.close()
	r.acct.Close()
}

// teeRouter copies every batch once, for all consumers.
type teeRouter struct {
	in   *arrow.Schema
	acct *Account
}

func (r *teeRouter) schema() *arrow.Schema { return r.in }

func (r *teeRouter) add(f *Fanout, b *columnar.Batch) error {
	store, err := newRowStore(r.in, r.acct)
	if err != nil {
		return err
	}
	if err := store.append(b.Cols, b.Sel, b.Len); err != nil {
		return err
	}
	return f.send(&ownedBatch{batch: store.batch(), acct: r.acct.split(store.held())}, f.outputs)
}

func (r *teeRouter) end(*Fanout) error { return nil }
func (r *teeRouter) close()            { r.acct.Close() }
