package catalog

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"pgregory.net/rapid"

	"skein/columnar"
)

// vectorOf makes a vector of literal values; nil is NULL.
func vectorOf(t testing.TB, dt arrow.DataType, values ...any) *columnar.Vector {
	t.Helper()
	phys := PhysicalType(dt)
	b, err := columnar.NewBuilder(phys)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		switch x := v.(type) {
		case nil:
			b.AppendNull()
		case bool:
			columnar.AppendFixed(b, x)
		case float64:
			if phys.ID() == arrow.FLOAT32 {
				columnar.AppendFixed(b, float32(x))
			} else {
				columnar.AppendFixed(b, x)
			}
		case int64:
			switch columnar.Width(phys) {
			case 2:
				columnar.AppendFixed(b, int16(x))
			case 4:
				columnar.AppendFixed(b, int32(x))
			default:
				columnar.AppendFixed(b, x)
			}
		case decimal128.Num:
			columnar.AppendFixed(b, x)
		case arrow.MonthDayNanoInterval:
			columnar.AppendFixed(b, x)
		case string:
			if err := b.AppendBytes([]byte(x)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Finish()
}

// ascending lists values of each type in SQL order, NULL last.
func ascending() map[string]struct {
	dt     arrow.DataType
	values []any
} {
	type c = struct {
		dt     arrow.DataType
		values []any
	}
	wide := func(hi int64, lo uint64) any { return decimal128.New(hi, lo) }
	iv := func(m, d int32, n int64) any { return arrow.MonthDayNanoInterval{Months: m, Days: d, Nanoseconds: n} }
	return map[string]c{
		"boolean":   {Boolean, []any{false, true, nil}},
		"smallint":  {SmallInt, []any{int64(-32768), int64(-1), int64(0), int64(7), int64(32767), nil}},
		"integer":   {Integer, []any{int64(math.MinInt32), int64(-256), int64(0), int64(255), int64(256), nil}},
		"bigint":    {BigInt, []any{int64(math.MinInt64), int64(-1), int64(0), int64(1), int64(math.MaxInt64), nil}},
		"real":      {Real, []any{math.Inf(-1), -1.5, 0.0, 0.25, math.Inf(1), math.NaN(), nil}},
		"double":    {Double, []any{math.Inf(-1), -1e300, -1e-300, 0.0, 1e-300, 2.0, math.Inf(1), math.NaN(), nil}},
		"decimal":   {Decimal(15, 2), []any{int64(-100), int64(-99), int64(0), int64(1), nil}},
		"wide":      {Decimal(38, 0), []any{wide(-5, 9), wide(-1, math.MaxUint64), wide(0, 0), wide(0, 1), wide(1, 0), nil}},
		"text":      {Text, []any{"", "\x00", "\x00\x00", "\x00a", "a", "a\x00", "a\x00\x01", "a\x01", "aa", "b", "\xff\xff", nil}},
		"bytea":     {Bytea, []any{"", "\x00\xff", "\x01", "\xff", nil}},
		"date":      {Date, []any{int64(-1), int64(0), int64(20000), nil}},
		"time":      {Time, []any{int64(0), int64(1), int64(86399999999), nil}},
		"timestamp": {Timestamp, []any{int64(-1), int64(0), int64(1), nil}},
		"interval":  {Interval, []any{iv(-1, 0, 0), iv(0, 0, -1), iv(0, 0, 0), iv(0, 1, -1), iv(0, 1, 0), iv(0, 29, 0), iv(1, 0, 0), iv(0, 31, 0), nil}},
		"uuid":      {UUID, []any{"0000000000000000", "0000000000000001", "1000000000000000", nil}},
	}
}

func TestKeysOrderAsValues(t *testing.T) {
	for name, tc := range ascending() {
		v := vectorOf(t, tc.dt, tc.values...)
		cols := []*columnar.Vector{v}
		keys := EncodeKeys(cols, v.Len)
		for i := range v.Len {
			key := AppendKey(nil, cols, i)
			if !bytes.Equal(keys.Key(i), key) {
				t.Errorf("%s: EncodeKeys and AppendKey differ at %d", name, i)
			}
			if i > 0 && bytes.Compare(keys.Key(i-1), key) >= 0 {
				t.Errorf("%s: %v does not sort below %v", name, tc.values[i-1], tc.values[i])
			}
			var lit any = tc.values[i]
			if s, ok := lit.(string); ok && tc.dt.ID() != arrow.STRING {
				lit = []byte(s)
			}
			got, err := AppendKeyValue(nil, tc.dt, lit)
			if err != nil || !bytes.Equal(got, key) {
				t.Errorf("%s: AppendKeyValue(%v) = %x, %v; want %x", name, lit, got, err, key)
			}
			if _, err := KeyText([]arrow.DataType{tc.dt}, key); err != nil {
				t.Errorf("%s: spelling %v: %v", name, lit, err)
			}
			back := KeyValue(tc.dt, key)
			if again, err := AppendKeyValue(nil, tc.dt, back); back != nil && (err != nil || !bytes.Equal(again, key)) {
				t.Errorf("%s: %v decodes to %v", name, lit, back)
			}
		}
	}
}

func TestKeyColumnsCompose(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(rt, "rows")
		type row struct {
			s string
			i int64
		}
		rows := make([]row, n)
		var ss, is []any
		for i := range rows {
			rows[i] = row{
				rapid.StringOfN(rapid.RuneFrom([]rune{0, 1, 'a', 'b'}), 0, 3, -1).Draw(rt, "s"),
				rapid.Int64Range(-2, 2).Draw(rt, "i"),
			}
			ss, is = append(ss, rows[i].s), append(is, rows[i].i)
		}
		keys := EncodeKeys([]*columnar.Vector{vectorOf(t, Text, ss...), vectorOf(t, Integer, is...)}, n)
		for i := range rows {
			for j := range rows {
				want := cmp.Or(cmp.Compare(rows[i].s, rows[j].s), cmp.Compare(rows[i].i, rows[j].i))
				if got := bytes.Compare(keys.Key(i), keys.Key(j)); got != want {
					rt.Fatalf("%+v and %+v compare as %d", rows[i], rows[j], got)
				}
			}
		}
	})
}

