package flightproto_test

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/planner"
)

// sampleTypes are SQL types of every form the wire must carry.
func sampleTypes() []arrow.DataType {
	types := []arrow.DataType{
		catalog.Boolean, catalog.SmallInt, catalog.Integer, catalog.BigInt, catalog.Real, catalog.Double,
		catalog.Text, catalog.Bytea, catalog.Date, catalog.Time, catalog.Timestamp, catalog.TimestampTZ,
		catalog.Interval, catalog.UUID, catalog.Null, catalog.Decimal(10, 2), catalog.Decimal(38, 10),
		catalog.PhysicalType(catalog.Decimal(15, 3)), arrow.ListOf(catalog.Text), arrow.ListOf(arrow.ListOf(catalog.BigInt)),
	}
	for _, digits := range []int{0, 3, 9} {
		for _, zone := range []bool{false, true} {
			dt, err := catalog.TimestampOf(digits, zone)
			if err != nil {
				panic(err)
			}
			types = append(types, dt)
		}
	}
	return types
}

func genType() *rapid.Generator[arrow.DataType] { return rapid.SampledFrom(sampleTypes()) }

func genSchema() *rapid.Generator[*arrow.Schema] {
	return rapid.Custom(func(t *rapid.T) *arrow.Schema {
		fields := make([]arrow.Field, rapid.IntRange(0, 5).Draw(t, "fields"))
		for i := range fields {
			fields[i] = arrow.Field{
				Name: rapid.String().Draw(t, "name"), Type: genType().Draw(t, "type"), Nullable: rapid.Bool().Draw(t, "nullable"),
			}
		}
		return arrow.NewSchema(fields, nil)
	})
}

func genLiteral() *rapid.Generator[*planner.Literal] {
	return rapid.Custom(func(t *rapid.T) *planner.Literal {
		dt := genType().Draw(t, "type")
		l := &planner.Literal{DataType: dt}
		if rapid.IntRange(0, 9).Draw(t, "null") == 0 {
			return l
		}
		switch dt.ID() {
		case arrow.BOOL:
			l.Value = rapid.Bool().Draw(t, "value")
		case arrow.INT16, arrow.INT32, arrow.INT64, arrow.DATE32, arrow.TIME64, arrow.TIMESTAMP:
			l.Value = rapid.Int64().Draw(t, "value")
		case arrow.FLOAT32, arrow.FLOAT64:
			l.Value = rapid.Float64().Draw(t, "value")
		case arrow.DECIMAL64, arrow.DECIMAL128:
			l.Value = decimal128.New(rapid.Int64().Draw(t, "high"), rapid.Uint64().Draw(t, "low"))
		case arrow.STRING:
			l.Value = rapid.String().Draw(t, "value")
		case arrow.BINARY, arrow.FIXED_SIZE_BINARY:
			l.Value = rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "value")
		case arrow.INTERVAL_MONTH_DAY_NANO:
			l.Value = arrow.MonthDayNanoInterval{
				Months: rapid.Int32().Draw(t, "months"), Days: rapid.Int32().Draw(t, "days"), Nanoseconds: rapid.Int64().Draw(t, "nanos"),
			}
		}
		return l
	})
}

