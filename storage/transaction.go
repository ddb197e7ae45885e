package storage

import (
	"encoding/binary"
	"fmt"
	"math"

	"skein/catalog"
)

// Versions of the records of unfinished transactions; the first knew no
// deletes.
const (
	firstStagedVersion = 1
	stagedVersion      = 2
)

// stagedSegment is a segment of an unfinished transaction.
type stagedSegment struct {
	id    uint64
	seq   uint32
	parts uint32
	got   []byte // bitmap of the parts that are here
	bytes uint64 // of those
	index uint64 // about the log index of the first: that of the group of entries it came in
	mode  ConflictMode
	meta  *segmentMeta // nil until part 0 is here
	saved bool         // has a 'y' record
}

func (s *stagedSegment) has(part uint32) bool { return s.got[part>>3]&(1<<(part&7)) != 0 }

func (s *stagedSegment) complete() bool {
	for p := range s.parts {
		if !s.has(p) {
			return false
		}
	}
	return true
}

func (s *stagedSegment) encode() []byte {
	b := append([]byte{stagedVersion}, be64(s.id)...)
	b = binary.BigEndian.AppendUint32(b, s.parts)
	b = append(append(b, be64(s.bytes)...), be64(s.index)...)
	return append(append(b, byte(s.mode)), s.got...)
}

func decodeStaged(seq uint32, value []byte) (*stagedSegment, error) {
	r := &reader{b: value}
	version := r.byte()
	if version < firstStagedVersion || version > stagedVersion {
		return nil, fmt.Errorf("staged segment version %d, this release reads up to %d", version, stagedVersion)
	}
	s := &stagedSegment{seq: seq, id: readBE64(r), saved: true}
	if b := r.take(4); b != nil {
		s.parts = binary.BigEndian.Uint32(b)
	}
	s.bytes, s.index = readBE64(r), readBE64(r)
	if version > firstStagedVersion {
		s.mode = ConflictMode(r.byte())
	}
	s.got = append(s.got, r.take(uint64(s.parts+7)/8)...)
	return s, r.done()
}

// stagedDelete is a list of rows that an unfinished transaction deletes.
type stagedDelete struct {
	snapshot uint64
	index    uint64 // as of a stagedSegment
	rows     []uint64
	saved    bool // has a 'z' record
}

// truncateSeq is the number of the list that stands for all rows.
const truncateSeq = math.MaxUint32

func (d *stagedDelete) encode() []byte {
	b := append([]byte{stagedVersion}, be64(d.snapshot)...)
	return appendRowIDs(append(b, be64(d.index)...), d.rows)
}

func decodeStagedDelete(value []byte) (*stagedDelete, error) {
	r := &reader{b: value}
	if v := r.byte(); v != stagedVersion {
		return nil, fmt.Errorf("staged deletes version %d, this release reads %d", v, stagedVersion)
	}
	d := &stagedDelete{snapshot: readBE64(r), index: readBE64(r), saved: true}
	d.rows = readRowIDs(r)
	return d, r.done()
}

// effect is what a checked transaction does besides adding its segments.
type effect struct {
	rows []uint64 // it deletes, ascending; all of them exist
	// dead lists, by segment, rows of its own that nobody gets to see, ascending.
	dead     map[uint32][]uint32
	replaced []uint64 // those of rows that make room for a key
	inserted uint64
	replaces uint64 // incoming rows whose key existed
	ignored  uint64
	deleted  uint64 // rows named by the transaction
}

// Numbers of 'w' records: chunks of replaced rows from 0 on, and the dead rows
// of a segment.
const (
	decidedDead  = 1 << 31
	decidedChunk = 1 << 18 // row ids
)

// transaction is an unfinished transaction.
type transaction struct {
	id       string
	prepared bool
	primary  catalog.TabletID
	floor    uint64
	promised uint32 // segments, when prepared
	segments map[uint32]*stagedSegment
	deletes  map[uint32]*stagedDelete
	effect   *effect // set by the check, kept while prepared
}

