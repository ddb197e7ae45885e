package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// A chunk is one encoded column of one segment. It describes itself:
//
//	encoding  1 byte
//	flags     1 byte
//	validity  ceil(rows/8) bytes, when flagHasNulls
//	body      by encoding
//
// The number of rows and the type come from outside. Lists and structs nest
// the chunks of their children, each behind its length.
type encoding byte

const (
	encNull   encoding = 1 // every value is null; no body
	encConst  encoding = 2 // every value equals the body
	encPlain  encoding = 3 // little-endian values
	encPacked encoding = 4 // appendPacked
	encDict   encoding = 5 // distinct strings, packed codes
	encBytes  encoding = 6 // packed lengths, bytes
	encList   encoding = 7 // packed lengths, child chunk
	encStruct encoding = 8 // child chunks
	// encTextBlocks is encBytes by firstTextBlock rows each. It is read only:
	// encSizedTextBlocks says how many rows there are in a block.
	encTextBlocks      encoding = 9
	encSizedTextBlocks encoding = 10
)

const (
	flagHasNulls   = 1 << 0
	flagCompressed = 1 << 1 // the body's bytes are an LZ4 block
)

// encodeChunk appends the chunk of a flat vector: neither constant nor
// dictionary.
func encodeChunk(dst []byte, v *columnar.Vector) ([]byte, error) {
	nulls := v.NullCount()
	if v.Type.ID() == arrow.NULL || (v.Len > 0 && nulls == v.Len) {
		return append(dst, byte(encNull), 0), nil
	}
	if nulls == 0 {
		if v.Valid != nil {
			c := *v
			c.Valid = nil
			v = &c
		}
		if out, ok := encodeConst(dst, v); ok {
			return out, nil
		}
	}
	head := len(dst)
	dst = append(dst, 0, 0)
	if nulls > 0 {
		dst[head+1] |= flagHasNulls
		dst = append(dst, v.Valid[:columnar.BitmapBytes(v.Len)]...)
		v = fillNulls(v)
	}
	enc, flags, dst, err := encodeBody(dst, v)
	if err != nil {
		return nil, err
	}
	dst[head] = byte(enc)
	dst[head+1] |= flags
	return dst, nil
}

func encodeBody(dst []byte, v *columnar.Vector) (encoding, byte, []byte, error) {
	switch v.Type.ID() {
	case arrow.BOOL:
		return encPacked, 0, appendPacked(dst, v.Data[:v.Len]), nil
	case arrow.INT16:
		return encPacked, 0, appendPacked(dst, columnar.Values[int16](v)[:v.Len]), nil
	case arrow.INT32, arrow.DATE32:
		return encPacked, 0, appendPacked(dst, columnar.Values[int32](v)[:v.Len]), nil
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		return encPacked, 0, appendPacked(dst, columnar.Values[int64](v)[:v.Len]), nil
	case arrow.STRING, arrow.BINARY:
		enc, flags, dst := encodeStrings(dst, v)
		return enc, flags, dst, nil
	case arrow.LIST:
		dst, err := encodeList(dst, v)
		return encList, 0, dst, err
	case arrow.STRUCT:
		var err error
		for _, c := range v.Children {
			if dst, err = appendChild(dst, c); err != nil {
				return 0, 0, nil, err
			}
		}
		return encStruct, 0, dst, nil
	}
	w := columnar.Width(v.Type)
	if w == 0 {
		return 0, 0, nil, sqlstate.New(sqlstate.FeatureNotSupported, "segments cannot hold type %s", v.Type)
	}
	data := v.Data[:v.Len*w]
	if w >= 16 {
		dst, flags := appendCompressed(dst, data)
		return encPlain, flags, dst, nil
	}
	return encPlain, 0, append(dst, data...), nil
}

// encodeConst appends a constant chunk when all values are equal. v has no
// nulls.
func encodeConst(dst []byte, v *columnar.Vector) ([]byte, bool) {
	if v.Len == 0 {
		return dst, false
	}
	var one []byte
	if w := columnar.Width(v.Type); w > 0 {
		one = v.Data[:w]
		for at := w; at < v.Len*w; at += w {
			if string(v.Data[at:at+w]) != string(one) {
				return dst, false
			}
		}
	} else {
		if v.Type.ID() != arrow.STRING && v.Type.ID() != arrow.BINARY {
			return dst, false
		}
		one = v.BytesAt(0)
		for i := 1; i < v.Len; i++ {
			if string(v.BytesAt(i)) != string(one) {
				return dst, false
			}
		}
	}
	dst = append(dst, byte(encConst), 0)
	return append(dst, one...), true
}

