package exec

import (
	"os"
	"reflect"
	"unsafe"

	"skein/sqlstate"
)

// overflow lets an account outgrow its budget: slices that find no room lie in
// files mapped into memory, which the operating system writes out and reads back
// as it needs the pages. It is for what has to be reached in any order and
// cannot be partitioned: one window partition, the rows of one join key, the
// stored side of a join without keys. The bytes count against the fragment's
// spill budget. Like its account it is used by one goroutine at a time.
type overflow struct {
	space    *spillSpace
	operator string
	regions  map[unsafe.Pointer][]byte // by address
}

// minRegion is the least that is mapped; smaller slices are few and stay on the
// heap, counted.
const minRegion = 64 << 10

// overflowAccount opens an account that goes on in mapped files when the budget
// is exhausted and the fragment may spill.
func (e *Env) overflowAccount(operator string) *Account {
	a := e.Budget.Account(operator)
	if e.spills() {
		a.overflow = &overflow{space: e.spill, operator: operator, regions: map[unsafe.Pointer][]byte{}}
	}
	return a
}

// spillingAccount opens an account of an operator that makes room by writing
// rows to disk, if the fragment may spill.
func (e *Env) spillingAccount(operator string) *Account {
	a := e.Budget.Account(operator)
	if e.spills() {
		a.granted = e.Budget.grant()
	}
	return a
}

// takes reports whether a slice of the type may be mapped after a reservation
// failed with err. What the garbage collector follows has to be on its heap.
func (o *overflow) takes(err error, t reflect.Type) bool {
	return o != nil && sqlstate.CodeOf(err) == sqlstate.OutOfMemory && !hasPointers(t)
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
		return false
	case reflect.Array:
		return hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}

func (o *overflow) holds(at unsafe.Pointer) bool {
	if o == nil || at == nil {
		return false
	}
	_, ok := o.regions[at]
	return ok
}

// free unmaps the region at an address, if there is one.
func (o *overflow) free(at unsafe.Pointer) bool {
	if !o.holds(at) {
		return false
	}
	o.space.unmap(o.regions[at])
	delete(o.regions, at)
	return true
}

func (o *overflow) close() {
	if o == nil {
		return
	}
	for _, region := range o.regions {
		o.space.unmap(region)
	}
	clear(o.regions)
}

// growMapped moves s to a region for capacity elements and gives back where it
// was.
func growMapped[T any](acct *Account, s []T, capacity int) ([]T, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if capacity*size < minRegion {
		acct.charge(int64(capacity-cap(s)) * int64(size))
		var grown []T
		if b, ok := any(&grown).(*[]byte); ok {
			*b = alignedBytes(len(s), capacity)[:len(s):capacity]
		} else {
			grown = make([]T, len(s), capacity)
		}
		copy(grown, s)
		return grown, nil
	}
	region, err := acct.overflow.space.mapFile(acct.overflow.operator, capacity*size)
	if err != nil {
		return s, err
	}
	at := unsafe.Pointer(unsafe.SliceData(region))
	acct.overflow.regions[at] = region
	grown := unsafe.Slice((*T)(at), len(region)/size)[:len(s)]
	copy(grown, s)
	freeSlice(acct, s)
	return grown, nil
}

// mapFile maps a new file of at least size bytes. The space on disk is taken
// before any byte is used: a full disk is an error here and not a fault later.
func (s *spillSpace) mapFile(operator string, size int) ([]byte, error) {
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	if err := s.take(operator, size); err != nil {
		return nil, err
	}
	region, err := s.mapBytes(operator, size)
	if err != nil {
		s.used.Add(-int64(size))
	}
	return region, err
}

func (s *spillSpace) mapBytes(operator string, size int) (region []byte, err error) {
	file, err := s.temporary(operator)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := file.Close(); err == nil && e != nil {
			err = ioError(operator, e)
		}
	}()
	zeros := make([]byte, min(size, 1<<20))
	for at := 0; at < size; at += len(zeros) {
		if _, err := file.Write(zeros[:min(len(zeros), size-at)]); err != nil {
			return nil, ioError(operator, err)
		}
	}
	if region, err = mapMemory(file, size); err != nil {
		return nil, ioError(operator, err)
	}
	return region, nil
}

func (s *spillSpace) unmap(region []byte) {
	s.used.Add(-int64(len(region)))
	unmapMemory(region)
}
