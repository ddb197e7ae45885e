package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// smallDictionary is how many entries of a dictionary are worth decoding for a
// few rows.
const smallDictionary = 1024

// decodeRange decodes the rows [from, to) of a chunk of rows values, or returns
// nil when its encoding would have it decode nearly all of them.
func decodeRange(dt arrow.DataType, rows int, src []byte, from, to int) (*columnar.Vector, error) {
	if len(src) < 2 || from < 0 || to > rows || from > to {
		return nil, fmt.Errorf("rows %d to %d of %d in a chunk of %d bytes", from, to, rows, len(src))
	}
	enc, flags, body := encoding(src[0]), src[1], src[2:]
	switch enc {
	case encNull, encConst:
		return decodeChunk(dt, to-from, src)
	}
	v := &columnar.Vector{Type: dt, Len: to - from}
	if flags&flagHasNulls != 0 {
		n := columnar.BitmapBytes(rows)
		if len(body) < n {
			return nil, fmt.Errorf("validity of %d rows does not fit %d bytes", rows, len(body))
		}
		v.Valid = columnar.NewBitmap(v.Len)
		clear(v.Valid)
		columnar.CopyBits(v.Valid, 0, body[:n], from, v.Len)
		body = body[n:]
	}
	var err error
	switch {
	case enc == encPacked:
		err = unpackRangeInto(v, rows, body, from, to)
	case enc == encDict:
		return dictRange(v, rows, body, from, to)
	case enc == encTextBlocks:
		err = textBlocksRange(v, rows, body, from, to)
	case enc == encPlain && flags&flagCompressed == 0:
		w := columnar.Width(dt)
		if w == 0 || len(body) != rows*w {
			return nil, fmt.Errorf("%d values of %d bytes in %d bytes", rows, w, len(body))
		}
		words := make([]uint64, (v.Len*w+7)/8)
		v.Data = columnar.Bytes(words)[:v.Len*w]
		copy(v.Data, body[from*w:to*w])
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

func unpackRangeInto(v *columnar.Vector, rows int, src []byte, from, to int) (err error) {
	switch v.Type.ID() {
	case arrow.BOOL:
		v.Data, err = rangeBytes[uint8](rows, src, from, to)
	case arrow.INT16:
		v.Data, err = rangeBytes[int16](rows, src, from, to)
	case arrow.INT32, arrow.DATE32:
		v.Data, err = rangeBytes[int32](rows, src, from, to)
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		v.Data, err = rangeBytes[int64](rows, src, from, to)
	default:
		err = fmt.Errorf("packed values of type %s", v.Type)
	}
	return err
}

func rangeBytes[T packable](rows int, src []byte, from, to int) ([]byte, error) {
	out, err := unpackRange[T](rows, src, from, to)
	return columnar.Bytes(out), err
}

// unpackRange decodes the values [from, to) of rows that appendPacked wrote at
// the start of src: only the frames they lie in.
func unpackRange[T packable](rows int, src []byte, from, to int) ([]T, error) {
	if from >= to {
		return nil, nil
	}
	blocks := (rows + packBlock - 1) / packBlock
	if len(src) < blocks*9+packSlack {
		return nil, fmt.Errorf("packed integers: %d frame headers do not fit %d bytes", blocks, len(src))
	}
	head, src := src[:blocks*9], src[blocks*9:]
	first, last := from/packBlock, (to-1)/packBlock
	at := 0
	for b := range first {
		at += blockBytes(packBlock, uint(head[b*9+8]))
	}
	out := make([]T, min((last+1)*packBlock, rows)-first*packBlock)
	for b := first; b <= last; b++ {
		frame := out[(b-first)*packBlock : min((b-first+1)*packBlock, len(out))]
		width := uint(head[b*9+8])
		size := blockBytes(len(frame), width)
		if width > 64 || (width > maxPackWidth && width != 64) || len(src) < at+size+packSlack {
			return nil, fmt.Errorf("packed integers: frame %d of %d bits does not fit %d bytes", b, width, len(src))
		}
		unpackBlock(frame, src[at:], int64(binary.LittleEndian.Uint64(head[b*9:])), width)
		at += size
	}
	return out[from-first*packBlock : to-first*packBlock], nil
}

// packedSize is how many bytes appendPacked wrote for rows values at the start
// of src.
func packedSize(rows int, src []byte) (int, error) {
	blocks := (rows + packBlock - 1) / packBlock
	if len(src) < blocks*9 {
		return 0, fmt.Errorf("packed integers: %d frame headers do not fit %d bytes", blocks, len(src))
	}
	size := blocks*9 + packSlack
	for b := range blocks {
		size += blockBytes(min(packBlock, rows-b*packBlock), uint(src[b*9+8]))
	}
	if size > len(src) {
		return 0, fmt.Errorf("packed integers of %d bytes do not fit %d", size, len(src))
	}
	return size, nil
}

// dictRange decodes dictionary codes, and the dictionary if it is small.
func dictRange(v *columnar.Vector, rows int, src []byte, from, to int) (*columnar.Vector, error) {
	if len(src) < 4 {
		return nil, fmt.Errorf("dictionary header does not fit %d bytes", len(src))
	}
	n := binary.LittleEndian.Uint32(src)
	if n > smallDictionary {
		return nil, nil
	}
	codes, err := unpackRange[int32](rows, src[4:], from, to)
	if err != nil {
		return nil, err
	}
	for _, c := range codes {
		if c < 0 || c >= int32(n) {
			return nil, fmt.Errorf("code %d of a dictionary of %d", c, n)
		}
	}
	skip, err := packedSize(rows, src[4:])
	if err != nil {
		return nil, err
	}
	dict := &columnar.Vector{Type: v.Type, Len: int(n)}
	if err := decodeBytes(dict, src[4+skip:]); err != nil {
		return nil, err
	}
	v.Codes, v.Dict = codes, dict
	return v, nil
}
