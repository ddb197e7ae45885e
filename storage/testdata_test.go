package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/columnar"
)

// everyType is one column of each type that segments hold.
func everyType() []arrow.DataType {
	return []arrow.DataType{
		catalog.Boolean, catalog.SmallInt, catalog.Integer, catalog.BigInt, catalog.Real, catalog.Double,
		catalog.Decimal(15, 2), catalog.Decimal(38, 10), catalog.Text, catalog.Bytea, catalog.Date, catalog.Time,
		catalog.Timestamp, catalog.TimestampTZ, catalog.Interval, catalog.UUID,
		arrow.ListOf(catalog.Text), arrow.StructOf(
			arrow.Field{Name: "a", Type: catalog.Integer, Nullable: true},
			arrow.Field{Name: "b", Type: arrow.ListOf(catalog.BigInt), Nullable: true}),
	}
}

// tableOf describes a table with nullable columns c0, c1, ... of the types.
func tableOf(key []int, types ...arrow.DataType) *catalog.Table {
	t := &catalog.Table{ID: 7, Schema: "public", Name: "t", PrimaryKey: key}
	for i, dt := range types {
		t.Columns = append(t.Columns, catalog.Column{Name: fmt.Sprintf("c%d", i), Type: dt, Nullable: true})
	}
	return t
}

// intsTable has columns c0 bigint primary key, c1 bigint.
func intsTable() *catalog.Table { return tableOf([]int{0}, catalog.BigInt, catalog.BigInt) }

func ints(values ...int64) *columnar.Vector {
	return &columnar.Vector{Type: catalog.BigInt, Len: len(values), Data: columnar.Bytes(values)}
}

func batchOf(cols ...*columnar.Vector) *columnar.Batch {
	return &columnar.Batch{Cols: cols, Len: cols[0].Len}
}

// intsBatch has the keys given and the same values.
func intsBatch(keys ...int64) *columnar.Batch { return batchOf(ints(keys...), ints(keys...)) }

func encoded(t testing.TB, table *catalog.Table, batches ...*columnar.Batch) *Segment {
	t.Helper()
	seg, err := EncodeSegment(table, batches)
	if err != nil {
		t.Fatal(err)
	}
	return seg
}

// appendRandom appends a value drawn from few or many, with edge values.
func appendRandom(t testing.TB, b *columnar.Builder, rng *rand.Rand, dt arrow.DataType, spread int) {
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := int64(rng.IntN(spread))
	edge := rng.IntN(50) == 0
	switch phys := catalog.PhysicalType(dt).(type) {
	case *arrow.ListType:
		elem, err := columnar.NewBuilder(dt)
		check(err)
		child, err := columnar.NewBuilder(phys.Elem())
		check(err)
		for range rng.IntN(4) {
			appendRandom(t, child, rng, phys.Elem(), spread)
		}
		v := elem.Vector()
		v.Len, v.Offsets, v.Children = 1, []int32{0, int32(child.Len())}, []*columnar.Vector{child.Finish()}
		check(b.AppendRow(v, 0))
		return
	case *arrow.StructType:
		v := &columnar.Vector{Type: dt, Len: 1}
		for _, f := range phys.Fields() {
			child, err := columnar.NewBuilder(f.Type)
			check(err)
			if rng.IntN(5) == 0 {
				child.AppendNull()
			} else {
				appendRandom(t, child, rng, f.Type, spread)
			}
			v.Children = append(v.Children, child.Finish())
		}
		check(b.AppendRow(v, 0))
		return
	}
	switch catalog.PhysicalType(dt).ID() {
	case arrow.BOOL:
		columnar.AppendFixed(b, uint8(n&1))
	case arrow.INT16:
		columnar.AppendFixed(b, int16(n))
	case arrow.INT32, arrow.DATE32:
		if edge {
			n = []int64{-1 << 31, 1<<31 - 1}[rng.IntN(2)]
		}
		columnar.AppendFixed(b, int32(n))
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		if edge {
			n = []int64{-1 << 63, 1<<63 - 1}[rng.IntN(2)]
		}
		columnar.AppendFixed(b, n)
	case arrow.FLOAT32:
		columnar.AppendFixed(b, float32(n)/3)
	case arrow.FLOAT64:
		columnar.AppendFixed(b, float64(n)/3)
	case arrow.DECIMAL128:
		columnar.AppendFixed(b, decimal128.New(n-int64(spread/2), uint64(n)))
	case arrow.INTERVAL_MONTH_DAY_NANO:
		columnar.AppendFixed(b, arrow.MonthDayNanoInterval{Months: int32(n), Days: 1, Nanoseconds: n})
	case arrow.FIXED_SIZE_BINARY:
		check(b.AppendBytes([]byte(fmt.Sprintf("%016d", n))))
	default:
		s := fmt.Sprintf("value %d", n)
		if edge {
			s = []string{"", "\x00", "a\x00b", string(make([]byte, 5000))}[rng.IntN(4)]
		}
		check(b.AppendBytes([]byte(s)))
	}
}

// randomVector draws rows values of which about one in nullOneIn is null (0:
// none).
func randomVector(t testing.TB, rng *rand.Rand, dt arrow.DataType, rows, spread, nullOneIn int) *columnar.Vector {
	b, err := columnar.NewBuilder(catalog.PhysicalType(dt))
	if err != nil {
		t.Fatal(err)
	}
	for range rows {
		if nullOneIn > 0 && rng.IntN(nullOneIn) == 0 {
			b.AppendNull()
		} else {
			appendRandom(t, b, rng, dt, spread)
		}
	}
	return b.Finish()
}

// sameValues reports the first row in which two vectors differ.
func sameValues(a, b *columnar.Vector) error {
	if a.Len != b.Len {
		return fmt.Errorf("%d rows and %d", a.Len, b.Len)
	}
	var ka, kb []byte
	for i := range a.Len {
		ka = catalog.AppendKey(ka[:0], []*columnar.Vector{a}, i)
		kb = catalog.AppendKey(kb[:0], []*columnar.Vector{b}, i)
		if string(ka) != string(kb) {
			return fmt.Errorf("row %d: key %x and %x", i, ka, kb)
		}
	}
	return nil
}
