package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

const (
	// SegmentRows is the most rows of one segment.
	SegmentRows = 128 << 10
	// MaxPartBytes is the most bytes of one part of a segment, and so about
	// the largest command.
	MaxPartBytes = 2 << 20

	segmentMagic = 0x47534b53 // "SKSG"
	// firstSegmentVersion had no column ids, block zones or sketches.
	firstSegmentVersion = 1
	// secondSegmentVersion had no null counts of blocks.
	secondSegmentVersion = 2
	segmentVersion       = 3
	segmentHead          = 4 + 1 + 4 // magic, version, length of the metadata
	segmentSum           = 8         // checksum of head and metadata
)

// Segment is an encoded, immutable run of rows. It is cut into parts of at
// most MaxPartBytes, which are replicated and stored verbatim; the first holds
// the metadata, and a column chunk lies within one part unless it is larger
// than that, in which case it runs on at the start of the following ones.
type Segment struct {
	meta  *segmentMeta
	parts [][]byte
}

// Rows is how many rows the segment holds.
func (s *Segment) Rows() int { return s.meta.rows }

// Parts are the bytes to replicate, in order; they belong to the segment.
func (s *Segment) Parts() [][]byte { return s.parts }

// Bytes is the encoded size.
func (s *Segment) Bytes() int {
	n := 0
	for _, p := range s.parts {
		n += len(p)
	}
	return n
}

// chunkRef locates a chunk: the bytes from offset of a part on, counted in
// the first part from the end of the metadata.
type chunkRef struct {
	part   uint16
	offset uint32
	size   uint32
	sum    uint32 // low half of the chunk's xxHash64
}

// zone bounds a column's values by encoded keys (catalog.AppendKey). An empty
// bound is unknown; long strings have bounds that are not values themselves.
type zone struct {
	min, max           []byte
	minExact, maxExact bool
}

type columnMeta struct {
	id     int // catalog.Table.ColumnID
	nulls  int
	zone   zone
	blocks []blockZone // nil when the type or a small segment has none
	// blockNulls counts the nulls of each block, nil when none or all of the
	// segment's values are null.
	blockNulls []int
	chunk      chunkRef
	verified   atomic.Bool // the chunk's checksum has been seen to match
}

// keyMeta describes the primary-key index of a segment.
type keyMeta struct {
	sorted   bool   // rows are in strictly ascending key order
	min, max []byte // encoded keys of existing rows
	dup      []byte // smallest key that two rows share; empty for none
	chunk    chunkRef
	verified atomic.Bool // as of a columnMeta
}

type segmentMeta struct {
	rows    int
	columns []columnMeta
	key     *keyMeta // nil for tables without a primary key
	sketch  chunkRef // of all columns' sketches; empty for none
	parts   int
	head    int // bytes of the first part before the first chunk
	bytes   int // of all chunks
}

// EncodeSegment encodes the selected rows of the batches, in order, into one
// segment. Batches hold the table's columns in table order with physical
// types. It is safe for concurrent use and keeps nothing of the batches.
//
// Errors are *sqlstate.Error for data the table cannot hold (a null in a key
// column); a key that occurs twice is no error here, the commit reports it.
func EncodeSegment(table *catalog.Table, batches []*columnar.Batch) (*Segment, error) {
	rows := 0
	for _, b := range batches {
		rows += b.Rows()
	}
	if rows == 0 || rows > SegmentRows {
		return nil, fmt.Errorf("encoding a segment of %d rows: the bounds are 1 and %d", rows, SegmentRows)
	}
	meta := &segmentMeta{rows: rows, columns: make([]columnMeta, len(table.Columns))}
	// All chunks share one buffer: they are copied into parts when their sizes
	// are known.
	arena := make([]byte, 0, rows*len(table.Columns)*3+4096)
	ends := make([]int, 0, len(table.Columns)+2)
	var sketches []byte
	keyCols := make([]*columnar.Vector, len(table.PrimaryKey))
	for c := range table.Columns {
		v, err := gatherColumn(table, batches, c, rows)
		if err != nil {
			return nil, err
		}
		if arena, err = encodeChunk(arena, v); err != nil {
			return nil, fmt.Errorf("encoding column %q: %w", table.Columns[c].Name, err)
		}
		ends = append(ends, len(arena))
		meta.columns[c].nulls = v.NullCount()
		meta.columns[c].id = table.ColumnID(c)
		meta.columns[c].zone, meta.columns[c].blocks = zonesOf(v)
		meta.columns[c].blockNulls = blockNulls(v, meta.columns[c].nulls)
		if rows >= sketchRows {
			sketches = appendSketch(sketches, v)
		}
		for k, ord := range table.PrimaryKey {
			if ord == c {
				keyCols[k] = v
			}
		}
	}
	if len(keyCols) > 0 {
		if err := checkKeyColumns(table, keyCols); err != nil {
			return nil, err
		}
		meta.key, arena = buildKeyIndex(arena, catalog.EncodeKeys(keyCols, rows))
		ends = append(ends, len(arena))
	}
	arena = append(arena, sketches...)
	ends = append(ends, len(arena))
	return layOut(meta, arena, ends), nil
}

