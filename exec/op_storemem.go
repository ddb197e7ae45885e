package exec

import (
	"reflect"
	"unsafe"
)

// reuseBytes returns a slice of n elements, b's memory when it is large enough.
// Byte slices are allocated as words, so that any value type is aligned.
func reuseBytes(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return alignedBytes(n, max(n, 64))
}

func alignedBytes(n, capacity int) []byte {
	words := make([]uint64, (capacity+7)/8)
	if len(words) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:n]
}

// growSlice makes room for n more elements after len(s), at least doubling, and
// reserves the memory before it allocates. The length stays.
func growSlice[T any](acct *Account, s []T, n int) ([]T, error) {
	need := len(s) + n
	if need <= cap(s) {
		return s, nil
	}
	var zero T
	size := int64(unsafe.Sizeof(zero))
	capacity := max(need, 2*cap(s), 64)
	if acct.overflow.holds(unsafe.Pointer(unsafe.SliceData(s))) {
		return growMapped(acct, s, capacity)
	}
	if err := acct.Reserve(int64(capacity-cap(s)) * size); err != nil {
		if acct.overflow.takes(err, reflect.TypeFor[T]()) {
			return growMapped(acct, s, capacity)
		}
		return s, err
	}
	var grown []T
	if b, ok := any(&grown).(*[]byte); ok {
		*b = alignedBytes(len(s), capacity)
		grown = grown[:len(s):capacity]
	} else {
		grown = make([]T, len(s), capacity)
	}
	copy(grown, s)
	return grown, nil
}

// freeSlice gives a slice's memory back to the account.
func freeSlice[T any](acct *Account, s []T) []T {
	if acct.overflow.free(unsafe.Pointer(unsafe.SliceData(s))) {
		return nil
	}
	var zero T
	acct.Release(int64(cap(s)) * int64(unsafe.Sizeof(zero)))
	return nil
}
