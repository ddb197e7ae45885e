package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// hashRouter gathers rows per partition and sends batches of about BatchRows.
type hashRouter struct {
	in     *arrow.Schema
	hasher partitionHasher
	acct   *Account
	stores []*rowStore
	sels   [][]int32
}

func (r *hashRouter) schema() *arrow.Schema { return r.in }

func (r *hashRouter) add(f *Fanout, b *columnar.Batch) error {
	for p := range r.sels {
		r.sels[p] = r.sels[p][:0]
	}
	for i, h := range r.hasher.hash(b) {
		p := partitionOf(h, len(r.sels))
		r.sels[p] = append(r.sels[p], int32(rowAt(b.Sel, i)))
	}
	for p, sel := range r.sels {
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
		if r.stores[p].rows >= columnar.BatchRows {
			if err := r.send(f, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// send hands the rows gathered for a partition over, with their memory.
func (r *hashRouter) send(f *Fanout, p int) error {
	full := r.stores[p]
	r.stores[p] = full.successor()
	acct := r.acct.split(full.held())
	return f.send(&ownedBatch{batch: full.batch(), acct: acct}, f.outputs[p:p+1])
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

func (r *hashRouter) close() { r.acct.Close() }

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
