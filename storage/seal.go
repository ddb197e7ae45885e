package storage

import (
	"encoding/binary"
	"fmt"
	"math"

	"skein/catalog"
	"skein/sqlstate"
)

// Begin makes a transaction known to the tablet before it stages anything. A
// tablet that is to be split or merged lets those finish that it knows, and
// refuses others: whoever cannot repeat its rows begins before it sends them.
type Begin struct{ Txn string }

// Seal ends a tablet's life as one that is written to: other tablets take its
// rows over. From then on it refuses transactions that it does not know, with
// the outcome Sealed, and once those that it knows are over nothing in it ever
// changes. Readers above the timestamp of the seal are refused, for the tablets
// that follow commit above it.
//
// The answer has the outcome Sealed, the timestamp of the seal, and as its Rows
// the number of transactions that are not over.
type Seal struct {
	// Job and Number give Seals an order; one that comes before another that was
	// applied is refused with 40001, so that a late repetition does no harm.
	Job, Number uint64
	// Timestamp is the least that the seal has. It gets one above all that has
	// been read or committed.
	Timestamp uint64
	// Release opens the tablet again, which is as if it had not been sealed.
	Release bool
	Bounds
}

func (Begin) kind() commandKind          { return kindBegin }
func (Seal) kind() commandKind           { return kindSeal }
func (c Begin) txn() string              { return c.Txn }
func (Seal) txn() string                 { return "" }
func (c Begin) append(dst []byte) []byte { return appendString(dst, c.Txn) }

func (c Seal) append(dst []byte) []byte {
	for _, v := range []uint64{c.Job, c.Number, c.Timestamp} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	dst = append(dst, flagByte(c.Release))
	return c.Bounds.append(dst)
}

func flagByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// beginSeq is the number of the list of no rows that stands for a Begin.
const beginSeq = math.MaxUint32 - 1

// sealCounters are what Seals have done. They are replicated.
type sealCounters struct {
	sealJob, sealNumber uint64 // of the last Seal
	sealed              uint64 // its timestamp, 0 while the tablet is open
}

// SealedError says that a tablet cannot be read at a timestamp, since others
// hold its rows or are about to.
type SealedError struct {
	Tablet catalog.TabletID
	Sealed uint64 // readers up to this timestamp are served
}

// Error names the tablet.
func (e *SealedError) Error() string {
	return fmt.Sprintf("tablet %d is sealed at %d: others take its rows over", e.Tablet, e.Sealed)
}

// SealState is whether a tablet is sealed.
type SealState struct {
	Sealed      bool
	Job, Number uint64 // of the last Seal, 0 for none
	Timestamp   uint64
	// Unfinished is how many transactions are not over.
	Unfinished int
}

// Seal returns whether the tablet is sealed.
func (t *Tablet) Seal() SealState {
	v := t.view.Load()
	return SealState{
		Sealed: v.seal.sealed != 0, Job: v.seal.sealJob, Number: v.seal.sealNumber, Timestamp: v.seal.sealed, Unfinished: v.unfinished,
	}
}

func (a *applier) begin(c Begin) (Result, error) {
	tx := a.st.transaction(c.Txn)
	if tx.prepared || tx.deletes[beginSeq] != nil {
		return Result{Outcome: tx.outcome()}, nil
	}
	return Result{Outcome: Staged}, a.keepDelete(tx, beginSeq, &stagedDelete{index: a.index})
}

func (a *applier) seal(c Seal) Result {
	s := &a.st.counters.sealCounters
	if c.Job < s.sealJob || (c.Job == s.sealJob && c.Number < s.sealNumber) {
		return Result{Outcome: Sealed, Err: sqlstate.New(sqlstate.SerializationFailure,
			"tablet %d was sealed or opened by job %d, step %d, after job %d, step %d", a.t.id, s.sealJob, s.sealNumber, c.Job, c.Number)}
	}
	s.sealJob, s.sealNumber = c.Job, c.Number
	switch {
	case c.Release:
		s.sealed = 0
	case s.sealed == 0:
		h := &a.st.counters.holdCounters
		s.sealed = max(c.Timestamp, c.After, h.closed, h.until, a.st.counters.lastTS)
		// Nothing of others' reads is lost when the lease is: it ends below.
		h.closed = max(h.closed, h.until)
	}
	return Result{Outcome: Sealed, Timestamp: s.sealed, Rows: uint64(len(a.st.txns))}
}

// refused answers a command of a transaction that a sealed tablet does not know.
func (a *applier) refused(c Command) (Result, bool) {
	id := c.txn()
	if a.st.counters.sealed == 0 || id == "" || a.st.txns[id] != nil {
		return Result{}, false
	}
	return Result{Outcome: Sealed, Err: sqlstate.New(sqlstate.SerializationFailure,
		"tablet %d is sealed: others take its rows over", a.t.id).WithHint("run the transaction again")}, true
}
