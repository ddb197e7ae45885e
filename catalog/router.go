package catalog

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// HashBucket is the bucket of an encoded partition key: its 64-bit FNV-1a hash
// modulo buckets. The function is part of the stored format. It panics when
// buckets is 0.
func HashBucket(key []byte, buckets uint32) uint32 {
	h := uint64(fnvOffset)
	for _, b := range key {
		h = (h ^ uint64(b)) * fnvPrime
	}
	return uint32(h % uint64(buckets))
}

// hashInt is the hash of the encoded key of one integer, computed in registers.
func hashInt(x int64) uint64 {
	u := uint64(x) ^ signBit
	h := uint64(fnvOffset) // a variable: the constant product overflows
	h = (h ^ uint64(keyValue)) * fnvPrime
	h = (h ^ u>>56) * fnvPrime
	h = (h ^ u>>48&0xff) * fnvPrime
	h = (h ^ u>>40&0xff) * fnvPrime
	h = (h ^ u>>32&0xff) * fnvPrime
	h = (h ^ u>>24&0xff) * fnvPrime
	h = (h ^ u>>16&0xff) * fnvPrime
	h = (h ^ u>>8&0xff) * fnvPrime
	return (h ^ u&0xff) * fnvPrime
}

// BucketRange is a run of hash buckets, [Low, High).
type BucketRange struct{ Low, High uint32 }

// BucketRanges cuts a hash space into one run per tablet, the sizes differing
// by at most one. There must be at least one tablet and a bucket for each.
func BucketRanges(buckets uint32, tablets int) ([]BucketRange, error) {
	if tablets < 1 || uint64(tablets) > uint64(buckets) {
		return nil, fmt.Errorf("%d buckets cannot be cut into %d tablets", buckets, tablets)
	}
	out := make([]BucketRange, tablets)
	for i := range out {
		out[i] = BucketRange{
			Low:  uint32(uint64(buckets) * uint64(i) / uint64(tablets)),
			High: uint32(uint64(buckets) * uint64(i+1) / uint64(tablets)),
		}
	}
	return out, nil
}

// Router maps rows of one table to its tablets. It is immutable and safe for
// concurrent use.
type Router struct {
	partition Partitioning
	owner     []int32  // hash: tablet ordinal by bucket
	lows      [][]byte // range: ascending lower bounds, by position in order
	highs     [][]byte
	order     []int32 // range: tablet ordinal by position
	tablets   int
}

// NewRouter checks that the table's tablets cover its key space without
// overlap and returns their router.
func NewRouter(t *Table) (*Router, error) {
	r := &Router{partition: t.Partitioning, tablets: len(t.Tablets)}
	var err error
	switch t.Partitioning.Kind {
	case Unpartitioned, "":
		if len(t.Tablets) != 1 {
			err = fmt.Errorf("an unpartitioned table has one tablet, not %d", len(t.Tablets))
		}
	case Hash, Tenant:
		err = r.ownBuckets(t)
	case Range, TimeRange:
		err = r.ownRanges(t)
	default:
		err = fmt.Errorf("unknown partitioning %q", t.Partitioning.Kind)
	}
	if err == nil {
		err = checkPartitionColumns(t)
	}
	if err != nil {
		return nil, fmt.Errorf("routing table %s: %w", t.QualifiedName(), err)
	}
	return r, nil
}

func checkPartitionColumns(t *Table) error {
	unpartitioned := t.Partitioning.Kind == Unpartitioned || t.Partitioning.Kind == ""
	if unpartitioned != (len(t.Partitioning.Columns) == 0) {
		return fmt.Errorf("partitioning %q over %d columns", t.Partitioning.Kind, len(t.Partitioning.Columns))
	}
	for _, c := range t.Partitioning.Columns {
		if c < 0 || c >= len(t.Columns) {
			return fmt.Errorf("partition column %d of %d", c, len(t.Columns))
		}
		if !KeyableType(PhysicalType(t.Columns[c].Type)) {
			return fmt.Errorf("column %q of type %s cannot partition", t.Columns[c].Name, TypeName(t.Columns[c].Type))
		}
	}
	return nil
}

