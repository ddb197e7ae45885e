package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sort"

	"skein/catalog"
)

// Keys of a tablet's space, after the epoch:
//
//	'a'                    applied index and counters
//	'f' number             a finished transaction and its result, by log order
//	'h'                    the horizon: the oldest readable timestamp (local)
//	'm' first row          a committed segment
//	'd' segment [page]     rows deleted from a segment: all, or of one page
//	'p' segment part       the bytes of a segment, as replicated
//	'w' txn 0 number       what a prepared transaction's keys decided
//	'x' txn                a prepared transaction
//	'y' txn 0 seq          a staged segment
//	'z' txn 0 seq          a staged list of rows to delete
//
// Numbers are big endian, so keys sort by them.
const (
	keyDeletes      = 'd'
	keyFinished     = 'f'
	keyHorizon      = 'h'
	keyManifest     = 'm'
	keyPart         = 'p'
	keyDecided      = 'w'
	keyPrepared     = 'x'
	keyStaged       = 'y'
	keyStagedDelete = 'z'

	// firstManifestVersion knew no deletes.
	firstManifestVersion = 1
	marksManifestVersion = 2
	// holdManifestVersion knew no seals.
	holdManifestVersion = 3
	manifestVersion     = 4
	// sumVersion is from when on manifest records end with a checksum.
	sumVersion = 3
	// localSegment marks the ids of segments that compaction made; all others
	// are numbered by the log.
	localSegment = 1 << 63
)

// tsRun says that rows from row on, up to the next run, were committed at ts.
type tsRun struct {
	row uint32
	ts  uint64
}

// idRun says that rows from row on, up to the next run, have the RowIDs from id
// on.
type idRun struct {
	row uint32
	id  uint64
}

// segmentRef is a committed segment. It is immutable.
type segmentRef struct {
	id       uint64
	meta     *segmentMeta
	firstRow uint64  // RowID of its first row
	ids      []idRun // nil when the other rows follow without holes
	runs     []tsRun // the first starts at row 0
	minTS    uint64
	maxTS    uint64
	dropped  uint64       // no reader at this timestamp or later sees it; 0 for never
	deletes  *deleteMarks // nil for none
}

func newSegmentRef(id uint64, meta *segmentMeta, firstRow uint64, runs []tsRun) *segmentRef {
	s := &segmentRef{id: id, meta: meta, firstRow: firstRow, runs: runs, minTS: math.MaxUint64}
	for _, r := range runs {
		s.minTS, s.maxTS = min(s.minTS, r.ts), max(s.maxTS, r.ts)
	}
	return s
}

// rowID is the id of a row.
func (s *segmentRef) rowID(row int) uint64 {
	if s.ids == nil {
		return s.firstRow + uint64(row)
	}
	i := sort.Search(len(s.ids), func(i int) bool { return int(s.ids[i].row) > row }) - 1
	return s.ids[i].id + uint64(row) - uint64(s.ids[i].row)
}

// lastRow is the id of the last row.
func (s *segmentRef) lastRow() uint64 { return s.rowID(s.meta.rows - 1) }

// row finds the row with an id.
func (s *segmentRef) row(id uint64) (row int, ok bool) {
	if id < s.firstRow {
		return 0, false
	}
	if s.ids == nil {
		return int(id - s.firstRow), id-s.firstRow < uint64(s.meta.rows)
	}
	i := sort.Search(len(s.ids), func(i int) bool { return s.ids[i].id > id }) - 1
	end := s.meta.rows
	if i+1 < len(s.ids) {
		end = int(s.ids[i+1].row)
	}
	at := uint64(s.ids[i].row) + id - s.ids[i].id
	return int(at), at < uint64(end)
}

