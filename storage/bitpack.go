package storage

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"
)

// packBlock is how many integers share one frame of reference. Small frames
// keep sorted and clustered columns narrow without delta chains, so any block
// decodes by itself.
const packBlock = 1024

// packSlack is the bytes after the last packed block: the unpacking loops load
// eight bytes at a time and may read that far.
const packSlack = 8

// maxPackWidth is the widest value that one unaligned eight-byte load holds
// whatever its bit offset; wider ones are stored as 64 bits.
const maxPackWidth = 56

type packable interface {
	uint8 | int16 | int32 | int64
}

// appendPacked appends values in frames of packBlock: for each frame its
// minimum (8 bytes) and its width in bits (1 byte), then the packed frames,
// then packSlack bytes. The count is not stored.
func appendPacked[T packable](dst []byte, values []T) []byte {
	blocks := (len(values) + packBlock - 1) / packBlock
	head := len(dst)
	dst = append(dst, make([]byte, blocks*9)...)
	for b := range blocks {
		block := values[b*packBlock : min((b+1)*packBlock, len(values))]
		base, width := frame(block)
		binary.LittleEndian.PutUint64(dst[head+b*9:], uint64(base))
		dst[head+b*9+8] = byte(width)
		dst = appendBlock(dst, block, base, width)
	}
	return append(dst, make([]byte, packSlack)...)
}

// frame returns the minimum of a block and the bits that hold the differences.
func frame[T packable](block []T) (base int64, width uint) {
	lo, hi := block[0], block[0]
	for _, v := range block {
		lo, hi = min(lo, v), max(hi, v)
	}
	width = uint(bits.Len64(uint64(int64(hi)) - uint64(int64(lo))))
	if width > maxPackWidth {
		width = 64
	}
	return int64(lo), width
}

// blockBytes is the packed size of n values: whole groups of eight.
func blockBytes(n int, width uint) int { return (n + 7) / 8 * int(width) }

func appendBlock[T packable](dst []byte, block []T, base int64, width uint) []byte {
	if width == 0 {
		return dst
	}
	at := len(dst)
	size := blockBytes(len(block), width)
	dst = append(dst, make([]byte, size+8)...) // the last flush may overhang
	if width == 64 {
		for i, v := range block {
			binary.LittleEndian.PutUint64(dst[at+i*8:], uint64(int64(v))-uint64(base))
		}
		return dst[:at+size]
	}
	var acc uint64
	var filled uint
	out := at
	for _, v := range block {
		d := uint64(int64(v)) - uint64(base)
		acc |= d << filled
		filled += width
		if filled >= 64 {
			binary.LittleEndian.PutUint64(dst[out:], acc)
			out += 8
			filled -= 64
			acc = d >> (width - filled) // width-filled is 1..56: what did not fit
		}
	}
	for ; filled > 0; filled -= min(filled, 8) {
		dst[out] = byte(acc)
		acc >>= 8
		out++
	}
	return dst[:at+size]
}

// unpack decodes len(dst) values that appendPacked wrote at the start of src
// and returns the rest of src.
func unpack[T packable](dst []T, src []byte) ([]byte, error) {
	blocks := (len(dst) + packBlock - 1) / packBlock
	if len(src) < blocks*9 {
		return nil, fmt.Errorf("packed integers: %d frame headers do not fit %d bytes", blocks, len(src))
	}
	head, src := src[:blocks*9], src[blocks*9:]
	for b := range blocks {
		out := dst[b*packBlock : min((b+1)*packBlock, len(dst))]
		base := int64(binary.LittleEndian.Uint64(head[b*9:]))
		width := uint(head[b*9+8])
		size := blockBytes(len(out), width)
		if width > 64 || (width > maxPackWidth && width != 64) || len(src) < size+packSlack {
			return nil, fmt.Errorf("packed integers: frame %d of %d bits does not fit %d bytes", b, width, len(src))
		}
		unpackBlock(out, src, base, width)
		src = src[size:]
	}
	if len(src) < packSlack {
		return nil, fmt.Errorf("packed integers end early")
	}
	return src[packSlack:], nil
}

