package exec

import (
	"encoding/binary"
	"hash/maphash"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// keyShape is how the key columns of a hash table are represented.
type keyShape uint8

const (
	wordShape  keyShape = iota // one column of at most 8 bytes
	wideShape                  // fixed-width columns of at most maxWide bytes together
	bytesShape                 // anything else
)

// wideKey is a packed key of fixed-width columns. The lower half of rest has one
// bit per column, which is set when it is null; the upper one is columns again.
type wideKey struct {
	lo, hi uint64
	rest   uint64
}

// maxWide is how many bytes of columns a wideKey holds.
const maxWide = 20

// keyCoder turns the key columns of batches into hashable keys. It holds the
// scratch memory of one goroutine; coders for the same table share its seed.
type keyCoder struct {
	shape keyShape
	cols  []int
	types []arrow.DataType
	seed  tableSeed
	slots []wideSlot  // of wideShape, by column
	terns []*interner // of wideShape, by column: of strings, else nil
	// unhashed spares the hashes of words, for tables that have no use for them.
	unhashed bool

	// The keys of the encoded rows. Of wordShape, and of bytesShape with one
	// column, nulls (nil when there are none) marks null keys.
	n      int
	hashes []uint64
	words  []uint64
	nulls  []bool
	wide   []wideKey
	data   []byte // bytesShape: key i is data[starts[i]:ends[i]]
	starts []int32
	ends   []int32

	nullBuf []bool
	arena   []byte
}

// wideSlot is the place of a column in a wideKey.
type wideSlot struct {
	word  uint8 // 0 for lo, 1 for hi, 2 for rest
	shift uint
	mask  uint64
}

// newKeyCoder returns a coder for the columns cols, which have the given
// physical types.
func newKeyCoder(cols []int, types []arrow.DataType, seed tableSeed) (*keyCoder, error) {
	k := &keyCoder{cols: cols, types: types, seed: seed}
	total, fixed := 0, true
	for _, t := range types {
		w := columnar.Width(t)
		if w == 0 && t.ID() != arrow.STRING && t.ID() != arrow.BINARY || w > 0 && !supportedWidth(w) {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "type %s cannot be a key of GROUP BY or a join", t)
		}
		fixed = fixed && w > 0
		total += w
	}
	switch {
	case len(types) == 1 && fixed && total <= 8:
		k.shape = wordShape
	case fixed && total <= maxWide:
		k.shape = wideShape
		widths := make([]int, len(types))
		for i, t := range types {
			widths[i] = columnar.Width(t)
		}
		k.slots = placeWide(widths)
	default:
		k.shape = bytesShape
	}
	return k, nil
}

// placeWide assigns columns to the words of a wideKey, widest first: as widths
// are powers of two no column straddles the words.
func placeWide(widths []int) []wideSlot {
	slots := make([]wideSlot, len(widths))
	used := uint(0)
	for _, width := range []int{16, 8, 4, 2, 1} {
		for i, w := range widths {
			if w != width {
				continue
			}
			bits := uint(width) * 8
			slots[i] = wideSlot{word: uint8(used / 64), shift: used % 64, mask: math.MaxUint64}
			if slots[i].word == 2 {
				slots[i].shift += 32 // above the nulls
			}
			if bits < 64 {
				slots[i].mask = 1<<bits - 1
			}
			used += bits
		}
	}
	return slots
}

// encode computes keys and hashes of the selected rows.
func (k *keyCoder) encode(cols []*columnar.Vector, sel []int32, n int) {
	if sel != nil {
		n = len(sel)
	}
	k.n = n
	k.nulls = nil
	k.hashes = resize(k.hashes, n)
	switch k.shape {
	case wordShape:
		v := cols[k.cols[0]]
		k.words = resize(k.words, n)
		loadWords(k.words, v, sel)
		k.markNulls(v, sel)
		if !k.unhashed {
			k.hashWords()
		}
	case wideShape:
		k.encodeWide(cols, sel)
		for i := range k.wide {
			w := &k.wide[i]
			h := w.hi
			if w.rest != 0 {
				h ^= mix64(w.rest, k.seed.word)
			}
			k.hashes[i] = mix64(w.lo^mix64(h, k.seed.word), k.seed.word)
		}
	default:
		if len(k.cols) == 1 {
			k.encodeString(cols[k.cols[0]], sel)
		} else {
			k.encodeRows(cols, sel)
		}
		for i := range k.hashes {
			k.hashes[i] = maphash.Bytes(k.seed.bytes, k.data[k.starts[i]:k.ends[i]])
		}
	}
}

