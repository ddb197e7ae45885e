package exec

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"go.uber.org/goleak"

	"skein/catalog"
	"skein/columnar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opTypes are the physical types that may be keys.
var opTypes = []arrow.DataType{
	catalog.Boolean, catalog.SmallInt, catalog.Integer, catalog.BigInt, catalog.Real, catalog.Double,
	catalog.PhysicalType(catalog.Decimal(12, 2)), catalog.Decimal(30, 4), catalog.Text, catalog.Bytea,
	catalog.Date, catalog.Time, catalog.Timestamp, catalog.Interval, catalog.UUID,
}

var listType arrow.DataType = arrow.ListOf(catalog.Integer)

func opSchema(types ...arrow.DataType) *arrow.Schema {
	fields := make([]arrow.Field, len(types))
	for i, t := range types {
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: t, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

func publicSchema(s *arrow.Schema) *arrow.Schema {
	fields := s.Fields()
	for i := range fields {
		fields[i].Type = catalog.PublicType(fields[i].Type)
	}
	return arrow.NewSchema(fields, nil)
}

// generator makes random data with many duplicates.
type generator struct {
	*rand.Rand
	nulls    bool
	distinct int
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 7)), nulls: seed%3 != 0, distinct: 12}
}

func (g *generator) text() string {
	parts := []string{"", "a", "ab", "a\x00", "a\x00b", "b", "long enough for two words", "long enough for two words!", "é", "\xff"}
	return parts[g.IntN(len(parts))]
}

// vector makes n values, in any of the layouts a vector may have.
func (g *generator) vector(t arrow.DataType, n int) *columnar.Vector {
	isText := t.ID() == arrow.STRING || t.ID() == arrow.BINARY
	switch g.IntN(8) {
	case 0:
		v := g.plain(t, 1)
		v.Const, v.Len = true, n
		return v
	case 1, 2:
		if isText {
			return g.dictionary(t, n)
		}
	}
	return g.plain(t, n)
}

func (g *generator) validity(n int) []byte {
	if !g.nulls || g.IntN(4) == 0 {
		return nil
	}
	bits := make([]byte, (n+7)/8)
	for i := range n {
		if g.IntN(5) > 0 {
			bits[i>>3] |= 1 << (i & 7)
		}
	}
	return bits
}

func (g *generator) dictionary(t arrow.DataType, n int) *columnar.Vector {
	dict := &columnar.Vector{Type: t, Offsets: []int32{0}}
	for range 1 + g.IntN(5) {
		dict.Data = append(dict.Data, g.text()...)
		dict.Offsets = append(dict.Offsets, int32(len(dict.Data)))
		dict.Len++
	}
	v := &columnar.Vector{Type: t, Len: n, Dict: dict, Valid: g.validity(n), Codes: make([]int32, n)}
	for i := range v.Codes {
		v.Codes[i] = int32(g.IntN(dict.Len))
	}
	return v
}

func (g *generator) plain(t arrow.DataType, n int) *columnar.Vector {
	v := &columnar.Vector{Type: t, Len: n, Valid: g.validity(n)}
	d := g.distinct
	small := func() int64 { return int64(g.IntN(d) - d/2) }
	switch t.ID() {
	case arrow.BOOL:
		v.Data = fill(n, func() uint8 { return uint8(g.IntN(2)) })
	case arrow.INT16:
		v.Data = fill(n, func() int16 { return int16(small()) })
	case arrow.INT32, arrow.DATE32:
		v.Data = fill(n, func() int32 { return int32(small()) * 1000 })
	case arrow.FLOAT32:
		special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), -1.5, 2.25}
		v.Data = fill(n, func() float32 { return special[g.IntN(len(special))] })
	case arrow.FLOAT64:
		special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(-1), -1.5, 2.25, 1e300}
		v.Data = fill(n, func() float64 { return special[g.IntN(len(special))] })
	case arrow.DECIMAL128:
		v.Data = fill(n, func() word128 {
			x := small()
			w := word128{uint64(x), uint64(x >> 63)}
			if g.IntN(3) == 0 {
				w[1] += uint64(small()) << 8
			}
			return w
		})
	case arrow.INTERVAL_MONTH_DAY_NANO:
		choices := []arrow.MonthDayNanoInterval{{Months: 1}, {Days: 30}, {Days: 1}, {Nanoseconds: dayNanos}, {Days: -1}, {Months: -1, Days: 29}, {}}
		v.Data = fill(n, func() arrow.MonthDayNanoInterval { return choices[g.IntN(len(choices))] })
	case arrow.FIXED_SIZE_BINARY:
		v.Data = fill(n, func() word128 { return word128{uint64(small()) << 56, uint64(g.IntN(2))} })
	case arrow.STRING, arrow.BINARY:
		v.Offsets = []int32{0}
		for range n {
			v.Data = append(v.Data, g.text()...)
			v.Offsets = append(v.Offsets, int32(len(v.Data)))
		}
	case arrow.LIST:
		v.Offsets = []int32{0}
		for range n {
			v.Offsets = append(v.Offsets, v.Offsets[len(v.Offsets)-1]+int32(g.IntN(3)))
		}
		v.Children = []*columnar.Vector{g.plain(t.(*arrow.ListType).Elem(), int(v.Offsets[n]))}
	case arrow.STRUCT:
		for _, f := range t.(*arrow.StructType).Fields() {
			v.Children = append(v.Children, g.plain(f.Type, n))
		}
	default:
		v.Data = fill(n, func() int64 {
			if g.IntN(10) == 0 {
				return small() << 40
			}
			return small()
		})
	}
	return v
}

