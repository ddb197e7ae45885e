package catalog

import (
	"bytes"
	"fmt"
)

// Splitter divides the rows of a tablet between two others by their partition
// key: the upper one gets the buckets from Bucket on, or the keys from Key on.
type Splitter struct {
	// Columns are the ids of the partition columns in key order.
	Columns []int `json:"columns"`
	// Buckets is the size of the hash space, 0 to divide by Key.
	Buckets uint32 `json:"buckets,omitempty"`
	Bucket  uint32 `json:"bucket,omitempty"`
	Key     []byte `json:"key,omitempty"` // encoded
}

// Upper reports whether a row with an encoded partition key goes to the upper
// tablet.
func (s *Splitter) Upper(key []byte) bool {
	if s.Buckets > 0 {
		return HashBucket(key, s.Buckets) >= s.Bucket
	}
	return bytes.Compare(key, s.Key) >= 0
}

// PartitionIDs are the ids of the columns that a table's tablets divide rows by:
// its partition columns, or the primary key of an unpartitioned table, by whose
// ranges it can be divided. Empty means that there is nothing to divide by.
func (t *Table) PartitionIDs() []int {
	ordinals := t.Partitioning.Columns
	if t.Partitioning.Kind == Unpartitioned || t.Partitioning.Kind == "" {
		ordinals = t.PrimaryKey
	}
	ids := make([]int, len(ordinals))
	for i, c := range ordinals {
		ids[i] = t.ColumnID(c)
	}
	return ids
}

// Divide returns the descriptors, without ids, of the two tablets that a tablet
// of the table is divided into. It fails if one of them would own nothing.
func (t *Table) Divide(tablet *Tablet, at *Splitter) (lower, upper Tablet, err error) {
	if at.Buckets > 0 {
		if at.Bucket <= tablet.BucketLow || at.Bucket >= tablet.BucketHigh {
			return lower, upper, fmt.Errorf("bucket %d is not inside buckets %d to %d of tablet %d", at.Bucket, tablet.BucketLow, tablet.BucketHigh-1, tablet.ID)
		}
		lower.BucketLow, lower.BucketHigh = tablet.BucketLow, at.Bucket
		upper.BucketLow, upper.BucketHigh = at.Bucket, tablet.BucketHigh
		return lower, upper, nil
	}
	if len(at.Key) == 0 || bytes.Compare(at.Key, tablet.KeyLow) <= 0 || (len(tablet.KeyHigh) > 0 && bytes.Compare(at.Key, tablet.KeyHigh) >= 0) {
		return lower, upper, fmt.Errorf("the key is not inside the range of tablet %d", tablet.ID)
	}
	lower.KeyLow, lower.KeyHigh = tablet.KeyLow, at.Key
	upper.KeyLow, upper.KeyHigh = at.Key, tablet.KeyHigh
	return lower, upper, nil
}

// Join returns the descriptor, without ids, of the tablet that two neighbours
// are merged into. It fails if the upper one does not follow the lower one.
func (t *Table) Join(lower, upper *Tablet) (Tablet, error) {
	var joined Tablet
	switch t.Partitioning.Kind {
	case Hash, Tenant:
		if lower.BucketHigh != upper.BucketLow {
			return joined, fmt.Errorf("tablet %d does not follow tablet %d", upper.ID, lower.ID)
		}
		joined.BucketLow, joined.BucketHigh = lower.BucketLow, upper.BucketHigh
	case Range, TimeRange:
		if len(lower.KeyHigh) == 0 || !bytes.Equal(lower.KeyHigh, upper.KeyLow) {
			return joined, fmt.Errorf("tablet %d does not follow tablet %d", upper.ID, lower.ID)
		}
		joined.KeyLow, joined.KeyHigh = lower.KeyLow, upper.KeyHigh
	default:
		return joined, fmt.Errorf("table %s has one tablet", t.QualifiedName())
	}
	return joined, nil
}
