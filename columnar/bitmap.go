package columnar

import (
	"encoding/binary"
	"math/bits"
)

// BitmapBytes is how many bytes a validity bitmap of n bits takes.
func BitmapBytes(n int) int { return (n + 7) / 8 }

// NewBitmap returns a bitmap of n bits, all of them set (valid).
func NewBitmap(n int) []byte { return growBitmap(nil, n) }

// ResizeBitmap returns a bitmap of n set bits that reuses dst's memory where it
// is large enough.
func ResizeBitmap(dst []byte, n int) []byte {
	return growBitmap(dst[:0], n)
}

// growBitmap returns dst resized to n bits, every byte 0xff.
func growBitmap(dst []byte, n int) []byte {
	dst = resize(dst, BitmapBytes(n))
	for i := range dst {
		dst[i] = 0xff
	}
	return dst
}

// Bit reports bit i of a bitmap.
func Bit(bitmap []byte, i int) bool { return bitmap[i>>3]&(1<<(i&7)) != 0 }

// SetBit sets bit i.
func SetBit(bitmap []byte, i int) { bitmap[i>>3] |= 1 << (i & 7) }

// ClearBit clears bit i.
func ClearBit(bitmap []byte, i int) { bitmap[i>>3] &^= 1 << (i & 7) }

// CountBits counts the set bits among the first n.
func CountBits(bitmap []byte, n int) int {
	count := 0
	whole := n / 8
	i := 0
	for ; i+8 <= whole; i += 8 {
		count += bits.OnesCount64(binary.LittleEndian.Uint64(bitmap[i:]))
	}
	for ; i < whole; i++ {
		count += bits.OnesCount8(bitmap[i])
	}
	if rest := n & 7; rest != 0 {
		count += bits.OnesCount8(bitmap[whole] & (1<<rest - 1))
	}
	return count
}

// AndBitmaps writes a AND b, each of n bits, into dst's memory (grown when
// needed) and returns it. dst may be a or b. Bits past n are unspecified.
func AndBitmaps(dst, a, b []byte, n int) []byte {
	size := BitmapBytes(n)
	dst = resize(dst, size)
	a, b = a[:size], b[:size]
	i := 0
	for ; i+8 <= size; i += 8 {
		x := binary.LittleEndian.Uint64(a[i:]) & binary.LittleEndian.Uint64(b[i:])
		binary.LittleEndian.PutUint64(dst[i:], x)
	}
	for ; i < size; i++ {
		dst[i] = a[i] & b[i]
	}
	return dst
}

// CopyBits copies n bits of src starting at bit from into dst, whose first bit
// becomes bit at. dst must be large enough and must not overlap src.
func CopyBits(dst []byte, at int, src []byte, from, n int) {
	if at&7 == 0 && from&7 == 0 {
		whole := n / 8
		copy(dst[at/8:], src[from/8:from/8+whole])
		at, from, n = at+whole*8, from+whole*8, n-whole*8
	} else if at&7 == 0 {
		shift := from & 7
		for n >= 8 {
			i := from >> 3
			dst[at>>3] = src[i]>>shift | src[i+1]<<(8-shift)
			at, from, n = at+8, from+8, n-8
		}
	}
	for i := range n {
		if Bit(src, from+i) {
			SetBit(dst, at+i)
		} else {
			ClearBit(dst, at+i)
		}
	}
}

// NullCount is how many of the vector's rows are null.
func (v *Vector) NullCount() int {
	if v.Valid == nil {
		return 0
	}
	if v.Const {
		if Bit(v.Valid, 0) {
			return 0
		}
		return v.Len
	}
	return v.Len - CountBits(v.Valid, v.Len)
}

// resize returns b with length n, reusing its memory when it is large enough.
// The contents are unspecified.
func resize(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n, roundUp(n))
}

func roundUp(n int) int { return (n + 63) &^ 63 }

// resizeSlice is resize for other element types.
func resizeSlice[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	return make([]T, n)
}
