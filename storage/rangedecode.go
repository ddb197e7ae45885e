package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// fewRows: so many values at most are unpacked one by one, not by frame.
const fewRows = 32

// decodeRange decodes the rows [from, to) of a chunk of rows values, or returns
// nil when its encoding would have it decode nearly all of them. The dictionary
// of a chunk that has one is asked of dict, with its position in the chunk and
// its number of entries.
func decodeRange(dt arrow.DataType, rows int, src *chunkBytes, from, to int, dict func(at, entries int) (*columnar.Vector, error)) (*columnar.Vector, error) {
	if src.size < 2 || from < 0 || to > rows || from > to {
		return nil, fmt.Errorf("rows %d to %d of %d in a chunk of %d bytes", from, to, rows, src.size)
	}
	head, err := src.slice(0, 2)
	if err != nil {
		return nil, err
	}
	enc, flags := encoding(head[0]), head[1]
	if enc == encNull || enc == encConst {
		all, err := src.slice(0, src.size)
		if err != nil {
			return nil, err
		}
		return decodeChunk(dt, to-from, all)
	}
	v := &columnar.Vector{Type: dt, Len: to - from}
	at := 2
	if flags&flagHasNulls != 0 {
		if err := validRange(v, src, at, from, to); err != nil {
			return nil, err
		}
		at += columnar.BitmapBytes(rows)
	}
	switch {
	case enc == encPacked:
		err = unpackRangeInto(v, rows, src, at, from, to)
	case enc == encDict:
		err = dictRange(v, rows, src, at, from, to, dict)
	case enc == encTextBlocks:
		err = textBlocksRange(v, rows, src, at, firstTextBlock, from, to)
	case enc == encSizedTextBlocks:
		var per uint32
		if per, err = src.uint32(at); err == nil {
			err = textBlocksRange(v, rows, src, at+4, int(per), from, to)
		}
	case enc == encPlain && flags&flagCompressed == 0:
		err = plainRange(v, rows, src, at, from, to)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// validRange reads the validity of the rows [from, to) of a bitmap at a
// position.
func validRange(v *columnar.Vector, src *chunkBytes, at, from, to int) error {
	bits, err := src.slice(at+from>>3, at+(to+7)>>3)
	if err != nil {
		return fmt.Errorf("validity of rows %d to %d: %w", from, to, err)
	}
	v.Valid = columnar.NewBitmap(v.Len)
	clear(v.Valid)
	columnar.CopyBits(v.Valid, 0, bits, from&7, v.Len)
	return nil
}

func plainRange(v *columnar.Vector, rows int, src *chunkBytes, at, from, to int) error {
	w := columnar.Width(v.Type)
	if w == 0 || src.size-at != rows*w {
		return fmt.Errorf("%d values of %d bytes in %d bytes", rows, w, src.size-at)
	}
	values, err := src.slice(at+from*w, at+to*w)
	if err != nil {
		return err
	}
	words := make([]uint64, (v.Len*w+7)/8) // aligned for any value type
	v.Data = columnar.Bytes(words)[:v.Len*w]
	copy(v.Data, values)
	return nil
}

func unpackRangeInto(v *columnar.Vector, rows int, src *chunkBytes, at, from, to int) (err error) {
	switch v.Type.ID() {
	case arrow.BOOL:
		v.Data, err = rangeBytes[uint8](rows, src, at, from, to)
	case arrow.INT16:
		v.Data, err = rangeBytes[int16](rows, src, at, from, to)
	case arrow.INT32, arrow.DATE32:
		v.Data, err = rangeBytes[int32](rows, src, at, from, to)
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		v.Data, err = rangeBytes[int64](rows, src, at, from, to)
	default:
		err = fmt.Errorf("packed values of type %s", v.Type)
	}
	return err
}

func rangeBytes[T packable](rows int, src *chunkBytes, at, from, to int) ([]byte, error) {
	out, err := unpackRange[T](rows, src, at, from, to)
	return columnar.Bytes(out), err
}

// unpackRange decodes the values [from, to) of rows that appendPacked wrote at
// a position: only the frames they lie in, or only the values if they are few.
func unpackRange[T packable](rows int, src *chunkBytes, at, from, to int) ([]T, error) {
	if from >= to {
		return nil, nil
	}
	frames := (rows + packBlock - 1) / packBlock
	heads, err := src.slice(at, at+frames*9)
	if err != nil {
		return nil, fmt.Errorf("packed integers: %w", err)
	}
	first, last := from/packBlock, (to-1)/packBlock
	at += frames * 9
	for f := range first {
		at += blockBytes(packBlock, uint(heads[f*9+8]))
	}
	if to-from <= fewRows {
		return unpackFew[T](src, heads, at, from, to)
	}
	out := make([]T, min((last+1)*packBlock, rows)-first*packBlock)
	for f := first; f <= last; f++ {
		frame := out[(f-first)*packBlock : min((f-first+1)*packBlock, len(out))]
		base, width, err := frameHead(heads, f)
		if err != nil {
			return nil, err
		}
		size := blockBytes(len(frame), width)
		packed, err := src.slice(at, at+size+packSlack)
		if err != nil {
			return nil, fmt.Errorf("packed integers: frame %d of %d bits: %w", f, width, err)
		}
		unpackBlock(frame, packed, base, width)
		at += size
	}
	return out[from-first*packBlock : to-first*packBlock], nil
}

func frameHead(heads []byte, f int) (base int64, width uint, err error) {
	base, width = int64(binary.LittleEndian.Uint64(heads[f*9:])), uint(heads[f*9+8])
	if width > 64 || (width > maxPackWidth && width != 64) {
		return 0, 0, fmt.Errorf("packed integers: frame %d of %d bits", f, width)
	}
	return base, width, nil
}

// unpackFew decodes values one by one; at is where the first one's frame starts.
func unpackFew[T packable](src *chunkBytes, heads []byte, at, from, to int) ([]T, error) {
	out := make([]T, to-from)
	f := from / packBlock
	base, width, err := frameHead(heads, f)
	if err != nil {
		return nil, err
	}
	for row := from; row < to; row++ {
		if row/packBlock > f {
			at += blockBytes(packBlock, width)
			f++
			if base, width, err = frameHead(heads, f); err != nil {
				return nil, err
			}
		}
		if width == 0 {
			out[row-from] = T(base)
			continue
		}
		bit := uint(row%packBlock) * width
		b, err := src.slice(at+int(bit>>3), at+int(bit>>3)+8)
		if err != nil {
			return nil, fmt.Errorf("packed integers: frame %d of %d bits: %w", f, width, err)
		}
		w := binary.LittleEndian.Uint64(b)
		if width < 64 {
			w = w >> (bit & 7) & (1<<width - 1)
		}
		out[row-from] = T(uint64(base) + w)
	}
	return out, nil
}

// packedSize is how many bytes appendPacked wrote for rows values at a position.
func packedSize(rows int, src *chunkBytes, at int) (int, error) {
	frames := (rows + packBlock - 1) / packBlock
	heads, err := src.slice(at, at+frames*9)
	if err != nil {
		return 0, fmt.Errorf("packed integers: %w", err)
	}
	size := frames*9 + packSlack
	for f := range frames {
		size += blockBytes(min(packBlock, rows-f*packBlock), uint(heads[f*9+8]))
	}
	return size, nil
}

// dictRange decodes dictionary codes.
func dictRange(v *columnar.Vector, rows int, src *chunkBytes, at, from, to int, dict func(at, entries int) (*columnar.Vector, error)) error {
	n, err := src.uint32(at)
	if err != nil {
		return err
	}
	if n == 0 || n > maxDictionary || columnar.Width(v.Type) > 0 {
		return fmt.Errorf("dictionary of %d entries of type %s", n, v.Type)
	}
	if v.Codes, err = unpackRange[int32](rows, src, at+4, from, to); err != nil {
		return err
	}
	for _, c := range v.Codes {
		if c < 0 || c >= int32(n) {
			return fmt.Errorf("code %d of a dictionary of %d", c, n)
		}
	}
	size, err := packedSize(rows, src, at+4)
	if err != nil {
		return err
	}
	v.Dict, err = dict(at+4+size, int(n))
	return err
}

// decodeDictionary decodes the strings of a dictionary that runs from a
// position to the end of a chunk.
func decodeDictionary(dt arrow.DataType, src *chunkBytes, at, entries int) (*columnar.Vector, error) {
	body, err := src.slice(at, src.size)
	if err != nil {
		return nil, err
	}
	v := &columnar.Vector{Type: dt, Len: entries}
	return v, decodeBytes(v, body)
}