func (r *Router) ownBuckets(t *Table) error {
	const maxBuckets = 1 << 20
	n := t.Partitioning.Buckets
	if n == 0 || n > maxBuckets {
		return fmt.Errorf("%d hash buckets are outside 1 to %d", n, maxBuckets)
	}
	r.owner = make([]int32, n)
	for i := range r.owner {
		r.owner[i] = -1
	}
	for i, tablet := range t.Tablets {
		if tablet.BucketLow >= tablet.BucketHigh || tablet.BucketHigh > n {
			return fmt.Errorf("tablet %d owns buckets [%d, %d) of %d", tablet.ID, tablet.BucketLow, tablet.BucketHigh, n)
		}
		for b := tablet.BucketLow; b < tablet.BucketHigh; b++ {
			if r.owner[b] >= 0 {
				return fmt.Errorf("bucket %d has two tablets", b)
			}
			r.owner[b] = int32(i)
		}
	}
	for b, o := range r.owner {
		if o < 0 {
			return fmt.Errorf("bucket %d has no tablet", b)
		}
	}
	return nil
}

func (r *Router) ownRanges(t *Table) error {
	if len(t.Tablets) == 0 {
		return fmt.Errorf("no tablets")
	}
	r.order = make([]int32, len(t.Tablets))
	for i := range r.order {
		r.order[i] = int32(i)
	}
	sort.SliceStable(r.order, func(a, b int) bool {
		return bytes.Compare(t.Tablets[r.order[a]].KeyLow, t.Tablets[r.order[b]].KeyLow) < 0
	})
	for at, o := range r.order {
		tablet := &t.Tablets[o]
		r.lows = append(r.lows, tablet.KeyLow)
		r.highs = append(r.highs, tablet.KeyHigh)
		if at == 0 && len(tablet.KeyLow) > 0 {
			return fmt.Errorf("keys below tablet %d have no tablet", tablet.ID)
		}
		if at > 0 && !bytes.Equal(r.highs[at-1], tablet.KeyLow) {
			return fmt.Errorf("tablet %d does not start where the one before it ends", tablet.ID)
		}
		if last := at == len(r.order)-1; last != (len(tablet.KeyHigh) == 0) {
			return fmt.Errorf("the upper bound of tablet %d leaves a gap or an overlap", tablet.ID)
		}
	}
	return nil
}

// Columns are the ordinals of the partition columns in key order; empty for an
// unpartitioned table.
func (r *Router) Columns() []int { return r.partition.Columns }

// RouteKey returns the ordinal in Table.Tablets of the tablet that owns an
// encoded partition key.
func (r *Router) RouteKey(key []byte) int {
	switch {
	case r.owner != nil:
		return int(r.owner[HashBucket(key, uint32(len(r.owner)))])
	case r.order != nil:
		at := sort.Search(len(r.lows), func(i int) bool { return bytes.Compare(r.lows[i], key) > 0 }) - 1
		return int(r.order[max(at, 0)]) // the first lower bound is empty: at is never -1 for it
	}
	return 0
}

// Route appends to dst the tablet ordinal (an index of Table.Tablets) of each
// of the first rows rows. cols are the table's columns in table order, with
// physical types; only the partition columns are read.
func (r *Router) Route(cols []*columnar.Vector, rows int, dst []int32) ([]int32, error) {
	if r.tablets == 1 {
		return appendZeros(dst, rows), nil
	}
	key := make([]*columnar.Vector, len(r.partition.Columns))
	for i, c := range r.partition.Columns {
		if c >= len(cols) || cols[c] == nil || cols[c].Len < rows {
			return dst, fmt.Errorf("routing %d rows: partition column %d is missing or short", rows, c)
		}
		key[i] = cols[c]
	}
	if r.owner != nil && len(key) == 1 && key[0].Valid == nil && !key[0].Const {
		switch key[0].Type.ID() {
		case arrow.INT32, arrow.DATE32:
			return routeInts(r.owner, columnar.Values[int32](key[0])[:rows], dst), nil
		case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
			return routeInts(r.owner, columnar.Values[int64](key[0])[:rows], dst), nil
		}
	}
	var buf []byte
	for i := range rows {
		buf = AppendKey(buf[:0], key, i)
		dst = append(dst, int32(r.RouteKey(buf)))
	}
	return dst, nil
}

func routeInts[T int32 | int64](owner []int32, values []T, dst []int32) []int32 {
	n := uint64(len(owner))
	for _, x := range values {
		dst = append(dst, owner[hashInt(int64(x))%n])
	}
	return dst
}

func appendZeros(dst []int32, n int) []int32 {
	for range n {
		dst = append(dst, 0)
	}
	return dst
}