func TestNestedKeys(t *testing.T) {
	list := &columnar.Vector{
		Type: arrow.ListOf(BigInt), Len: 5, Valid: []byte{0b01111}, Offsets: []int32{0, 0, 1, 3, 4, 4},
		Children: []*columnar.Vector{vectorOf(t, BigInt, int64(1), int64(1), int64(2), int64(3))},
	}
	var last []byte
	for i := range list.Len {
		key := AppendKey(nil, []*columnar.Vector{list}, i)
		if bytes.Compare(last, key) >= 0 {
			t.Errorf("list %d does not sort above the one before", i)
		}
		last = key
	}
	text, err := KeyText([]arrow.DataType{list.Type}, AppendKey(nil, []*columnar.Vector{list}, 2))
	if err != nil || text[0] != "{1,2}" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestEqualAcrossWidths(t *testing.T) {
	key := func(dt arrow.DataType, v any) []byte {
		return AppendKey(nil, []*columnar.Vector{vectorOf(t, dt, v)}, 0)
	}
	if !bytes.Equal(key(SmallInt, int64(-5)), key(BigInt, int64(-5))) || !bytes.Equal(key(Real, 1.5), key(Double, 1.5)) ||
		!bytes.Equal(key(Double, math.Copysign(0, -1)), key(Double, 0.0)) {
		t.Error("equal values have different keys")
	}
}

func TestConstAndDictionaryKeys(t *testing.T) {
	c := columnar.NewConst(BigInt, columnar.Bytes([]int64{9}), 3)
	d := &columnar.Vector{Type: Text, Len: 3, Codes: []int32{1, 0, 1}, Dict: vectorOf(t, Text, "x", "y")}
	cols := []*columnar.Vector{c, d}
	keys := EncodeKeys(cols, 3)
	want := EncodeKeys([]*columnar.Vector{vectorOf(t, BigInt, int64(9), int64(9), int64(9)), vectorOf(t, Text, "y", "x", "y")}, 3)
	for i := range 3 {
		if !bytes.Equal(keys.Key(i), want.Key(i)) {
			t.Errorf("row %d: %x, want %x", i, keys.Key(i), want.Key(i))
		}
	}
}

func TestKeyText(t *testing.T) {
	for _, tc := range []struct {
		dt   arrow.DataType
		v    any
		want string
	}{
		{BigInt, int64(-12), "-12"},
		{Decimal(10, 2), int64(-105), "-1.05"},
		{Text, "a\x00b", "a\x00b"},
		{Bytea, []byte{0, 255}, `\x00ff`},
		{Date, int64(0), "1970-01-01"},
		{Timestamp, int64(-1), "1969-12-31 23:59:59.999999"},
		{TimestampTZ, int64(1_500_000), "1970-01-01 00:00:01.5+00"},
		{Time, int64(3_600_000_000), "01:00:00"},
		{Boolean, true, "t"},
		{Double, 0.5, "0.5"},
		{Interval, arrow.MonthDayNanoInterval{Months: 1, Nanoseconds: 1e9}, "30 days 1s"},
		{UUID, []byte("0123456789abcdef"), "30313233-3435-3637-3839-616263646566"},
		{Text, nil, "null"},
	} {
		key, err := AppendKeyValue(nil, tc.dt, tc.v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := KeyText([]arrow.DataType{tc.dt}, key)
		if err != nil || got[0] != tc.want {
			t.Errorf("%s %v: %q, %v; want %q", TypeName(tc.dt), tc.v, got, err, tc.want)
		}
		if len(key) > 1 {
			if _, err := KeyText([]arrow.DataType{tc.dt}, key[:len(key)-1]); err == nil {
				t.Errorf("%s: a cut key was spelled", TypeName(tc.dt))
			}
		}
	}
}

func TestAppendKeyValueRefuses(t *testing.T) {
	for _, tc := range []struct {
		dt arrow.DataType
		v  any
	}{
		{BigInt, "x"}, {Text, int64(1)}, {UUID, []byte("short")}, {Boolean, 1.0}, {BigInt, 3},
		{Decimal(10, 0), decimal128.New(1, 0)}, {Date, decimal128.New(0, 1)}, {Text, arrow.MonthDayNanoInterval{}},
	} {
		if _, err := AppendKeyValue(nil, tc.dt, tc.v); err == nil {
			t.Errorf("%s took %v", TypeName(tc.dt), tc.v)
		}
	}
}

func TestKeySuccessor(t *testing.T) {
	for in, want := range map[string]string{"a": "b", "a\xff": "b", "ab\xff\xff": "ac"} {
		if got := KeySuccessor([]byte(in)); string(got) != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := KeySuccessor([]byte("\xff\xff")); got != nil {
		t.Errorf("%q", got)
	}
}

func FuzzKeyText(f *testing.F) {
	types := []arrow.DataType{Text, BigInt, Decimal(38, 2), arrow.ListOf(Text), arrow.StructOf(arrow.Field{Name: "a", Type: Double}), Interval}
	f.Add(uint8(0), []byte("\x01ab\x00\x01"))
	f.Add(uint8(3), []byte("\x01\x01a\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, which uint8, key []byte) {
		dt := types[int(which)%len(types)]
		if texts, err := KeyText([]arrow.DataType{dt}, key); err == nil && len(texts) != 1 {
			t.Fatal("no text")
		}
		_ = KeyValue(dt, slices.Clone(key)) // must not panic
	})
}

func BenchmarkEncodeKeys(b *testing.B) {
	n := 1 << 16
	a, c := make([]int64, n), make([]int32, n)
	for i := range a {
		a[i], c[i] = int64(i), int32(i%7)
	}
	cols := []*columnar.Vector{
		{Type: BigInt, Len: n, Data: columnar.Bytes(a)},
		{Type: Integer, Len: n, Data: columnar.Bytes(c)},
	}
	for b.Loop() {
		EncodeKeys(cols, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
}
