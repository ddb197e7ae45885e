package storage

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"

	"skein/columnar"
)

// Strings that do not repeat are stored in blocks, so that one of them can be
// had without decompressing all:
//
//	rows    4 bytes: of a block, the last one excepted
//	sizes   4 bytes per block
//	blocks  appendStringBlock each
//
// A block holds about textBlockBytes of strings: what a read of one row
// decompresses does not grow with their length.
const (
	firstTextBlock = 2048 // rows of a block in encTextBlocks, which does not say
	textBlockBytes = 32 << 10
	minTextBlock   = 32
)

// textBlockRows is how many strings of a vector go into a block: a power of two.
func textBlockRows(v *columnar.Vector) int {
	total := int(v.Offsets[v.Len] - v.Offsets[0])
	rows := minTextBlock
	for rows < firstTextBlock && total/v.Len*rows*2 <= textBlockBytes*3/2 {
		rows *= 2
	}
	return rows
}

// appendTextBlocks appends the blocks of a flat string vector.
func appendTextBlocks(dst []byte, v *columnar.Vector) []byte {
	per := textBlockRows(v)
	blocks := (v.Len + per - 1) / per
	dst = binary.LittleEndian.AppendUint32(dst, uint32(per))
	head := len(dst)
	dst = append(dst, make([]byte, 4*blocks)...)
	for b := range blocks {
		at := len(dst)
		dst = appendStringBlock(dst, v.Slice(b*per, min((b+1)*per, v.Len)))
		binary.LittleEndian.PutUint32(dst[head+4*b:], uint32(len(dst)-at))
	}
	return dst
}

// decodeTextBlocks decodes all rows of blocks of per rows each.
func decodeTextBlocks(v *columnar.Vector, per int, src []byte) error {
	if per < 1 || columnar.Width(v.Type) > 0 {
		return fmt.Errorf("text blocks of %d rows of type %s", per, v.Type)
	}
	blocks := (v.Len + per - 1) / per
	if v.Len > 0 && len(src) < 4*blocks+v.Len/packBlock*9 {
		return fmt.Errorf("%d text blocks do not fit %d bytes", blocks, len(src))
	}
	sizes, src := src[:4*blocks], src[4*blocks:]
	offsets := make([]int32, 1, v.Len+1)
	var data []byte
	for b := range blocks {
		size := binary.LittleEndian.Uint32(sizes[4*b:])
		if uint64(size) > uint64(len(src)) {
			return fmt.Errorf("text block of %d bytes does not fit %d", size, len(src))
		}
		rows := min(per, v.Len-b*per)
		start := len(data)
		var err error
		if data, offsets, err = appendTextBlock(data, offsets, rows, src[:size]); err != nil {
			return err
		}
		if len(data) > 1<<31-1 {
			return fmt.Errorf("%d bytes of strings in one chunk", len(data))
		}
		if b == 0 {
			data = slices.Grow(data, (len(data)-start)*(blocks-1)+len(data)/8)
		}
		src = src[size:]
	}
	if len(src) > 0 {
		return fmt.Errorf("%d bytes after text blocks", len(src))
	}
	v.Offsets, v.Data = offsets, data
	return nil
}

// appendTextBlock appends the strings of a block of so many rows, and where
// they end.
func appendTextBlock(data []byte, offsets []int32, rows int, src []byte) ([]byte, []int32, error) {
	at := len(offsets)
	offsets = append(offsets, make([]int32, rows)...)
	rest, err := unpackLengths(offsets[at:], src)
	if err != nil {
		return nil, nil, err
	}
	total := int64(0)
	for i, n := range offsets[at:] {
		total += int64(n)
		if n < 0 || total > 1<<31-1-int64(len(data)) {
			return nil, nil, fmt.Errorf("lengths overflow at row %d", i)
		}
		offsets[at+i] = int32(total) + int32(len(data))
	}
	flags, body := rest[0], rest[1:]
	start := len(data)
	if flags&flagCompressed == 0 {
		data = append(data, body...)
	} else if data, err = appendDecompressed(data, body); err != nil {
		return nil, nil, err
	}
	if int64(len(data)-start) != total {
		return nil, nil, fmt.Errorf("strings of %d bytes in %d", total, len(data)-start)
	}
	return data, offsets, nil
}

// unpackLengths decodes packed lengths, after which a byte of flags must come.
func unpackLengths(dst []int32, src []byte) ([]byte, error) {
	if (len(dst)+packBlock-1)/packBlock*9+packSlack > len(src) {
		return nil, fmt.Errorf("%d lengths do not fit %d bytes", len(dst), len(src))
	}
	rest, err := unpack(dst, src)
	if err == nil && len(rest) == 0 {
		err = fmt.Errorf("strings without bytes")
	}
	return rest, err
}

// appendDecompressed reverses appendCompressed for a block that was compressed.
func appendDecompressed(dst, src []byte) ([]byte, error) {
	size, src, err := decompressedSize(src)
	if err != nil {
		return nil, err
	}
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	n, err := lz4.UncompressBlock(src, dst[at:])
	if err != nil {
		return nil, fmt.Errorf("decompressing %d bytes: %w", len(src), err)
	}
	if n != size {
		return nil, fmt.Errorf("decompressed %d bytes of %d", n, size)
	}
	return dst, nil
}

// textScratch is where blocks are decoded of which a few rows are wanted.
type textScratch struct {
	data    []byte
	offsets []int32
}

// textScratches bounds nothing: blocks are of bounded size but for single
// strings larger than that, whose memory is not kept.
var textScratches = sync.Pool{New: func() any { return &textScratch{} }}

// textBlocksRange decodes the rows [from, to) of blocks of per rows each, which
// start at a position.
func textBlocksRange(v *columnar.Vector, rows int, src *chunkBytes, at, per, from, to int) error {
	if per < 1 || columnar.Width(v.Type) > 0 {
		return fmt.Errorf("text blocks of %d rows of type %s", per, v.Type)
	}
	v.Offsets = make([]int32, 1, v.Len+1)
	if from >= to {
		return nil
	}
	blocks := (rows + per - 1) / per
	sizes, err := src.slice(at, at+4*blocks)
	if err != nil {
		return err
	}
	at += 4 * blocks
	scratch := textScratches.Get().(*textScratch)
	defer func() {
		if cap(scratch.data) <= 8*textBlockBytes {
			textScratches.Put(scratch)
		}
	}()
	for b := range (to-1)/per + 1 {
		size := int(binary.LittleEndian.Uint32(sizes[4*b:]))
		if b < from/per {
			at += size
			continue
		}
		block, err := src.slice(at, at+size)
		if err != nil {
			return fmt.Errorf("text block %d: %w", b, err)
		}
		n := min(per, rows-b*per)
		scratch.data, scratch.offsets, err = appendTextBlock(scratch.data[:0], append(scratch.offsets[:0], 0), n, block)
		if err != nil {
			*scratch = textScratch{}
			return fmt.Errorf("text block %d: %w", b, err)
		}
		lo, hi := max(from-b*per, 0), min(to-b*per, n)
		shift := int32(len(v.Data)) - scratch.offsets[lo]
		v.Data = append(v.Data, scratch.data[scratch.offsets[lo]:scratch.offsets[hi]]...)
		for _, o := range scratch.offsets[lo+1 : hi+1] {
			v.Offsets = append(v.Offsets, o+shift)
		}
		at += size
	}
	return nil
}
