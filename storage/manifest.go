package storage

import (
	"encoding/binary"
	"fmt"
	"math"

	"skein/catalog"
)

// Keys of a tablet's space, after the epoch:
//
//	'a'                    applied index and counters
//	'f' number             a finished transaction and its result, by log order
//	'h'                    the horizon: the oldest readable timestamp (local)
//	'm' first row          a committed segment
//	'p' segment part       the bytes of a segment, as replicated
//	'x' txn                a prepared transaction
//	'y' txn 0 seq          a staged segment
//
// Numbers are big endian, so keys sort by them.
const (
	keyFinished = 'f'
	keyHorizon  = 'h'
	keyManifest = 'm'
	keyPart     = 'p'
	keyPrepared = 'x'
	keyStaged   = 'y'

	manifestVersion = 1
	// localSegment marks the ids of segments that compaction made; all others
	// are numbered by the log.
	localSegment = 1 << 63
)

// tsRun says that rows from row on, up to the next run, were committed at ts.
type tsRun struct {
	row uint32
	ts  uint64
}

// segmentRef is a committed segment. It is immutable.
type segmentRef struct {
	id       uint64
	meta     *segmentMeta
	firstRow uint64  // RowId of its first row; the others follow
	runs     []tsRun // the first starts at row 0
	minTS    uint64
	maxTS    uint64
}

func newSegmentRef(id uint64, meta *segmentMeta, firstRow uint64, runs []tsRun) *segmentRef {
	s := &segmentRef{id: id, meta: meta, firstRow: firstRow, runs: runs, minTS: math.MaxUint64}
	for _, r := range runs {
		s.minTS, s.maxTS = min(s.minTS, r.ts), max(s.maxTS, r.ts)
	}
	return s
}

func be64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func manifestKey(firstRow uint64) []byte { return append([]byte{keyManifest}, be64(firstRow)...) }

func partKey(segment uint64, part int) []byte {
	return binary.BigEndian.AppendUint16(append([]byte{keyPart}, be64(segment)...), uint16(part))
}

func stagedKey(txn string, seq uint32) []byte {
	k := append([]byte{keyStaged}, txn...)
	return binary.BigEndian.AppendUint32(append(k, 0), seq)
}

func preparedKey(txn string) []byte { return append([]byte{keyPrepared}, txn...) }

func finishedKey(n uint64) []byte { return append([]byte{keyFinished}, be64(n)...) }

// encode returns the manifest record of a segment.
func (s *segmentRef) encode() []byte {
	b := append([]byte{manifestVersion}, be64(s.id)...)
	b = binary.AppendUvarint(b, uint64(len(s.runs)))
	for _, r := range s.runs {
		b = binary.AppendUvarint(b, uint64(r.row))
		b = binary.AppendUvarint(b, r.ts)
	}
	return b
}

func decodeManifest(value []byte) (id uint64, runs []tsRun, err error) {
	r := &reader{b: value}
	if v := r.byte(); v != manifestVersion {
		return 0, nil, fmt.Errorf("manifest version %d, this release reads %d", v, manifestVersion)
	}
	id = readBE64(r)
	runs = make([]tsRun, r.count(uint64(len(r.b))))
	for i := range runs {
		runs[i] = tsRun{row: uint32(r.count(SegmentRows)), ts: r.uvarint()}
	}
	if err := r.done(); err != nil {
		return 0, nil, fmt.Errorf("manifest: %w", err)
	}
	if len(runs) == 0 || runs[0].row != 0 {
		return 0, nil, fmt.Errorf("manifest: row times do not start at the first row")
	}
	return id, runs, nil
}

func readBE64(r *reader) uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// counters is the 'a' record: where the log stands and the numbers it gives out.
type counters struct {
	applied     uint64
	nextSegment uint64
	nextRow     uint64
	finished    uint64 // number of the next finished transaction
	table       catalog.TableID
}

func (c counters) encode() []byte {
	b := []byte{manifestVersion}
	for _, v := range []uint64{c.applied, c.nextSegment, c.nextRow, c.finished, uint64(c.table)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func decodeCounters(value []byte) (counters, error) {
	r := &reader{b: value}
	if v := r.byte(); v != manifestVersion {
		return counters{}, fmt.Errorf("tablet version %d, this release reads %d", v, manifestVersion)
	}
	c := counters{applied: readBE64(r), nextSegment: readBE64(r), nextRow: readBE64(r), finished: readBE64(r)}
	c.table = catalog.TableID(readBE64(r))
	return c, r.done()
}

// stagedSegment is a segment of an unfinished transaction.
type stagedSegment struct {
	id    uint64
	seq   uint32
	parts uint32
	got   []byte       // bitmap of the parts that are here
	bytes uint64       // of those
	index uint64       // about the log index of the first: that of the group of entries it came in
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
	b := append([]byte{manifestVersion}, be64(s.id)...)
	b = binary.BigEndian.AppendUint32(b, s.parts)
	b = append(append(b, be64(s.bytes)...), be64(s.index)...)
	return append(b, s.got...)
}

func decodeStaged(seq uint32, value []byte) (*stagedSegment, error) {
	r := &reader{b: value}
	if v := r.byte(); v != manifestVersion {
		return nil, fmt.Errorf("staged segment version %d, this release reads %d", v, manifestVersion)
	}
	s := &stagedSegment{seq: seq, id: readBE64(r), saved: true}
	if b := r.take(4); b != nil {
		s.parts = binary.BigEndian.Uint32(b)
	}
	s.bytes, s.index = readBE64(r), readBE64(r)
	s.got = append(s.got, r.take(uint64(s.parts+7)/8)...)
	return s, r.done()
}

// transaction is an unfinished transaction.
type transaction struct {
	id       string
	prepared bool
	primary  catalog.TabletID
	floor    uint64
	promised uint32 // segments, when prepared
	segments map[uint32]*stagedSegment
}

func (t *transaction) outcome() Outcome {
	if t.prepared {
		return Prepared
	}
	return Staged
}

// encode returns the 'x' record of a prepared transaction.
func (t *transaction) encode() []byte {
	b := append([]byte{manifestVersion}, be64(uint64(t.primary))...)
	b = append(b, be64(t.floor)...)
	return binary.BigEndian.AppendUint32(b, t.promised)
}

func (t *transaction) decode(value []byte) error {
	r := &reader{b: value}
	if v := r.byte(); v != manifestVersion {
		return fmt.Errorf("transaction version %d, this release reads %d", v, manifestVersion)
	}
	t.prepared = true
	t.primary, t.floor = catalog.TabletID(readBE64(r)), readBE64(r)
	if b := r.take(4); b != nil {
		t.promised = binary.BigEndian.Uint32(b)
	}
	return r.done()
}

func encodeFinished(txn string, res Result) []byte {
	return res.append(appendString([]byte{manifestVersion}, txn))
}

func decodeFinished(value []byte) (string, Result, error) {
	r := &reader{b: value}
	if v := r.byte(); v != manifestVersion {
		return "", Result{}, fmt.Errorf("outcome version %d, this release reads %d", v, manifestVersion)
	}
	txn := r.string()
	res := readResult(r)
	return txn, res, r.done()
}