// fillNulls replaces the unspecified values of null rows by a neighbour's, so
// they neither widen frames nor leak whatever the sender left there.
func fillNulls(v *columnar.Vector) *columnar.Vector {
	w := columnar.Width(v.Type)
	if w == 0 {
		return v // string builders leave null rows empty
	}
	c := *v
	c.Data = append([]byte(nil), v.Data[:v.Len*w]...)
	last := 0
	for last < v.Len && v.IsNull(last) {
		last++
	}
	for i := range v.Len {
		if v.IsNull(i) {
			copy(c.Data[i*w:(i+1)*w], c.Data[last*w:(last+1)*w])
		} else {
			last = i
		}
	}
	return &c
}

func encodeList(dst []byte, v *columnar.Vector) ([]byte, error) {
	lengths := make([]int32, v.Len)
	for i := range lengths {
		lengths[i] = v.Offsets[i+1] - v.Offsets[i]
	}
	dst = appendPacked(dst, lengths)
	return appendChild(dst, v.Children[0].Slice(int(v.Offsets[0]), int(v.Offsets[v.Len])))
}

// appendChild appends a nested chunk behind its row count and length.
func appendChild(dst []byte, v *columnar.Vector) ([]byte, error) {
	flat, err := v.Flatten()
	if err != nil {
		return nil, err
	}
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.Len))
	dst = append(dst, 0, 0, 0, 0)
	if dst, err = encodeChunk(dst, flat); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(dst[at+4:], uint32(len(dst)-at-8))
	return dst, nil
}

