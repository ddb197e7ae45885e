package storage

import (
	"bytes"
	"cmp"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// zoneBytes is how much of a string's bounds a zone map keeps.
const zoneBytes = 32

// newZone returns the bounds for the least and the greatest encoded value.
func newZone(least, most []byte) zone {
	z := zone{min: least, minExact: true, max: most, maxExact: true}
	if len(z.min) > zoneBytes {
		z.min, z.minExact = z.min[:zoneBytes:zoneBytes], false
	}
	if len(z.max) > zoneBytes {
		z.max, z.maxExact = catalog.KeySuccessor(z.max[:zoneBytes]), false
	}
	return z
}

// extremes returns rows that hold the least and the greatest value, or -1s
// when there is none or the type keeps no bounds.
func extremes(v *columnar.Vector) (lo, hi int) {
	switch v.Type.ID() {
	case arrow.BOOL:
		return ordered(v, v.Data)
	case arrow.INT16:
		return ordered(v, columnar.Values[int16](v))
	case arrow.INT32, arrow.DATE32:
		return ordered(v, columnar.Values[int32](v))
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		return ordered(v, columnar.Values[int64](v))
	case arrow.FLOAT32:
		return orderedFloats(v, columnar.Values[float32](v))
	case arrow.FLOAT64:
		return orderedFloats(v, columnar.Values[float64](v))
	case arrow.STRING, arrow.BINARY:
		return orderedStrings(v)
	case arrow.NULL, arrow.LIST, arrow.STRUCT:
		return -1, -1
	}
	return orderedKeys(v)
}

func firstValid(v *columnar.Vector) int {
	for i := range v.Len {
		if !v.IsNull(i) {
			return i
		}
	}
	return -1
}

func ordered[T cmp.Ordered](v *columnar.Vector, values []T) (lo, hi int) {
	first := firstValid(v)
	if first < 0 {
		return -1, -1
	}
	lo, hi = first, first
	least, most := values[first], values[first]
	if v.Valid == nil {
		for i, x := range values[:v.Len] {
			if x < least {
				least, lo = x, i
			}
			if x > most {
				most, hi = x, i
			}
		}
		return lo, hi
	}
	for i, x := range values[:v.Len] {
		if v.Valid[i>>3]&(1<<(i&7)) == 0 {
			continue
		}
		if x < least {
			least, lo = x, i
		}
		if x > most {
			most, hi = x, i
		}
	}
	return lo, hi
}

// orderedFloats is ordered with NaN above everything, as SQL has it.
func orderedFloats[T float32 | float64](v *columnar.Vector, values []T) (lo, hi int) {
	lo, hi = -1, -1
	for i, x := range values[:v.Len] {
		if v.IsNull(i) {
			continue
		}
		if lo < 0 || x < values[lo] || (values[lo] != values[lo] && x == x) {
			lo = i
		}
		if hi < 0 || x > values[hi] || (x != x && values[hi] == values[hi]) {
			hi = i
		}
	}
	return lo, hi
}

func orderedStrings(v *columnar.Vector) (lo, hi int) {
	lo, hi = -1, -1
	var least, most []byte
	for i := range v.Len {
		if v.IsNull(i) {
			continue
		}
		s := v.Data[v.Offsets[i]:v.Offsets[i+1]]
		if lo < 0 {
			lo, hi, least, most = i, i, s, s
			continue
		}
		if len(s) > 0 && len(least) > 0 && s[0] > least[0] && s[0] < most[0] {
			continue // most is not below least, so it is not empty either
		}
		if bytes.Compare(s, least) < 0 {
			lo, least = i, s
		} else if bytes.Compare(s, most) > 0 {
			hi, most = i, s
		}
	}
	return lo, hi
}

// orderedKeys compares by encoded key: decimals over 18 digits, uuids and
// intervals.
func orderedKeys(v *columnar.Vector) (lo, hi int) {
	lo, hi = -1, -1
	col := []*columnar.Vector{v}
	var least, most, key []byte
	for i := range v.Len {
		if v.IsNull(i) {
			continue
		}
		key = catalog.AppendKey(key[:0], col, i)
		if lo < 0 || bytes.Compare(key, least) < 0 {
			lo, least = i, append(least[:0], key...)
		}
		if hi < 0 || bytes.Compare(key, most) > 0 {
			hi, most = i, append(most[:0], key...)
		}
	}
	return lo, hi
}

// extend widens z, which has a minimum, to cover o.
func (z *zone) extend(o *zone) {
	if len(o.min) == 0 || bytes.Compare(o.min, z.min) < 0 {
		z.min, z.minExact = o.min, o.minExact
	}
	if len(z.max) > 0 && (len(o.max) == 0 || bytes.Compare(o.max, z.max) > 0) {
		z.max, z.maxExact = o.max, o.maxExact
	}
}

// values decodes the bounds. Those of cut strings are decoded as far as they
// go, so they still bound the values.
func (z *zone) values(c catalog.Column) (lo, hi any) {
	return boundValue(c.Type, z.min, z.minExact), boundValue(c.Type, z.max, z.maxExact)
}

func boundValue(dt arrow.DataType, key []byte, exact bool) any {
	if exact {
		return catalog.KeyValue(dt, key)
	}
	if len(key) < 2 || bytes.IndexByte(key, 0) >= 0 {
		return nil // an escape may have been cut
	}
	if dt.ID() == arrow.STRING {
		return string(key[1:])
	}
	return bytes.Clone(key[1:])
}