func genExpr(depth int) *rapid.Generator[planner.Expr] {
	return rapid.Custom(func(t *rapid.T) planner.Expr {
		kind := rapid.IntRange(0, 6).Draw(t, "kind")
		if depth == 0 {
			kind %= 3
		}
		sub := func(label string) planner.Expr { return genExpr(depth-1).Draw(t, label) }
		switch kind {
		case 0:
			return genLiteral().Draw(t, "literal")
		case 1:
			return &planner.Column{
				Index: rapid.IntRange(0, 2000).Draw(t, "index"), Name: rapid.String().Draw(t, "name"),
				DataType: genType().Draw(t, "type"), Null: rapid.Bool().Draw(t, "null"),
			}
		case 2:
			return &planner.Param{Ordinal: rapid.IntRange(0, 100).Draw(t, "ordinal"), DataType: genType().Draw(t, "type")}
		case 3:
			call := &planner.Call{
				Func: rapid.SampledFrom([]string{"+", "and", "is null", "like", "substring"}).Draw(t, "func"),
				Null: rapid.Bool().Draw(t, "null"), DataType: genType().Draw(t, "type"),
			}
			for i := range rapid.IntRange(0, 3).Draw(t, "args") {
				call.Args = append(call.Args, sub(fmt.Sprint("arg", i)))
			}
			return call
		case 4:
			return &planner.Cast{Arg: sub("arg"), DataType: genType().Draw(t, "type")}
		case 5:
			e := &planner.Case{Else: sub("else"), DataType: genType().Draw(t, "type")}
			for range rapid.IntRange(1, 3).Draw(t, "whens") {
				e.Whens = append(e.Whens, planner.When{Cond: sub("cond"), Then: sub("then")})
			}
			return e
		}
		return &planner.InList{
			Arg: sub("arg"), Negate: rapid.Bool().Draw(t, "negate"),
			List: rapid.SliceOfN(genLiteral(), 1, 4).Draw(t, "list"),
		}
	})
}

func genOptionalExpr() *rapid.Generator[planner.Expr] {
	return rapid.Custom(func(t *rapid.T) planner.Expr {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		return genExpr(2).Draw(t, "expr")
	})
}

func genOrdinals() *rapid.Generator[[]int] {
	return rapid.Custom(func(t *rapid.T) []int {
		list := rapid.SliceOfN(rapid.IntRange(0, 3), 0, 4).Draw(t, "ordinals")
		if len(list) == 0 {
			return nil
		}
		return list
	})
}

// sampleTable is the one table that generated scans read.
func sampleTable() *catalog.Table {
	return &catalog.Table{
		ID: 11, Schema: "public", Name: "t",
		Columns: []catalog.Column{
			{Name: "a", Type: catalog.BigInt}, {Name: "b", Type: catalog.Text, Nullable: true},
			{Name: "c", Type: catalog.Decimal(12, 2)}, {Name: "d", Type: catalog.Date},
		},
		Tablets: []catalog.Tablet{{ID: 21, Generation: 1}, {ID: 22, Generation: 1}},
	}
}

