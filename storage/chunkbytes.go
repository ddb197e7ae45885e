package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// chunkBytes is the bytes of a stored chunk where the database has them: in one
// piece, or in several when the chunk is larger than a part. They are valid
// while the call lasts that passed them on.
type chunkBytes struct {
	piece []byte
	more  [][]byte // after piece
	size  int
}

func wholeChunk(b []byte) *chunkBytes { return &chunkBytes{piece: b, size: len(b)} }

func (c *chunkBytes) add(piece []byte) {
	if c.size == 0 {
		c.piece = piece
	} else {
		c.more = append(c.more, piece)
	}
	c.size += len(piece)
}

// slice returns the bytes [from, to): a copy where they cross pieces.
func (c *chunkBytes) slice(from, to int) ([]byte, error) {
	if from < 0 || from > to || to > c.size {
		return nil, fmt.Errorf("bytes %d to %d of a chunk of %d", from, to, c.size)
	}
	if to <= len(c.piece) {
		return c.piece[from:to:to], nil
	}
	return c.across(from, to), nil
}

func (c *chunkBytes) across(from, to int) []byte {
	var out []byte
	at := 0
	visit := func(p []byte) {
		lo, hi := max(from-at, 0), min(to-at, len(p))
		at += len(p)
		switch {
		case lo >= hi:
		case out == nil && hi-lo == to-from:
			out = p[lo:hi:hi]
		case out == nil:
			out = append(make([]byte, 0, to-from), p[lo:hi]...)
		default:
			out = append(out, p[lo:hi]...)
		}
	}
	visit(c.piece)
	for _, p := range c.more {
		visit(p)
	}
	return out
}

func (c *chunkBytes) uint32(at int) (uint32, error) {
	b, err := c.slice(at, at+4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

// sum is the checksum that a chunkRef has of the bytes.
func (c *chunkBytes) sum() uint32 {
	if len(c.more) == 0 {
		return uint32(xxhash.Sum64(c.piece))
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(c.piece) // writing to a digest does not fail
	for _, p := range c.more {
		_, _ = d.Write(p)
	}
	return uint32(d.Sum64())
}

// packedView reads single integers of those that appendPacked wrote.
type packedView struct {
	bytes *chunkBytes
	base  int // where the frame headers start
	rows  int
	heads []byte
	// starts are the frames' positions, summed up as far as known.
	starts [SegmentRows/packBlock + 1]int32
	known  int
}

// reset points the view at rows values from base on.
func (p *packedView) reset(b *chunkBytes, base, rows int) (err error) {
	frames := (rows + packBlock - 1) / packBlock
	if frames > SegmentRows/packBlock {
		return fmt.Errorf("packed integers of %d rows in one segment", rows)
	}
	p.bytes, p.base, p.rows, p.known = b, base, rows, 0
	p.heads, err = b.slice(base, base+frames*9)
	p.starts[0] = int32(base + frames*9)
	return err
}

// at returns a value.
func (p *packedView) at(row int) (int64, error) {
	if row < 0 || row >= p.rows {
		return 0, fmt.Errorf("packed integer %d of %d", row, p.rows)
	}
	f := row / packBlock
	for ; p.known < f; p.known++ {
		p.starts[p.known+1] = p.starts[p.known] + int32(blockBytes(packBlock, uint(p.heads[p.known*9+8])))
	}
	base := int64(binary.LittleEndian.Uint64(p.heads[f*9:]))
	width := uint(p.heads[f*9+8])
	if width == 0 {
		return base, nil
	}
	if width > 64 || (width > maxPackWidth && width != 64) {
		return 0, fmt.Errorf("packed integers: frame %d of %d bits", f, width)
	}
	bit := uint(row%packBlock) * width
	at := int(p.starts[f]) + int(bit>>3)
	b, err := p.bytes.slice(at, at+8) // packSlack follows the last frame
	if err != nil {
		return 0, err
	}
	w := binary.LittleEndian.Uint64(b)
	if width == 64 {
		return int64(uint64(base) + w), nil
	}
	return base + int64(w>>(bit&7)&(1<<width-1)), nil
}

// end is the position after the packed integers.
func (p *packedView) end() int {
	frames := (p.rows + packBlock - 1) / packBlock
	at := int(p.starts[0])
	for f := range frames {
		at += blockBytes(min(packBlock, p.rows-f*packBlock), uint(p.heads[f*9+8]))
	}
	return at + packSlack
}