// decodeChunk decodes a chunk of rows values of a physical type. The vector
// shares nothing with src.
func decodeChunk(dt arrow.DataType, rows int, src []byte) (*columnar.Vector, error) {
	if len(src) < 2 {
		return nil, fmt.Errorf("chunk of %d bytes", len(src))
	}
	enc, flags, src := encoding(src[0]), src[1], src[2:]
	if enc == encNull {
		return columnar.NewNull(dt, rows), nil
	}
	if enc == encConst {
		return decodeConst(dt, rows, src)
	}
	v := &columnar.Vector{Type: dt, Len: rows}
	if flags&flagHasNulls != 0 {
		n := columnar.BitmapBytes(rows)
		if len(src) < n {
			return nil, fmt.Errorf("validity of %d rows does not fit %d bytes", rows, len(src))
		}
		v.Valid = append([]byte(nil), src[:n]...)
		src = src[n:]
	}
	var err error
	switch enc {
	case encPlain:
		err = decodePlain(v, flags, src)
	case encPacked:
		err = decodePacked(v, src)
	case encDict:
		err = decodeDict(v, src)
	case encBytes:
		err = decodeBytes(v, src)
	case encTextBlocks:
		err = decodeTextBlocks(v, firstTextBlock, src)
	case encSizedTextBlocks:
		if len(src) < 4 {
			return nil, fmt.Errorf("text blocks of %d bytes", len(src))
		}
		err = decodeTextBlocks(v, int(binary.LittleEndian.Uint32(src)), src[4:])
	case encList:
		err = decodeList(v, src)
	case encStruct:
		err = decodeStruct(v, src)
	default:
		err = fmt.Errorf("unknown encoding %d", enc)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

func decodeConst(dt arrow.DataType, rows int, src []byte) (*columnar.Vector, error) {
	id := dt.ID()
	if w := columnar.Width(dt); len(src) != w && id != arrow.STRING && id != arrow.BINARY {
		return nil, fmt.Errorf("constant of %d bytes for type %s", len(src), dt)
	}
	return columnar.NewConst(dt, append([]byte(nil), src...), rows), nil
}

func decodePlain(v *columnar.Vector, flags byte, src []byte) error {
	w := columnar.Width(v.Type)
	if w == 0 {
		return fmt.Errorf("plain values of type %s", v.Type)
	}
	if flags&flagCompressed != 0 {
		data, err := decompress(src)
		if err != nil {
			return err
		}
		src = data
	}
	if len(src) != v.Len*w {
		return fmt.Errorf("%d values of %d bytes in %d bytes", v.Len, w, len(src))
	}
	// Words keep the data aligned for whatever the values are read as.
	words := make([]uint64, (len(src)+7)/8)
	v.Data = columnar.Bytes(words)[:len(src)]
	copy(v.Data, src)
	return nil
}

func decodePacked(v *columnar.Vector, src []byte) error {
	var err error
	switch v.Type.ID() {
	case arrow.BOOL:
		v.Data, err = unpackAll[uint8](v.Len, src)
	case arrow.INT16:
		v.Data, err = unpackAll[int16](v.Len, src)
	case arrow.INT32, arrow.DATE32:
		v.Data, err = unpackAll[int32](v.Len, src)
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		v.Data, err = unpackAll[int64](v.Len, src)
	default:
		err = fmt.Errorf("packed values of type %s", v.Type)
	}
	return err
}

func unpackAll[T packable](rows int, src []byte) ([]byte, error) {
	out, rest, err := unpackNew[T](rows, src)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after packed integers", len(rest))
	}
	return columnar.Bytes(out), err
}

// unpackNew allocates only when src can hold that many rows.
func unpackNew[T packable](rows int, src []byte) ([]T, []byte, error) {
	if (rows+packBlock-1)/packBlock*9+packSlack > len(src) {
		return nil, nil, fmt.Errorf("%d packed integers do not fit %d bytes", rows, len(src))
	}
	out := make([]T, rows)
	rest, err := unpack(out, src)
	return out, rest, err
}

func decodeList(v *columnar.Vector, src []byte) error {
	list, ok := v.Type.(*arrow.ListType)
	if !ok {
		return fmt.Errorf("list values of type %s", v.Type)
	}
	var err error
	if v.Offsets, src, err = decodeOffsets(v.Len, src); err != nil {
		return err
	}
	child, rest, err := takeChild(list.Elem(), src)
	if err != nil {
		return err
	}
	if len(rest) > 0 || child.Len != int(v.Offsets[v.Len]) {
		return fmt.Errorf("list of %d elements has %d", v.Offsets[v.Len], child.Len)
	}
	v.Children = []*columnar.Vector{child}
	return nil
}

func decodeStruct(v *columnar.Vector, src []byte) error {
	t, ok := v.Type.(*arrow.StructType)
	if !ok {
		return fmt.Errorf("struct values of type %s", v.Type)
	}
	for _, f := range t.Fields() {
		child, rest, err := takeChild(f.Type, src)
		if err != nil {
			return err
		}
		if child.Len != v.Len {
			return fmt.Errorf("struct of %d rows has a field of %d", v.Len, child.Len)
		}
		v.Children, src = append(v.Children, child), rest
	}
	if len(src) > 0 {
		return fmt.Errorf("%d bytes after struct fields", len(src))
	}
	return nil
}

func takeChild(dt arrow.DataType, src []byte) (*columnar.Vector, []byte, error) {
	if len(src) < 8 {
		return nil, nil, fmt.Errorf("nested chunk header does not fit %d bytes", len(src))
	}
	rows, size := binary.LittleEndian.Uint32(src), binary.LittleEndian.Uint32(src[4:])
	src = src[8:]
	if uint64(size) > uint64(len(src)) || rows > 1<<31-1 {
		return nil, nil, fmt.Errorf("nested chunk of %d bytes does not fit %d", size, len(src))
	}
	v, err := decodeChunk(dt, int(rows), src[:size])
	if err != nil {
		return nil, nil, err
	}
	// Consumers index the elements of nested vectors directly.
	if v, err = v.Flatten(); err != nil {
		return nil, nil, err
	}
	return v, src[size:], nil
}

// decodeOffsets turns packed lengths into rows+1 positions.
func decodeOffsets(rows int, src []byte) ([]int32, []byte, error) {
	if (rows+packBlock-1)/packBlock*9+packSlack > len(src) {
		return nil, nil, fmt.Errorf("%d lengths do not fit %d bytes", rows, len(src))
	}
	offsets := make([]int32, rows+1)
	rest, err := unpack(offsets[1:], src)
	if err != nil {
		return nil, nil, err
	}
	var total int64
	for i, n := range offsets[1:] {
		if total += int64(n); n < 0 || total > 1<<31-1 {
			return nil, nil, fmt.Errorf("lengths overflow at row %d", i)
		}
		offsets[i+1] = int32(total)
	}
	return offsets, rest, nil
}