// gatherColumn returns one flat vector of the selected rows of all batches.
func gatherColumn(table *catalog.Table, batches []*columnar.Batch, c, rows int) (*columnar.Vector, error) {
	want := catalog.PhysicalType(table.Columns[c].Type)
	for _, b := range batches {
		if len(b.Cols) != len(table.Columns) {
			return nil, fmt.Errorf("encoding table %s: batch of %d columns, the table has %d",
				table.QualifiedName(), len(b.Cols), len(table.Columns))
		}
		if got := b.Cols[c].Type; !arrow.TypeEqual(got, want) {
			return nil, sqlstate.New(sqlstate.DatatypeMismatch, "column %q is of type %s but the batch has %s",
				table.Columns[c].Name, want, got)
		}
	}
	if len(batches) == 1 && batches[0].Sel == nil {
		return batches[0].Cols[c].Flatten()
	}
	return gatherVectors(want, batches, c, rows)
}

func checkKeyColumns(table *catalog.Table, keyCols []*columnar.Vector) error {
	for k, v := range keyCols {
		col := table.Columns[table.PrimaryKey[k]]
		if v.NullCount() > 0 {
			return sqlstate.New(sqlstate.NotNullViolation,
				"null value in column %q of relation %q violates not-null constraint", col.Name, table.Name)
		}
		if v.Valid != nil {
			c := *v // the vector may be the caller's
			c.Valid = nil
			keyCols[k] = &c
		}
		if !catalog.KeyableType(v.Type) {
			return sqlstate.New(sqlstate.FeatureNotSupported, "column %q of type %s cannot be part of a primary key",
				col.Name, catalog.TypeName(col.Type))
		}
	}
	return nil
}

// layOut assigns chunks to parts and puts the metadata in front.
// Chunk i is the bytes of arena up to ends[i].
func layOut(meta *segmentMeta, arena []byte, ends []int) *Segment {
	refs := meta.refs()
	chunks := make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		chunks[i], start = arena[start:end], end
	}
	for i, c := range chunks {
		refs[i].size = uint32(len(c))
		refs[i].sum = uint32(xxhash.Sum64(c))
		meta.bytes += len(c)
	}
	// Positions are of fixed width, so the metadata's size is known before them.
	meta.head = segmentHead + len(meta.append(nil)) + segmentSum
	parts := [][]byte{make([]byte, meta.head, meta.head+min(meta.bytes, MaxPartBytes))}
	for i, c := range chunks {
		last := len(parts) - 1
		if len(parts[last])+len(c) > MaxPartBytes && len(c) <= MaxPartBytes && len(parts[last]) > meta.head {
			parts = append(parts, make([]byte, 0, min(meta.bytes, MaxPartBytes)))
			last++
		}
		refs[i].part = uint16(last)
		refs[i].offset = uint32(len(parts[last]))
		if last == 0 {
			refs[i].offset -= uint32(meta.head)
		}
		for len(c) > 0 {
			last = len(parts) - 1
			n := min(len(c), max(MaxPartBytes-len(parts[last]), 0))
			if n == 0 {
				parts = append(parts, nil)
				continue
			}
			parts[last] = append(parts[last], c[:n]...)
			c = c[n:]
		}
	}
	meta.parts = len(parts)
	head := binary.LittleEndian.AppendUint32(nil, segmentMagic)
	head = append(head, segmentVersion)
	body := meta.append(nil)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(body)))
	head = append(head, body...)
	head = binary.LittleEndian.AppendUint64(head, xxhash.Sum64(head))
	copy(parts[0], head)
	return &Segment{meta: meta, parts: parts}
}

// refs lists the chunk references in chunk order: columns, then the key index,
// then the sketches.
func (m *segmentMeta) refs() []*chunkRef {
	refs := make([]*chunkRef, 0, len(m.columns)+2)
	for i := range m.columns {
		refs = append(refs, &m.columns[i].chunk)
	}
	if m.key != nil {
		refs = append(refs, &m.key.chunk)
	}
	return append(refs, &m.sketch)
}

const (
	zoneMinExact = 1 << 0
	zoneMaxExact = 1 << 1
)

