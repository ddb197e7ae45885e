package exec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// lineitem is a batch with the columns of TPC-H that its filters and sums use.
func lineitem(rows int) (*columnar.Batch, *arrow.Schema) {
	r := rand.New(rand.NewPCG(1, 2))
	price, disc, tax, qty := make([]int64, rows), make([]int64, rows), make([]int64, rows), make([]int64, rows)
	ship := make([]int32, rows)
	types, _ := columnar.NewBuilder(arrow.BinaryTypes.String)
	for i := range 150 {
		_ = types.AppendBytes(fmt.Appendf(nil, "%s TYPE %d", []string{"PROMO", "STANDARD", "SMALL"}[i%3], i))
	}
	codes := make([]int32, rows)
	plain, _ := columnar.NewBuilder(arrow.BinaryTypes.String)
	for i := range rows {
		price[i], disc[i], tax[i], qty[i] = r.Int64N(10_000_000), r.Int64N(11), r.Int64N(9), r.Int64N(5000)
		ship[i] = 8036 + r.Int32N(2526)
		codes[i] = r.Int32N(150)
		_ = plain.AppendBytes(fmt.Appendf(nil, "carefully special packages %d requests haggle", i))
	}
	d := catalog.Decimal(15, 2)
	p := catalog.PhysicalType(d)
	fields := []arrow.Field{{Name: "price", Type: d}, {Name: "disc", Type: d}, {Name: "tax", Type: d}, {Name: "qty", Type: d},
		{Name: "ship", Type: catalog.Date}, {Name: "type", Type: catalog.Text}, {Name: "comment", Type: catalog.Text}}
	b := &columnar.Batch{Len: rows, Cols: []*columnar.Vector{
		{Type: p, Len: rows, Data: columnar.Bytes(price)}, {Type: p, Len: rows, Data: columnar.Bytes(disc)},
		{Type: p, Len: rows, Data: columnar.Bytes(tax)}, {Type: p, Len: rows, Data: columnar.Bytes(qty)},
		{Type: catalog.Date, Len: rows, Data: columnar.Bytes(ship)},
		{Type: catalog.Text, Len: rows, Codes: codes, Dict: types.Finish()}, plain.Finish(),
	}}
	return b, arrow.NewSchema(fields, nil)
}

func columnNamed(schema *arrow.Schema, name string) *planner.Column {
	i := schema.FieldIndices(name)[0]
	return &planner.Column{Index: i, Name: name, DataType: schema.Field(i).Type}
}

func mustBind(t testing.TB, name string, args ...planner.Expr) planner.Expr {
	t.Helper()
	e, err := bind(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func decimalLit(x int64, p, s int) *planner.Literal {
	return &planner.Literal{Value: decimal128.FromI64(x), DataType: catalog.Decimal(p, s)}
}

func BenchmarkExpressions(b *testing.B) {
	batch, schema := lineitem(columnar.BatchRows)
	col := func(n string) planner.Expr { return columnNamed(schema, n) }
	text := func(s string) planner.Expr { return &planner.Literal{Value: s, DataType: catalog.Text} }
	date := func(s string) planner.Expr { return value(b, "date:"+s) }
	one := decimalLit(1, 1, 0)
	discounted := mustBind(b, "*", col("price"), mustBind(b, "-", one, col("disc")))
	q6 := mustBind(b, "and", mustBind(b, ">=", col("ship"), date("1994-01-01")), mustBind(b, "<", col("ship"), date("1995-01-01")),
		mustBind(b, ">=", col("disc"), decimalLit(5, 2, 2)), mustBind(b, "<=", col("disc"), decimalLit(7, 2, 2)),
		mustBind(b, "<", col("qty"), decimalLit(24, 2, 0)))
	for _, c := range []struct {
		name   string
		e      planner.Expr
		filter bool
	}{
		{"discounted", discounted, false},
		{"charge", mustBind(b, "*", discounted, mustBind(b, "+", one, col("tax"))), false},
		{"revenue", mustBind(b, "*", col("price"), col("disc")), false},
		{"q6", q6, true},
		{"promo-dictionary", mustBind(b, "like", col("type"), text("PROMO%")), true},
		{"promo-case", &planner.Case{Whens: []planner.When{{Cond: mustBind(b, "like", col("type"), text("PROMO%")), Then: discounted}},
			Else: &planner.Cast{Arg: one, DataType: discounted.Type()}, DataType: discounted.Type()}, false},
		{"comment-like", mustBind(b, "not like", col("comment"), text("%special%requests%")), true},
		{"year", mustBind(b, "extract", text("year"), col("ship")), false},
		{"substring", mustBind(b, "substring", col("comment"), value(b, "integer:1"), value(b, "integer:2")), false},
		{"in-dictionary", &planner.InList{Arg: col("type"), List: []*planner.Literal{{Value: "PROMO TYPE 0", DataType: catalog.Text}, {Value: "SMALL TYPE 2", DataType: catalog.Text}}}, true},
		{"ratio", mustBind(b, "/", col("price"), mustBind(b, "+", col("disc"), one)), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			ev, err := Compile(c.e, schema)
			if err != nil {
				b.Fatal(err)
			}
			var sel []int32
			b.ReportAllocs()
			for b.Loop() {
				if c.filter {
					sel, err = ev.Filter(batch, sel[:0])
				} else {
					_, err = ev.Eval(batch)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(batch.Len)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