func genOperator(table *catalog.Table) *rapid.Generator[planner.Operator] {
	return rapid.Custom(func(t *rapid.T) planner.Operator {
		sortKey := func() planner.SortKey {
			return planner.SortKey{Column: rapid.IntRange(0, 9).Draw(t, "column"), Descending: rapid.Bool().Draw(t, "desc"), NullsFirst: rapid.Bool().Draw(t, "nulls")}
		}
		aggregate := func() planner.FinalAggregate {
			a := planner.FinalAggregate{GroupBy: genOrdinals().Draw(t, "groups"), Schema: genSchema().Draw(t, "schema")}
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				var order []planner.SortKey
				for range rapid.IntRange(0, 2).Draw(t, "order") {
					order = append(order, sortKey())
				}
				a.Calls = append(a.Calls, planner.AggCall{
					Args: genOrdinals().Draw(t, "args"), Distinct: rapid.Bool().Draw(t, "distinct"), OrderBy: order,
					Func: rapid.SampledFrom([]planner.AggFunc{planner.Count, planner.Sum, planner.Avg}).Draw(t, "func"),
					Arg:  rapid.IntRange(-1, 5).Draw(t, "arg"), DataType: genType().Draw(t, "type"), Name: rapid.String().Draw(t, "name"),
				})
			}
			return a
		}
		switch rapid.IntRange(0, 14).Draw(t, "operator") {
		case 0:
			return &planner.TabletScan{
				Table: table, Tablet: table.Tablets[rapid.IntRange(0, 1).Draw(t, "tablet")].ID,
				Projection: genOrdinals().Draw(t, "projection"), Filter: genOptionalExpr().Draw(t, "filter"),
			}
		case 1:
			v := &planner.ValuesSource{Schema: genSchema().Draw(t, "schema")}
			for range rapid.IntRange(0, 3).Draw(t, "rows") {
				var row []planner.Expr
				for range v.Schema.NumFields() {
					row = append(row, genLiteral().Draw(t, "value"))
				}
				v.Rows = append(v.Rows, row)
			}
			return v
		case 2:
			return &planner.ExchangeSource{
				Exchange: planner.ExchangeID(rapid.Uint32().Draw(t, "exchange")), Input: rapid.IntRange(0, 3).Draw(t, "input"), Schema: genSchema().Draw(t, "schema"),
			}
		case 3:
			return &planner.ExchangeSink{Exchange: planner.ExchangeID(rapid.Uint32().Draw(t, "exchange"))}
		case 4:
			return &planner.FilterOp{Predicate: genExpr(2).Draw(t, "predicate")}
		case 5:
			p := &planner.ProjectOp{Schema: genSchema().Draw(t, "schema")}
			for range p.Schema.NumFields() {
				p.Exprs = append(p.Exprs, genExpr(1).Draw(t, "expr"))
			}
			return p
		case 6:
			a := planner.PartialAggregate(aggregate())
			return &a
		case 7:
			a := aggregate()
			return &a
		case 8:
			j := &planner.HashJoin{
				Strategy: planner.Broadcast, Kind: planner.InnerJoin, Build: planner.BuildRight,
				Residual: genOptionalExpr().Draw(t, "residual"), Schema: genSchema().Draw(t, "schema"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "on") {
				j.On = append(j.On, planner.JoinKey{Left: rapid.IntRange(0, 9).Draw(t, "left"), Right: rapid.IntRange(0, 9).Draw(t, "right"), NullSafe: rapid.Bool().Draw(t, "null safe")})
			}
			return j
		case 9:
			m := &planner.MergeSort{Limit: rapid.Int64Min(-1).Draw(t, "limit"), Sorted: rapid.Bool().Draw(t, "sorted")}
			for range rapid.IntRange(0, 3).Draw(t, "keys") {
				m.Keys = append(m.Keys, sortKey())
			}
			return m
		case 12:
			c := planner.CompleteAggregate(aggregate())
			return &c
		case 13:
			return &planner.UnionAll{Inputs: rapid.IntRange(0, 9).Draw(t, "inputs"), Schema: genSchema().Draw(t, "schema")}
		case 14:
			return genWindow(sortKey).Draw(t, "window")
		case 10:
			k := &planner.TopK{K: rapid.Int64Min(0).Draw(t, "k"), First: rapid.Int64Min(0).Draw(t, "first"), Refill: rapid.Bool().Draw(t, "refill")}
			for range rapid.IntRange(0, 3).Draw(t, "keys") {
				k.Keys = append(k.Keys, sortKey())
			}
			for range rapid.IntRange(0, 2).Draw(t, "ties") {
				k.Ties = append(k.Ties, sortKey())
			}
			return k
		}
		return &planner.LimitOp{Limit: rapid.Int64Min(-1).Draw(t, "limit"), Offset: rapid.Int64Min(0).Draw(t, "offset")}
	})
}

func genWindow(sortKey func() planner.SortKey) *rapid.Generator[*planner.WindowOp] {
	return rapid.Custom(func(t *rapid.T) *planner.WindowOp {
		w := &planner.WindowOp{PartitionBy: genOrdinals().Draw(t, "partition"), Schema: genSchema().Draw(t, "schema")}
		for range rapid.IntRange(0, 2).Draw(t, "order") {
			w.OrderBy = append(w.OrderBy, sortKey())
		}
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			c := planner.WindowCall{
				Func: planner.Lag, Args: genOrdinals().Draw(t, "args"), Frame: planner.DefaultFrame(),
				DataType: genType().Draw(t, "type"), Name: rapid.String().Draw(t, "name"),
			}
			if rapid.Bool().Draw(t, "bounded") {
				c.Frame.Mode, c.Frame.Exclude = planner.RowsFrame, planner.ExcludeTies
				c.Frame.Start = planner.FrameBound{Kind: planner.Preceding, Offset: genLiteral().Draw(t, "offset")}
			}
			w.Calls = append(w.Calls, c)
		}
		return w
	})
}