// unpackBlock decodes one frame. The caller has checked that src holds the
// frame and packSlack bytes more, which keeps the unchecked loads inside it.
func unpackBlock[T packable](out []T, src []byte, base int64, width uint) {
	switch width {
	case 0:
		fill := T(base)
		for i := range out {
			out[i] = fill
		}
	case 8:
		for i, b := range src[:len(out)] {
			out[i] = T(base + int64(b))
		}
	case 16:
		p := unsafe.Pointer(unsafe.SliceData(src))
		for i := range out {
			out[i] = T(base + int64(*(*uint16)(unsafe.Add(p, i*2))))
		}
	case 32:
		p := unsafe.Pointer(unsafe.SliceData(src))
		for i := range out {
			out[i] = T(base + int64(*(*uint32)(unsafe.Add(p, i*4))))
		}
	case 64:
		p := unsafe.Pointer(unsafe.SliceData(src))
		for i := range out {
			out[i] = T(uint64(base) + *(*uint64)(unsafe.Add(p, i*8)))
		}
	default:
		if width < 8 {
			unpackNarrow(out, src, base, width)
		} else {
			unpackWide(out, src, base, width)
		}
	}
}

// unpackNarrow decodes widths below 8: one load holds a group of eight.
func unpackNarrow[T packable](out []T, src []byte, base int64, width uint) {
	mask := uint64(1)<<width - 1
	p := unsafe.Pointer(unsafe.SliceData(src))
	for len(out) >= 8 {
		w := *(*uint64)(p)
		o := out[:8]
		o[0] = T(base + int64(w&mask))
		o[1] = T(base + int64(w>>(width&63)&mask))
		o[2] = T(base + int64(w>>(2*width&63)&mask))
		o[3] = T(base + int64(w>>(3*width&63)&mask))
		o[4] = T(base + int64(w>>(4*width&63)&mask))
		o[5] = T(base + int64(w>>(5*width&63)&mask))
		o[6] = T(base + int64(w>>(6*width&63)&mask))
		o[7] = T(base + int64(w>>(7*width&63)&mask))
		out = out[8:]
		p = unsafe.Add(p, width)
	}
	if len(out) > 0 {
		w := *(*uint64)(p)
		for i := range out {
			out[i] = T(base + int64(w&mask))
			w >>= width
		}
	}
}

// unpackWide decodes widths of 9 to 56: one load per value, at byte offsets
// and shifts that repeat every group of eight.
func unpackWide[T packable](out []T, src []byte, base int64, width uint) {
	mask := uint64(1)<<width - 1
	p := unsafe.Pointer(unsafe.SliceData(src))
	o1, s1 := width>>3, width&7
	o2, s2 := 2*width>>3, 2*width&7
	o3, s3 := 3*width>>3, 3*width&7
	o4, s4 := 4*width>>3, 4*width&7
	o5, s5 := 5*width>>3, 5*width&7
	o6, s6 := 6*width>>3, 6*width&7
	o7, s7 := 7*width>>3, 7*width&7
	for len(out) >= 8 {
		o := out[:8]
		o[0] = T(base + int64(*(*uint64)(p)&mask))
		o[1] = T(base + int64(*(*uint64)(unsafe.Add(p, o1))>>(s1&63)&mask))
		o[2] = T(base + int64(*(*uint64)(unsafe.Add(p, o2))>>(s2&63)&mask))
		o[3] = T(base + int64(*(*uint64)(unsafe.Add(p, o3))>>(s3&63)&mask))
		o[4] = T(base + int64(*(*uint64)(unsafe.Add(p, o4))>>(s4&63)&mask))
		o[5] = T(base + int64(*(*uint64)(unsafe.Add(p, o5))>>(s5&63)&mask))
		o[6] = T(base + int64(*(*uint64)(unsafe.Add(p, o6))>>(s6&63)&mask))
		o[7] = T(base + int64(*(*uint64)(unsafe.Add(p, o7))>>(s7&63)&mask))
		out = out[8:]
		p = unsafe.Add(p, width)
	}
	for i := range out {
		bit := uint(i) * width
		out[i] = T(base + int64(*(*uint64)(unsafe.Add(p, bit>>3))>>(bit&7)&mask))
	}
}