// live is how many rows nobody deleted, at whatever time.
func (s *segmentRef) live() int {
	switch {
	case s.dropped != 0:
		return 0
	case s.deletes != nil:
		return s.meta.rows - s.deletes.count
	}
	return s.meta.rows
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

func stagedDeleteKey(txn string, seq uint32) []byte {
	k := append([]byte{keyStagedDelete}, txn...)
	return binary.BigEndian.AppendUint32(append(k, 0), seq)
}

func decidedKey(txn string, number uint32) []byte {
	k := append([]byte{keyDecided}, txn...)
	return binary.BigEndian.AppendUint32(append(k, 0), number)
}

// txnAndNumber splits the keys of the two above and of stagedKey.
func txnAndNumber(key []byte) (txn string, number uint32, err error) {
	if len(key) < 6 {
		return "", 0, fmt.Errorf("key of %d bytes with a transaction and a number", len(key))
	}
	return string(key[1 : len(key)-5]), binary.BigEndian.Uint32(key[len(key)-4:]), nil
}

func deletesKey(segment uint64) []byte { return append([]byte{keyDeletes}, be64(segment)...) }

func deletePageKey(segment uint64, page int) []byte {
	return binary.BigEndian.AppendUint16(deletesKey(segment), uint16(page))
}

func preparedKey(txn string) []byte { return append([]byte{keyPrepared}, txn...) }

func finishedKey(n uint64) []byte { return append([]byte{keyFinished}, be64(n)...) }

// encode returns the manifest record of a segment.
func (s *segmentRef) encode() []byte {
	b := append([]byte{manifestVersion}, be64(s.id)...)
	b = binary.AppendUvarint(b, s.dropped)
	b = binary.AppendUvarint(b, uint64(len(s.runs)))
	var last tsRun
	for _, r := range s.runs {
		b = binary.AppendUvarint(b, uint64(r.row-last.row))
		b = binary.AppendVarint(b, int64(r.ts-last.ts))
		last = r
	}
	b = binary.AppendUvarint(b, uint64(len(s.ids)))
	var before idRun
	for _, r := range s.ids {
		b = binary.AppendUvarint(b, uint64(r.row-before.row))
		b = binary.AppendUvarint(b, r.id-before.id)
		before = r
	}
	return appendSum(b)
}

// appendSum appends the CRC-32C of a record.
func appendSum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// openRecord checks the version of a record, which is its first byte, and from
// sumVersion on its checksum. The reader stands behind the version.
func openRecord(value []byte, what string) (*reader, byte, error) {
	if len(value) == 0 || value[0] < firstManifestVersion {
		return nil, 0, fmt.Errorf("%s of no version: %.4x", what, value)
	}
	version := value[0]
	if version >= sumVersion {
		end := len(value) - 4
		if end < 1 || crc32.Checksum(value[:end], castagnoli) != binary.LittleEndian.Uint32(value[end:]) {
			return nil, 0, fmt.Errorf("%s: %w", what, errChecksum)
		}
		value = value[:end]
	}
	if version > manifestVersion {
		return nil, 0, fmt.Errorf("%w: %s of version %d, this release reads up to %d", errVersion, what, version, manifestVersion)
	}
	return &reader{b: value[1:]}, version, nil
}

// decodeManifest reads a record; the result has no metadata yet.
func decodeManifest(firstRow uint64, value []byte) (*segmentRef, error) {
	r, version, err := openRecord(value, "manifest")
	if err != nil {
		return nil, err
	}
	id := readBE64(r)
	var dropped uint64
	if version > firstManifestVersion {
		dropped = r.uvarint()
	}
	runs := make([]tsRun, r.count(uint64(len(r.b))))
	var last tsRun
	for i := range runs {
		if version > firstManifestVersion {
			runs[i] = tsRun{row: last.row + uint32(r.count(SegmentRows)), ts: last.ts + uint64(r.varint())}
		} else {
			runs[i] = tsRun{row: uint32(r.count(SegmentRows)), ts: r.uvarint()}
		}
		last = runs[i]
	}
	var ids []idRun
	if version > firstManifestVersion {
		ids = readIDRuns(r)
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if len(runs) == 0 || runs[0].row != 0 {
		return nil, fmt.Errorf("manifest: row times do not start at the first row")
	}
	if ids != nil && (ids[0].row != 0 || ids[0].id != firstRow) {
		return nil, fmt.Errorf("manifest: row ids do not start at the first row")
	}
	s := newSegmentRef(id, nil, firstRow, runs)
	s.dropped, s.ids = dropped, ids
	return s, nil
}

func readIDRuns(r *reader) []idRun {
	n := r.count(uint64(len(r.b)))
	if n == 0 {
		return nil
	}
	ids := make([]idRun, n)
	var last idRun
	for i := range ids {
		ids[i] = idRun{row: last.row + uint32(r.count(SegmentRows)), id: last.id + r.uvarint()}
		last = ids[i]
	}
	return ids
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
	lastTS      uint64 // greatest of a commit
	holdCounters
	sealCounters
}

func (c counters) encode() []byte {
	b := []byte{manifestVersion}
	for _, v := range []uint64{c.applied, c.nextSegment, c.nextRow, c.finished, uint64(c.table), c.lastTS, c.holder, c.until, c.closed,
		c.sealJob, c.sealNumber, c.sealed} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return appendSum(b)
}

func decodeCounters(value []byte) (counters, error) {
	r, version, err := openRecord(value, "tablet counters")
	if err != nil {
		return counters{}, err
	}
	c := counters{applied: readBE64(r), nextSegment: readBE64(r), nextRow: readBE64(r), finished: readBE64(r)}
	c.table = catalog.TableID(readBE64(r))
	if version > firstManifestVersion {
		c.lastTS = readBE64(r)
	}
	if version > marksManifestVersion {
		c.holder, c.until, c.closed = readBE64(r), readBE64(r), readBE64(r)
	}
	if version > holdManifestVersion {
		c.sealJob, c.sealNumber, c.sealed = readBE64(r), readBE64(r), readBE64(r)
	}
	return c, r.done()
}

func encodeFinished(txn string, res Result) []byte {
	return res.append(appendString([]byte{resultVersion}, txn))
}

func decodeFinished(value []byte) (string, Result, error) {
	r := &reader{b: value}
	version := r.byte()
	if version < firstResultVersion || version > resultVersion {
		return "", Result{}, fmt.Errorf("outcome version %d, this release reads up to %d", version, resultVersion)
	}
	txn := r.string()
	res := readResult(r, version)
	return txn, res, r.done()
}