func newTransaction(id string) *transaction {
	return &transaction{id: id, segments: make(map[uint32]*stagedSegment), deletes: make(map[uint32]*stagedDelete)}
}

func (t *transaction) outcome() Outcome {
	if t.prepared {
		return Prepared
	}
	return Staged
}

// truncates reports whether the transaction deletes all rows first.
func (t *transaction) truncates() bool { return t.deletes[truncateSeq] != nil }

// lists is how many lists of rows to delete are staged.
func (t *transaction) lists() uint32 {
	n := uint32(len(t.deletes))
	if t.truncates() {
		n--
	}
	if t.deletes[beginSeq] != nil {
		n--
	}
	return n
}

// snapshot is the latest that the rows to delete were read at.
func (t *transaction) snapshot() uint64 {
	var ts uint64
	for _, d := range t.deletes {
		ts = max(ts, d.snapshot)
	}
	return ts
}

// doomed are the rows of all lists, ascending.
func (t *transaction) doomed() []uint64 {
	lists := make([][]uint64, 0, len(t.deletes))
	for _, d := range t.deletes {
		lists = append(lists, d.rows)
	}
	return mergeRows(lists...)
}

// encode returns the 'x' record of a prepared transaction.
func (t *transaction) encode() []byte {
	b := append([]byte{stagedVersion}, be64(uint64(t.primary))...)
	b = append(b, be64(t.floor)...)
	b = binary.BigEndian.AppendUint32(b, t.promised)
	e := t.effect
	for _, n := range []uint64{e.inserted, e.replaces, e.ignored, e.deleted} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func (t *transaction) decode(value []byte) error {
	r := &reader{b: value}
	version := r.byte()
	if version < firstStagedVersion || version > stagedVersion {
		return fmt.Errorf("transaction version %d, this release reads up to %d", version, stagedVersion)
	}
	t.prepared = true
	t.primary, t.floor = catalog.TabletID(readBE64(r)), readBE64(r)
	if b := r.take(4); b != nil {
		t.promised = binary.BigEndian.Uint32(b)
	}
	e := t.decided()
	if version > firstStagedVersion {
		e.inserted, e.replaces, e.ignored, e.deleted = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	}
	return r.done()
}

// decided returns the effect, made if missing.
func (t *transaction) decided() *effect {
	if t.effect == nil {
		t.effect = &effect{dead: make(map[uint32][]uint32)}
	}
	return t.effect
}

// decidedRecords lists the 'w' records of a checked transaction.
func (t *transaction) decidedRecords(put func(number uint32, value []byte) error) error {
	rows := t.effect.replaced
	for n := uint32(0); len(rows) > 0; n++ {
		chunk := rows[:min(len(rows), decidedChunk)]
		if err := put(n, appendRowIDs([]byte{stagedVersion}, chunk)); err != nil {
			return err
		}
		rows = rows[len(chunk):]
	}
	for seq := range t.promised {
		dead := t.effect.dead[seq]
		if len(dead) == 0 {
			continue
		}
		list := make([]uint64, len(dead))
		for i, row := range dead {
			list[i] = uint64(row)
		}
		if err := put(decidedDead|seq, appendRowIDs([]byte{stagedVersion}, list)); err != nil {
			return err
		}
	}
	return nil
}

// loadDecided reverses decidedRecords for one record.
func (t *transaction) loadDecided(number uint32, value []byte) error {
	r := &reader{b: value}
	if v := r.byte(); v != stagedVersion {
		return fmt.Errorf("decided rows version %d, this release reads %d", v, stagedVersion)
	}
	rows := readRowIDs(r)
	e := t.decided()
	if number&decidedDead == 0 {
		e.replaced = append(e.replaced, rows...)
		return r.done()
	}
	dead := make([]uint32, len(rows))
	for i, row := range rows {
		dead[i] = uint32(row)
	}
	e.dead[number&^decidedDead] = dead
	return r.done()
}
