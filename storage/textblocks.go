package storage

import (
	"encoding/binary"
	"fmt"

	"skein/columnar"
)

// Strings that do not repeat are stored in blocks of textBlock rows, so that a
// few of them can be had without decompressing all:
//
//	sizes   4 bytes per block
//	blocks  appendStringBlock each

const textBlock = 2048

// appendTextBlocks appends the blocks of a flat string vector.
func appendTextBlocks(dst []byte, v *columnar.Vector) []byte {
	blocks := (v.Len + textBlock - 1) / textBlock
	head := len(dst)
	dst = append(dst, make([]byte, 4*blocks)...)
	for b := range blocks {
		at := len(dst)
		dst = appendStringBlock(dst, v.Slice(b*textBlock, min((b+1)*textBlock, v.Len)))
		binary.LittleEndian.PutUint32(dst[head+4*b:], uint32(len(dst)-at))
	}
	return dst
}

// eachTextBlock passes the decoded blocks from first to last to use.
func eachTextBlock(v *columnar.Vector, rows int, src []byte, first, last int, use func(number int, block *columnar.Vector)) error {
	blocks := (rows + textBlock - 1) / textBlock
	if columnar.Width(v.Type) > 0 {
		return fmt.Errorf("strings of type %s", v.Type)
	}
	if len(src) < 4*blocks {
		return fmt.Errorf("the sizes of %d text blocks do not fit %d bytes", blocks, len(src))
	}
	head, src := src[:4*blocks], src[4*blocks:]
	for b := range last + 1 {
		size := binary.LittleEndian.Uint32(head[4*b:])
		if uint64(size) > uint64(len(src)) {
			return fmt.Errorf("text block of %d bytes does not fit %d", size, len(src))
		}
		if b >= first {
			block := &columnar.Vector{Type: v.Type, Len: min(textBlock, rows-b*textBlock)}
			if err := decodeBytes(block, src[:size]); err != nil {
				return err
			}
			use(b, block)
		}
		src = src[size:]
	}
	if last == blocks-1 && len(src) > 0 {
		return fmt.Errorf("%d bytes after text blocks", len(src))
	}
	return nil
}

// decodeTextBlocks decodes all rows.
func decodeTextBlocks(v *columnar.Vector, src []byte) error {
	blocks := (v.Len + textBlock - 1) / textBlock
	if v.Len > 0 && len(src) < 4*blocks+v.Len/packBlock*9 {
		return fmt.Errorf("%d text blocks do not fit %d bytes", blocks, len(src))
	}
	offsets := make([]int32, 1, v.Len+1)
	var data []byte
	total := 0
	err := eachTextBlock(v, v.Len, src, 0, blocks-1, func(_ int, block *columnar.Vector) {
		if data == nil {
			data = make([]byte, 0, len(block.Data)*blocks+len(block.Data)*blocks/8)
		}
		shift := int32(len(data))
		data = append(data, block.Data...)
		for _, o := range block.Offsets[1:] {
			offsets = append(offsets, o+shift)
		}
		total += len(block.Data)
	})
	if err == nil && total > 1<<31-1 {
		err = fmt.Errorf("%d bytes of strings in one chunk", total)
	}
	v.Offsets, v.Data = offsets, data
	return err
}

// textBlocksRange decodes the blocks that the rows [from, to) lie in.
func textBlocksRange(v *columnar.Vector, rows int, src []byte, from, to int) error {
	v.Offsets = make([]int32, 1, v.Len+1)
	if from >= to {
		return nil
	}
	return eachTextBlock(v, rows, src, from/textBlock, (to-1)/textBlock, func(b int, block *columnar.Vector) {
		lo, hi := max(from-b*textBlock, 0), min(to-b*textBlock, block.Len)
		shift := int32(len(v.Data)) - block.Offsets[lo]
		v.Data = append(v.Data, block.Data[block.Offsets[lo]:block.Offsets[hi]]...)
		for _, o := range block.Offsets[lo+1 : hi+1] {
			v.Offsets = append(v.Offsets, o+shift)
		}
	})
}
