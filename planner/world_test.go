package planner

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

const mib = 1 << 20

// world is a Locator and Metadata over tables made for a test.
type world struct {
	*CatalogLocator
	tables map[string]*catalog.Table
	stats  map[catalog.TableID]TableStats
	apart  map[[2]catalog.TabletID]bool // tablets that share no worker
}

func (w *world) Version() uint64 { return 7 }

func (w *world) TableStats(t *catalog.Table) (TableStats, error) {
	if s, ok := w.stats[t.ID]; ok {
		return s, nil
	}
	return TableStats{}, &UnknownTableError{Table: t.Name}
}

func (w *world) SameNode(a, b catalog.TabletID) bool {
	return !w.apart[[2]catalog.TabletID{a, b}] && !w.apart[[2]catalog.TabletID{b, a}]
}

// tableSpec is one table of a world. Columns are "name type" or "name type?"
// for nullable ones; hash names the partition columns, none for unpartitioned.
type tableSpec struct {
	name        string
	columns     []string
	key         []string
	hash        []string
	tablets     []catalog.TabletID
	rows        uint64
	bytes       uint64
	columnStats []ColumnStats
}

const testBuckets = 16

func newWorld(t testing.TB, specs ...tableSpec) *world {
	t.Helper()
	w := &world{tables: make(map[string]*catalog.Table), stats: make(map[catalog.TableID]TableStats)}
	var all []*catalog.Table
	for i, s := range specs {
		table := s.table(t, catalog.TableID(i+1))
		w.tables[s.name] = table
		w.stats[table.ID] = TableStats{Rows: s.rows, Bytes: s.bytes, Columns: s.columnStats}
		all = append(all, table)
	}
	w.CatalogLocator = NewCatalogLocator(all...)
	return w
}

func (s *tableSpec) table(t testing.TB, id catalog.TableID) *catalog.Table {
	t.Helper()
	table := &catalog.Table{ID: id, Schema: catalog.DefaultSchema, Name: s.name, Version: 1, Replicas: 1}
	for _, c := range s.columns {
		var name, kind string
		if _, err := fmt.Sscanf(c, "%s %s", &name, &kind); err != nil {
			t.Fatalf("column %q: %v", c, err)
		}
		nullable := kind[len(kind)-1] == '?'
		if nullable {
			kind = kind[:len(kind)-1]
		}
		dt, err := catalog.ParseType(kind)
		if err != nil {
			t.Fatal(err)
		}
		table.Columns = append(table.Columns, catalog.Column{Name: name, Type: dt, Nullable: nullable})
	}
	for _, k := range s.key {
		table.PrimaryKey = append(table.PrimaryKey, table.Column(k))
	}
	table.Partitioning.Kind = catalog.Unpartitioned
	var ranges []catalog.BucketRange
	if len(s.hash) > 0 {
		table.Partitioning = catalog.Partitioning{Kind: catalog.Hash, Buckets: testBuckets}
		for _, c := range s.hash {
			table.Partitioning.Columns = append(table.Partitioning.Columns, table.Column(c))
		}
		if len(s.tablets) > 0 {
			var err error
			if ranges, err = catalog.BucketRanges(testBuckets, len(s.tablets)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, tablet := range s.tablets {
		d := catalog.Tablet{ID: tablet}
		if ranges != nil {
			d.BucketLow, d.BucketHigh = ranges[i].Low, ranges[i].High
		}
		table.Tablets = append(table.Tablets, d)
	}
	return table
}

// scan reads the named columns of a table, all when there are none.
func (w *world) scan(table string, columns ...string) *Scan {
	t := w.tables[table]
	n := &Scan{Table: t}
	if len(columns) == 0 {
		for i := range t.Columns {
			n.Projection = append(n.Projection, i)
		}
	}
	for _, c := range columns {
		n.Projection = append(n.Projection, t.Column(c))
	}
	return n
}

func ids(ids ...catalog.TabletID) []catalog.TabletID { return ids }

// col is the named column of a node; an ambiguous name is the first one.
func col(n Node, name string) *Column {
	fields := outputFields(n)
	for i, f := range fields {
		if f.Name == name {
			return columnOf(fields, i)
		}
	}
	panic(fmt.Sprintf("no column %q in %v", name, names(fields)))
}

func ordinal(n Node, name string) int { return col(n, name).Index }

func lit(v any) *Literal {
	switch v := v.(type) {
	case int:
		return &Literal{Value: int64(v), DataType: catalog.BigInt}
	case string:
		return &Literal{Value: v, DataType: catalog.Text}
	case bool:
		return BoolLiteral(v)
	case nil:
		return &Literal{DataType: catalog.BigInt}
	}
	panic(fmt.Sprintf("no literal for %T", v))
}

// call is a function with a boolean result.
func call(op string, args ...Expr) *Call { return typed(catalog.Boolean, op, args...) }

func typed(dt arrow.DataType, op string, args ...Expr) *Call {
	null := false
	for _, a := range args {
		null = null || a.Nullable()
	}
	if op == "is null" || op == "is not null" {
		null = false
	}
	return &Call{Func: op, Args: args, DataType: dt, Null: null}
}

func keys(left, right Node, pairs ...string) []JoinKey {
	var on []JoinKey
	for i := 0; i < len(pairs); i += 2 {
		on = append(on, JoinKey{Left: ordinal(left, pairs[i]), Right: ordinal(right, pairs[i+1])})
	}
	return on
}

// join is an inner join on pairs of column names.
func join(left, right Node, pairs ...string) *Join {
	return &Join{Kind: InnerJoin, Left: left, Right: right, On: keys(left, right, pairs...)}
}

func countStar() AggCall {
	return AggCall{Func: Count, Arg: -1, DataType: catalog.BigInt, Name: "count"}
}

func sumOf(n Node, name string) AggCall {
	return AggCall{Func: Sum, Arg: ordinal(n, name), DataType: catalog.BigInt, Name: "sum_" + name}
}

func mustDistribute(t testing.TB, w *world, root Node) *Plan {
	t.Helper()
	return mustDistributeWith(t, w, root, DefaultOptions())
}

func mustDistributeWith(t testing.TB, w *world, root Node, options Options) *Plan {
	t.Helper()
	plan, err := Distribute(Description{QueryID: "q", Root: root, Options: options}, w, w)
	if err != nil {
		t.Fatalf("distributing\n%s: %v", ExplainLite(root), err)
	}
	if err := ValidatePlan(plan); err != nil {
		t.Fatalf("%v in\n%s", err, Explain(plan))
	}
	return plan
}
