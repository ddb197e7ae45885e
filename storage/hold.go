package storage

import "encoding/binary"

// Bounds say from where a timestamp may be taken. Whoever proposes a command
// fills them in; the tablet moves the timestamp up where they ask for it.
type Bounds struct {
	// Session names the proposer's reads, 0 for none. See Hold.
	Session uint64
	// After is a timestamp that the command's must exceed: the greatest at which
	// the proposer has served a read.
	After uint64
}

func (b Bounds) append(dst []byte) []byte {
	return binary.AppendUvarint(binary.LittleEndian.AppendUint64(dst, b.Session), b.After)
}

// Hold promises to a session of reads that no command of others commits at or
// below Until, and to everybody that no command at all commits at or below
// Closed. The promise of an earlier session is not broken by a new one: Closed
// rises to what that was promised. An Until of 0 leaves the holder alone. With
// Release the holder, which has read nothing above Until and is not to come back,
// gives the rest of its promise up.
//
// A transaction that is prepared is not bound: readers above its floor wait for
// its outcome. Its floor is bound.
type Hold struct {
	Session uint64
	Until   uint64
	Closed  uint64
	Release bool
}

func (c Hold) append(dst []byte) []byte {
	for _, v := range []uint64{c.Session, c.Until, c.Closed} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	if c.Release {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// holdCounters are what Holds have promised. They are replicated.
type holdCounters struct {
	holder uint64 // session
	until  uint64
	closed uint64
}

func (h *holdCounters) hold(c Hold) {
	if c.Release {
		if c.Session == h.holder {
			h.until = min(h.until, c.Until)
		}
		return
	}
	if c.Until > 0 && c.Session != h.holder {
		h.closed = max(h.closed, h.until)
		h.holder, h.until = c.Session, 0
	}
	if c.Until > 0 {
		h.until = max(h.until, c.Until)
	}
	h.closed = max(h.closed, c.Closed)
}

// floor is what a timestamp with some bounds must exceed.
func (h *holdCounters) floor(b Bounds) uint64 {
	floor := max(h.closed, b.After)
	if b.Session != h.holder {
		floor = max(floor, h.until)
	}
	return floor
}

// Promised returns the greatest timestamp at or below which nothing commits any
// more that could be missing here: to anybody, and to a session.
func (t *Tablet) Promised(session uint64) (closed, own uint64) {
	h := &t.view.Load().hold
	if session == h.holder {
		return h.closed, max(h.closed, h.until)
	}
	return h.closed, h.closed
}