func fill[T any](n int, f func() T) []byte {
	s := make([]T, n)
	for i := range s {
		s[i] = f()
	}
	return columnar.Bytes(s)
}

// batches makes about rows rows in batches of random size and selection.
func (g *generator) batches(schema *arrow.Schema, rows int) []*columnar.Batch {
	var out []*columnar.Batch
	for rows > 0 {
		n := 1 + g.IntN(min(rows, 3000))
		rows -= n
		b := &columnar.Batch{Len: n}
		for _, f := range schema.Fields() {
			b.Cols = append(b.Cols, g.vector(f.Type, n))
		}
		if g.IntN(2) == 0 {
			b.Sel = []int32{}
			keep := 1 + g.IntN(3)
			for i := range n {
				if g.IntN(3) < keep {
					b.Sel = append(b.Sel, int32(i))
				}
			}
		}
		out = append(out, b)
	}
	return out
}

// memOp emits batches and spoils each at the next call, so that a consumer
// that holds on to one too long is found out.
type memOp struct {
	schema  *arrow.Schema
	batches []*columnar.Batch
	last    *columnar.Batch
	failAt  error // returned after the last batch
	endless bool
	next    int
	closed  *int
}

func (m *memOp) Schema() *arrow.Schema { return m.schema }

func (m *memOp) Close() error {
	if m.closed != nil {
		*m.closed++
	}
	m.spoil()
	return nil
}

func (m *memOp) spoil() {
	if m.last == nil {
		return
	}
	for _, v := range m.last.Cols {
		spoilVector(v)
	}
	for i := range m.last.Sel {
		m.last.Sel[i] = math.MaxInt32
	}
	m.last = nil
}

func spoilVector(v *columnar.Vector) {
	for i := range v.Data {
		v.Data[i] = 0xa5
	}
	for i := range v.Codes {
		v.Codes[i] = math.MaxInt32
	}
	for i := range v.Valid {
		v.Valid[i] = 0xa5
	}
	for i := range v.Offsets {
		v.Offsets[i] = -1
	}
	for _, c := range v.Children {
		spoilVector(c)
	}
	if v.Dict != nil {
		spoilVector(v.Dict)
	}
}

func (m *memOp) Next(ctx context.Context) (*columnar.Batch, error) {
	m.spoil()
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	if m.next >= len(m.batches) {
		if !m.endless || len(m.batches) == 0 {
			return nil, m.failAt
		}
		m.next = 0
	}
	b := m.batches[m.next]
	m.next++
	m.last = &columnar.Batch{Len: b.Len, Sel: slices.Clone(b.Sel)}
	for _, v := range b.Cols {
		m.last.Cols = append(m.last.Cols, copyVector(v))
	}
	return m.last, nil
}

func copyVector(v *columnar.Vector) *columnar.Vector {
	c := *v
	c.Data, c.Codes, c.Valid, c.Offsets = slices.Clone(v.Data), slices.Clone(v.Codes), slices.Clone(v.Valid), slices.Clone(v.Offsets)
	if v.Dict != nil {
		c.Dict = copyVector(v.Dict)
	}
	c.Children = nil
	for _, child := range v.Children {
		c.Children = append(c.Children, copyVector(child))
	}
	return &c
}

// row is one row of plain Go values: nil, bool, int64, float64, *big.Int,
// string, or []any for a list.
type row []any