// append appends the metadata record.
func (m *segmentMeta) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.rows))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.parts))
	dst = binary.AppendUvarint(dst, uint64(len(m.columns)))
	for i := range m.columns {
		c := &m.columns[i]
		dst = binary.AppendUvarint(dst, uint64(c.id))
		dst = binary.AppendUvarint(dst, uint64(c.nulls))
		var flags byte
		if c.zone.minExact {
			flags |= zoneMinExact
		}
		if c.zone.maxExact {
			flags |= zoneMaxExact
		}
		dst = append(dst, flags)
		dst = appendBytes(appendBytes(dst, c.zone.min), c.zone.max)
		dst = appendBlockZones(dst, c.blocks)
		dst = appendBlockNulls(dst, c.blockNulls)
		dst = c.chunk.append(dst)
	}
	dst = m.sketch.append(dst)
	if m.key == nil {
		return append(dst, 0)
	}
	flags := byte(1)
	if m.key.sorted {
		flags |= 2
	}
	dst = append(dst, flags)
	dst = appendBytes(appendBytes(appendBytes(dst, m.key.min), m.key.max), m.key.dup)
	return m.key.chunk.append(dst)
}

func (c chunkRef) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, c.part)
	dst = binary.LittleEndian.AppendUint32(dst, c.offset)
	dst = binary.LittleEndian.AppendUint32(dst, c.size)
	return binary.LittleEndian.AppendUint32(dst, c.sum)
}

// decodeSegmentMeta reads the metadata at the start of a segment's first part.
// The result does not alias part.
func decodeSegmentMeta(part []byte) (*segmentMeta, error) {
	if len(part) < segmentHead+segmentSum || binary.LittleEndian.Uint32(part) != segmentMagic {
		return nil, fmt.Errorf("not a segment")
	}
	size := uint64(binary.LittleEndian.Uint32(part[5:]))
	if size > uint64(len(part)-segmentHead-segmentSum) {
		return nil, errShort
	}
	end := segmentHead + int(size)
	if xxhash.Sum64(part[:end]) != binary.LittleEndian.Uint64(part[end:]) {
		return nil, fmt.Errorf("segment metadata fails its checksum")
	}
	if part[4] < firstSegmentVersion || part[4] > segmentVersion {
		return nil, fmt.Errorf("%w: segment version %d, this release reads up to %d", errVersion, part[4], segmentVersion)
	}
	m := &segmentMeta{head: end + segmentSum}
	r := &reader{b: append([]byte(nil), part[segmentHead:end]...)}
	m.read(r, part[4])
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("segment metadata: %w", err)
	}
	if m.rows == 0 || m.parts == 0 {
		return nil, fmt.Errorf("segment of %d rows in %d parts", m.rows, m.parts)
	}
	for _, c := range m.refs() {
		m.bytes += int(c.size)
	}
	return m, nil
}

func (m *segmentMeta) read(r *reader, version byte) {
	const leastColumn = 4 + 14 // at least, bytes of a column's record
	m.rows = r.count(SegmentRows)
	m.parts = int(r.uint32())
	m.columns = make([]columnMeta, r.count(uint64(len(r.b)/leastColumn)))
	for i := range m.columns {
		c := &m.columns[i]
		c.id = i + 1
		if version > firstSegmentVersion {
			c.id = r.count(math.MaxInt32)
		}
		c.nulls = r.count(uint64(m.rows))
		flags := r.byte()
		c.zone = zone{min: r.bytes(), max: r.bytes(), minExact: flags&zoneMinExact != 0, maxExact: flags&zoneMaxExact != 0}
		if version > firstSegmentVersion {
			c.blocks = readBlockZones(r, m.rows)
		}
		if version > secondSegmentVersion {
			c.blockNulls = readBlockNulls(r, m.rows)
		}
		c.chunk = readChunkRef(r)
	}
	if version > firstSegmentVersion {
		m.sketch = readChunkRef(r)
	}
	flags := r.byte()
	if flags == 0 {
		return
	}
	m.key = &keyMeta{sorted: flags&2 != 0, min: r.bytes(), max: r.bytes(), dup: r.bytes()}
	m.key.chunk = readChunkRef(r)
}

func readChunkRef(r *reader) chunkRef {
	var c chunkRef
	if b := r.take(2); b != nil {
		c.part = binary.LittleEndian.Uint16(b)
	}
	c.offset, c.size, c.sum = r.uint32(), r.uint32(), r.uint32()
	return c
}

// matches reports whether the segment could belong to the table, whatever
// version of it: replicas do not learn of a new version at the same log entry.
func (m *segmentMeta) matches(table *catalog.Table) error {
	fits := (m.key != nil) == (len(table.PrimaryKey) > 0)
	for _, c := range table.PrimaryKey {
		fits = fits && m.find(table.ColumnID(c)) >= 0
	}
	if !fits {
		return fmt.Errorf("a segment of %d columns does not fit table %s", len(m.columns), table.QualifiedName())
	}
	return nil
}

// find returns the place of the column with an id in the segment, or -1.
func (m *segmentMeta) find(id int) int {
	if id > 0 && id <= len(m.columns) && m.columns[id-1].id == id {
		return id - 1
	}
	for i := range m.columns {
		if m.columns[i].id == id {
			return i
		}
	}
	return -1
}