func (k *keyCoder) hashWords() {
	for i, w := range k.words {
		k.hashes[i] = mix64(w, k.seed.word)
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	return make([]T, n, max(n, columnar.BatchRows))
}

func (k *keyCoder) markNulls(v *columnar.Vector, sel []int32) {
	if v.Valid == nil {
		return
	}
	k.nullBuf = resize(k.nullBuf, k.n)
	for i := range k.nullBuf {
		k.nullBuf[i] = v.IsNull(rowAt(sel, i))
	}
	k.nulls = k.nullBuf
}

func (k *keyCoder) encodeWide(cols []*columnar.Vector, sel []int32) {
	k.wide = resize(k.wide, k.n)
	clear(k.wide)
	for c, slot := range k.slots {
		v := cols[k.cols[c]]
		switch {
		case k.terns != nil && k.terns[c] != nil:
			k.words = resize(k.words, k.n)
			for i, code := range k.terns[c].codes {
				k.words[i] = uint64(uint32(code))
			}
			k.pack(slot)
		case columnar.Width(v.Type) == 16:
			k.packWide(v, sel)
		default:
			k.words = resize(k.words, k.n)
			k.loadNarrow(v, sel)
			k.pack(slot)
		}
		if v.Valid == nil {
			continue
		}
		for i := range k.wide {
			if v.IsNull(rowAt(sel, i)) {
				k.wide[i].forget(slot, columnar.Width(v.Type) == 16)
				k.wide[i].rest |= 1 << c
			}
		}
	}
}

// forget clears a column of the key, whose value is null.
func (w *wideKey) forget(slot wideSlot, whole bool) {
	switch {
	case whole:
		w.lo, w.hi = 0, 0
	case slot.word == 2:
		w.rest &^= slot.mask << slot.shift
	case slot.word == 1:
		w.hi &^= slot.mask << slot.shift
	default:
		w.lo &^= slot.mask << slot.shift
	}
}

// loadNarrow is loadWords with floats of 4 bytes kept at that width.
func (k *keyCoder) loadNarrow(v *columnar.Vector, sel []int32) {
	loadWords(k.words, v, sel)
	if v.Type.ID() != arrow.FLOAT32 {
		return
	}
	for i, w := range k.words {
		k.words[i] = uint64(math.Float32bits(float32(math.Float64frombits(w))))
	}
}

func (k *keyCoder) pack(slot wideSlot) {
	switch slot.word {
	case 0:
		for i, w := range k.words {
			k.wide[i].lo |= (w & slot.mask) << slot.shift
		}
	case 1:
		for i, w := range k.words {
			k.wide[i].hi |= (w & slot.mask) << slot.shift
		}
	default:
		for i, w := range k.words {
			k.wide[i].rest |= (w & slot.mask) << slot.shift
		}
	}
}

func (k *keyCoder) packWide(v *columnar.Vector, sel []int32) {
	if v.Type.ID() == arrow.INTERVAL_MONTH_DAY_NANO {
		vals := columnar.Values[arrow.MonthDayNanoInterval](v)
		for i := range k.wide {
			row := rowAt(sel, i)
			if v.Const {
				row = 0
			}
			hi, lo := intervalSpan(vals[row])
			k.wide[i].lo, k.wide[i].hi = lo, uint64(hi)
		}
		return
	}
	vals := columnar.Values[word128](v)
	for i := range k.wide {
		row := rowAt(sel, i)
		if v.Const {
			row = 0
		}
		k.wide[i].lo, k.wide[i].hi = vals[row][0], vals[row][1]
	}
}

// encodeString lets the keys alias the bytes of the one key column.
func (k *keyCoder) encodeString(v *columnar.Vector, sel []int32) {
	k.starts, k.ends = resize(k.starts, k.n), resize(k.ends, k.n)
	k.markNulls(v, sel)
	// Without a dictionary, Codes may be a buffer that is kept for another batch.
	offsets, codes := v.Offsets, []int32(nil)
	k.data = v.Data
	if v.Dict != nil {
		offsets, codes, k.data = v.Dict.Offsets, v.Codes, v.Dict.Data
	}
	for i := range k.starts {
		at := int32(rowAt(sel, i))
		if k.nulls != nil && k.nulls[i] {
			k.starts[i], k.ends[i] = 0, 0
			continue
		}
		if v.Const {
			at = 0
		}
		if codes != nil {
			at = codes[at]
		}
		k.starts[i], k.ends[i] = offsets[at], offsets[at+1]
	}
}

// encodeRows writes one record per row: a null bitmap, then the columns,
// strings behind their length. Nulls are written as zero or empty.
func (k *keyCoder) encodeRows(cols []*columnar.Vector, sel []int32) {
	k.starts, k.ends = resize(k.starts, k.n), resize(k.ends, k.n)
	header := (len(k.cols) + 7) / 8
	fixed := header
	for _, t := range k.types {
		if w := columnar.Width(t); w > 0 {
			fixed += w
		} else {
			fixed += 4
		}
	}
	for i := range k.ends {
		k.ends[i] = int32(fixed)
	}
	for c, t := range k.types {
		if columnar.Width(t) == 0 {
			k.addLengths(cols[k.cols[c]], sel)
		}
	}
	pos := int32(0)
	for i, size := range k.ends {
		k.starts[i] = pos
		k.ends[i] = pos + int32(header) // write position until all columns are in
		pos += size
	}
	k.arena = reuseBytes(k.arena, int(pos))
	clear(k.arena)
	k.data = k.arena
	for c := range k.types {
		k.writeColumn(c, cols[k.cols[c]], sel)
	}
}

func (k *keyCoder) addLengths(v *columnar.Vector, sel []int32) {
	for i := range k.ends {
		if row := rowAt(sel, i); !v.IsNull(row) {
			k.ends[i] += int32(len(v.BytesAt(row)))
		}
	}
}

func (k *keyCoder) writeColumn(c int, v *columnar.Vector, sel []int32) {
	if v.Valid != nil {
		for i, start := range k.starts {
			if v.IsNull(rowAt(sel, i)) {
				k.data[int(start)+c>>3] |= 1 << (c & 7)
			}
		}
	}
	isNull := func(i int) bool { return v.Valid != nil && k.data[int(k.starts[i])+c>>3]&(1<<(c&7)) != 0 }
	width := columnar.Width(v.Type)
	switch width {
	case 0:
		for i, at := range k.ends {
			size := 0
			if !isNull(i) {
				s := v.BytesAt(rowAt(sel, i))
				size = copy(k.data[at+4:], s)
				binary.LittleEndian.PutUint32(k.data[at:], uint32(size))
			}
			k.ends[i] = at + 4 + int32(size)
		}
	case 16:
		k.wide = resize(k.wide, k.n)
		k.packWide(v, sel)
		for i, at := range k.ends {
			if !isNull(i) {
				binary.LittleEndian.PutUint64(k.data[at:], k.wide[i].lo)
				binary.LittleEndian.PutUint64(k.data[at+8:], k.wide[i].hi)
			}
			k.ends[i] = at + 16
		}
	default:
		k.words = resize(k.words, k.n)
		k.loadNarrow(v, sel)
		for i, at := range k.ends {
			if !isNull(i) {
				for j, w := 0, k.words[i]; j < width; j++ {
					k.data[int(at)+j] = byte(w >> (8 * j))
				}
			}
			k.ends[i] = at + int32(width)
		}
	}
}

// keyBytes is how many bytes the encoded keys of bytesShape have together.
func (k *keyCoder) keyBytes() int {
	total := 0
	for i := range k.starts {
		total += int(k.ends[i] - k.starts[i])
	}
	return total
}

// selectKeyed returns the selected rows in which no key column is null: in buf,
// or sel as it is when no key column has nulls.
func selectKeyed(cols []*columnar.Vector, keys []int, sel []int32, n int, buf *[]int32) []int32 {
	if sel != nil {
		n = len(sel)
	}
	for _, key := range keys {
		v := cols[key]
		if v.Valid == nil {
			continue
		}
		if *buf == nil {
			*buf = make([]int32, 0, columnar.BatchRows)
		}
		// In the second round sel is buf itself: the write position never
		// overtakes the read position.
		kept := (*buf)[:0]
		for i := range n {
			if row := rowAt(sel, i); !v.IsNull(row) {
				kept = append(kept, int32(row))
			}
		}
		*buf, sel, n = kept, kept, len(kept)
	}
	return sel
}