func cell(v *columnar.Vector, i int) any {
	if v.IsNull(i) {
		return nil
	}
	if v.Const {
		i = 0
	}
	switch v.Type.ID() {
	case arrow.BOOL:
		return v.Data[i] == 1
	case arrow.INT16:
		return int64(columnar.Values[int16](v)[i])
	case arrow.INT32, arrow.DATE32:
		return int64(columnar.Values[int32](v)[i])
	case arrow.FLOAT32:
		return float64(columnar.Values[float32](v)[i])
	case arrow.FLOAT64:
		return columnar.Values[float64](v)[i]
	case arrow.DECIMAL128:
		w := columnar.Values[word128](v)[i]
		return wideInt(int64(w[1]), w[0])
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return wideInt(intervalSpan(columnar.Values[arrow.MonthDayNanoInterval](v)[i]))
	case arrow.FIXED_SIZE_BINARY:
		return string(v.Data[16*i : 16*i+16])
	case arrow.STRING, arrow.BINARY:
		return string(v.BytesAt(i))
	case arrow.LIST:
		list := []any{}
		for e := v.Offsets[i]; e < v.Offsets[i+1]; e++ {
			list = append(list, cell(v.Children[0], int(e)))
		}
		return list
	case arrow.STRUCT:
		fields := []any{}
		for _, c := range v.Children {
			fields = append(fields, cell(c, i))
		}
		return fields
	}
	return columnar.Values[int64](v)[i]
}

func wideInt(hi int64, lo uint64) *big.Int {
	x := new(big.Int).Lsh(big.NewInt(hi), 64)
	return x.Add(x, new(big.Int).SetUint64(lo))
}

func rowsOf(batches ...*columnar.Batch) []row {
	var out []row
	for _, b := range batches {
		for i := range b.Rows() {
			r := make(row, len(b.Cols))
			for c, v := range b.Cols {
				r[c] = cell(v, rowAt(b.Sel, i))
			}
			out = append(out, r)
		}
	}
	return out
}

// text spells values so that equal ones, and only those, are spelt alike.
func (r row) text() string {
	var s []byte
	for _, v := range r {
		switch x := v.(type) {
		case int64:
			s = strconv.AppendInt(append(s, 'i'), x, 10)
		case float64:
			if x == 0 {
				s = append(s, 'f', '0')
				break
			}
			s = strconv.AppendFloat(append(s, 'f'), x, 'g', -1, 64)
		case string:
			s = strconv.AppendQuote(s, x)
		case *big.Int:
			s = x.Append(append(s, 'b'), 10)
		default:
			s = fmt.Appendf(s, "%T:%v", v, v)
		}
		s = append(s, '|')
	}
	return string(s)
}

func sortedTexts(rows []row) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.text()
	}
	slices.Sort(out)
	return out
}

func compareCells(a, b any) int {
	switch x := a.(type) {
	case bool:
		return cmp.Compare(fmt.Sprint(x), fmt.Sprint(b))
	case int64:
		return cmp.Compare(x, b.(int64))
	case float64:
		y := b.(float64)
		switch {
		case math.IsNaN(x) && math.IsNaN(y):
			return 0
		case math.IsNaN(x):
			return 1
		case math.IsNaN(y):
			return -1
		}
		return cmp.Compare(x, y)
	case *big.Int:
		return x.Cmp(b.(*big.Int))
	case string:
		return bytes.Compare([]byte(x), []byte(b.(string)))
	}
	panic(fmt.Sprintf("no order for %T", a))
}

// drain reads an operator to its end, checks every batch and closes it.
func drain(t *testing.T, op Operator) []row {
	t.Helper()
	rows, err := drainCtx(context.Background(), op)
	if err != nil {
		t.Fatalf("draining: %v", err)
	}
	return rows
}

func drainCtx(ctx context.Context, op Operator) (rows []row, err error) {
	defer func() {
		if e := op.Close(); err == nil {
			err = e
		}
	}()
	for {
		b, err := op.Next(ctx)
		if err != nil || b == nil {
			return rows, err
		}
		if len(b.Cols) != op.Schema().NumFields() {
			return nil, fmt.Errorf("batch of %d columns, schema of %d", len(b.Cols), op.Schema().NumFields())
		}
		for i, v := range b.Cols {
			if !arrow.TypeEqual(v.Type, op.Schema().Field(i).Type) {
				return nil, fmt.Errorf("column %d is %s, not %s", i, v.Type, op.Schema().Field(i).Type)
			}
			if v.Len < b.Len {
				return nil, fmt.Errorf("column %d has %d values in a batch of %d", i, v.Len, b.Len)
			}
		}
		rows = append(rows, rowsOf(b)...)
	}
}

// mustBeEmpty checks that all of a budget was given back.
func mustBeEmpty(t *testing.T, b *Budget) {
	t.Helper()
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes of the budget were not given back", used)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// split deals batches to up to n parts.
func (g *generator) split(schema *arrow.Schema, batches []*columnar.Batch, n int, closed *int) []Operator {
	parts := make([]Operator, n)
	for i := range parts {
		parts[i] = &memOp{schema: schema, closed: closed}
	}
	for _, b := range batches {
		m := parts[g.IntN(n)].(*memOp)
		m.batches = append(m.batches, b)
	}
	return parts
}

func equalTexts(t *testing.T, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			var g, w string
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			t.Fatalf("%d rows instead of %d; row %d is %q instead of %q", len(got), len(want), i, g, w)
		}
	}
}
