package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// memCursor is a tablet's fragment and the exchange it feeds, in memory: rows
// are copied as a wire would, and nothing comes unasked.
type memCursor struct {
	op       Operator
	portions *Portions
	asked    int64 // rows of a portion that is not produced yet
	more     bool
	queue    []sentPiece
	newest   []byte
	sent     int
	refills  []int
}

type sentPiece struct {
	batch *columnar.Batch
	bound []byte
}

func newMemCursor(t *testing.T, parts []Operator, top *planner.TopK, budget *Budget) *memCursor {
	b := &builder{env: &Env{Budget: budget}, parallelism: 2, stack: []*stream{{parts: parts}}}
	local := *top
	local.Refill = false
	if err := b.topK(&local); err != nil {
		t.Fatal(err)
	}
	op := b.stack[0].parts[0]
	return &memCursor{op: op, portions: must(NewPortions(op, top, budget)), asked: top.First}
}

func (c *memCursor) Schema() *arrow.Schema { return c.op.Schema() }

func (c *memCursor) Close() error {
	c.portions.Close()
	return c.op.Close()
}

func (c *memCursor) Next(ctx context.Context) (*columnar.Batch, error) {
	if len(c.queue) == 0 && c.asked > 0 {
		rows := c.asked
		c.asked = 0
		var err error
		c.more, err = c.portions.Send(ctx, rows, func(b *columnar.Batch, bound []byte) error {
			c.sent += b.Rows()
			c.queue = append(c.queue, sentPiece{copied(b), slices.Clone(bound)})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(c.queue) == 0 {
		if c.more {
			return nil, errors.New("the producer waits to be asked")
		}
		c.newest = nil
		return nil, nil
	}
	head := c.queue[0]
	c.queue, c.newest = c.queue[1:], head.bound
	return head.batch, nil
}

func (c *memCursor) Unseen() ([]byte, error) { return c.newest, nil }

func (c *memCursor) Refill(_ context.Context, rows int) error {
	if c.asked > 0 || len(c.queue) > 0 || !c.more {
		return errors.New("the producer does not wait")
	}
	c.asked = int64(rows)
	c.refills = append(c.refills, rows)
	return nil
}

// copied is a batch of its own with the selected rows.
func copied(b *columnar.Batch) *columnar.Batch {
	out := &columnar.Batch{Len: b.Rows()}
	for _, v := range b.Cols {
		builder := must(columnar.NewBuilder(v.Type))
		if err := builder.AppendVector(v, b.Sel); err != nil {
			panic(err)
		}
		out.Cols = append(out.Cols, builder.Finish())
	}
	return out
}

// shards are tablets with random rows. With identity, every row has its tablet
// and row id, and a column that has no order.
type shards struct {
	g       *generator
	schema  *arrow.Schema
	top     *planner.TopK
	tablets [][]*columnar.Batch
	want    []row
}

func newShards(seed uint64) *shards {
	s := &shards{g: newGenerator(seed), top: &planner.TopK{Refill: true}}
	g, identity := s.g, seed%2 == 0
	var types []arrow.DataType
	for range 1 + g.IntN(3) {
		s.top.Keys = append(s.top.Keys, planner.SortKey{Column: len(types), Descending: g.IntN(2) == 0, NullsFirst: g.IntN(2) == 0})
		types = append(types, opTypes[g.IntN(len(opTypes))])
	}
	order := slices.Clone(s.top.Keys)
	types = append(types, opTypes[g.IntN(len(opTypes))])
	if identity {
		types = append(types, listType)
	} else {
		order = append(order, planner.SortKey{Column: len(types) - 1})
	}
	fields := opSchema(types...).Fields()
	payload := arrow.NewSchema(fields, nil)
	if identity {
		n := len(fields)
		fields = append(slices.Clone(fields), arrow.Field{Name: planner.TabletName, Type: catalog.BigInt}, arrow.Field{Name: planner.RowIDName, Type: catalog.BigInt})
		s.top.Ties = []planner.SortKey{{Column: n}, {Column: n + 1}}
	}
	s.schema = arrow.NewSchema(fields, nil)
	s.tablets = make([][]*columnar.Batch, 1+g.IntN(8))
	for tablet := range s.tablets {
		s.tablets[tablet] = g.batches(payload, g.IntN(120))
		rowID := int64(0)
		for _, b := range s.tablets[tablet] {
			if identity {
				id := &columnar.Vector{Type: catalog.BigInt, Len: b.Len, Const: true, Data: columnar.Bytes([]int64{int64(tablet)})}
				ids := make([]int64, b.Len)
				for i := range ids {
					ids[i] = rowID
					rowID++
				}
				b.Cols = append(b.Cols, id, &columnar.Vector{Type: catalog.BigInt, Len: b.Len, Data: columnar.Bytes(ids)})
			}
		}
		s.want = append(s.want, rowsOf(s.tablets[tablet]...)...)
	}
	slices.SortStableFunc(s.want, compareRows(order))
	s.top.K = int64(1 + g.IntN(len(s.want)+20))
	s.top.First = 1 + g.Int64N(min(s.top.K, 40))
	s.want = s.want[:min(len(s.want), int(s.top.K))]
	return s
}

// run answers with the rows, and what each tablet did for them.
func (s *shards) run(t *testing.T, budget *Budget) ([]row, []*memCursor) {
	w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{}}
	var ops []planner.Operator
	var cursors []*memCursor
	for i, batches := range s.tablets {
		c := newMemCursor(t, s.g.split(s.schema, cloned(batches), 1+s.g.IntN(3), nil), s.top, budget)
		cursors = append(cursors, c)
		w.sources[planner.ExchangeID(i)] = c
		ops = append(ops, &planner.ExchangeSource{Exchange: planner.ExchangeID(i), Schema: publicSchema(s.schema)})
	}
	root, err := Build(t.Context(), append(ops, s.top), &Env{Exchanges: w, Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	return drain(t, root), cursors
}

// cloned makes batches that may be spoiled.
func cloned(batches []*columnar.Batch) []*columnar.Batch {
	out := make([]*columnar.Batch, len(batches))
	for i, b := range batches {
		out[i] = copied(b)
	}
	return out
}

// TestRefillMatchesSingleNode compares 1,000 random datasets, of which half have
// row identities, with one stable sort of all their rows.
func TestRefillMatchesSingleNode(t *testing.T) {
	refills := 0
	for seed := range uint64(1000) {
		budget := NewBudget("query", 0, nil)
		s := newShards(seed)
		got, cursors := s.run(t, budget)
		equalTexts(t, exactTexts(got), exactTexts(s.want))
		mustBeEmpty(t, budget)
		_, again := s.run(t, budget)
		for i, c := range cursors {
			refills += len(c.refills)
			if c.sent > int(s.top.K) || !slices.Equal(c.refills, again[i].refills) {
				t.Errorf("tablet %d sent %d rows of %d, refilled by %v and then %v", i, c.sent, s.top.K, c.refills, again[i].refills)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v over %s", seed, s.top, s.schema)
		}
	}
	if refills == 0 {
		t.Error("no dataset needed a refill")
	}
}

// TestRefillSendsLittle counts what crosses the exchanges when k is large.
func TestRefillSendsLittle(t *testing.T) {
	const tablets, each, k, first = 8, 20_000, 10_000, 1424
	schema := opSchema(catalog.BigInt)
	top := &planner.TopK{K: k, Keys: []planner.SortKey{{Descending: true}}, First: first, Refill: true}
	for name, c := range map[string]struct {
		value func(tablet, i int) int64
		most  int
	}{
		"spread evenly":      {func(tablet, i int) int64 { return int64(i*tablets + tablet) }, tablets * first},
		"all on one tablet":  {func(tablet, i int) int64 { return int64(tablet*each + i) }, 4 * k},
		"nothing but ties":   {func(int, int) int64 { return 5 }, k + (tablets-1)*first},
		"most on two":        {func(tablet, i int) int64 { return int64(tablet/6*each + i) }, 2 * k},
		"one better by ties": {func(tablet, i int) int64 { return int64(i / 5000) }, k + tablets*first},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{}}
			var ops []planner.Operator
			var cursors []*memCursor
			var want []int64
			budget := NewBudget("query", 0, nil)
			for tablet := range tablets {
				vals := make([]int64, each)
				for i := range vals {
					vals[i] = c.value(tablet, i)
				}
				want = append(want, vals...)
				cursor := newMemCursor(t, []Operator{&memOp{schema: schema, batches: []*columnar.Batch{intBatch(vals...)}}}, top, budget)
				cursors = append(cursors, cursor)
				w.sources[planner.ExchangeID(tablet)] = cursor
				ops = append(ops, &planner.ExchangeSource{Exchange: planner.ExchangeID(tablet), Schema: publicSchema(schema)})
			}
			slices.SortFunc(want, func(a, b int64) int { return int(b - a) })
			root, err := Build(t.Context(), append(ops, top), &Env{Exchanges: w, Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			got := drain(t, root)
			if len(got) != k {
				t.Fatalf("%d rows", len(got))
			}
			for i, r := range got {
				if r[0] != want[i] {
					t.Fatalf("row %d is %v instead of %d", i, r, want[i])
				}
			}
			sent := 0
			for _, c := range cursors {
				sent += c.sent
			}
			if sent > c.most {
				t.Errorf("%d rows were sent, more than %d", sent, c.most)
			}
			mustBeEmpty(t, budget)
		})
	}
}

// scripted is a Cursor that sends what a test says.
type scripted struct {
	schema   *arrow.Schema
	portions [][]*columnar.Batch
	bounds   [][]byte
	newest   []byte
	failed   error // of Refill
	asked    []int
	closed   bool
}

func (s *scripted) Schema() *arrow.Schema   { return s.schema }
func (s *scripted) Close() error            { s.closed = true; return nil }
func (s *scripted) Unseen() ([]byte, error) { return s.newest, nil }

func (s *scripted) Next(context.Context) (*columnar.Batch, error) {
	if len(s.portions) == 0 {
		return nil, nil
	}
	b := s.portions[0][0]
	s.newest = nil
	if s.portions[0] = s.portions[0][1:]; len(s.portions[0]) == 0 {
		s.newest = s.bounds[0]
		s.portions, s.bounds = s.portions[1:], s.bounds[1:]
	}
	return b, nil
}

func (s *scripted) Refill(_ context.Context, rows int) error {
	s.asked = append(s.asked, rows)
	return s.failed
}

// keyOf is the sort key of an ascending bigint.
func keyOf(n int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{1}, uint64(n)^1<<63)
}

func one(vals ...int64) []*columnar.Batch { return []*columnar.Batch{intBatch(vals...)} }

// TestRefillFollowsBounds checks which inputs are asked for how much.
func TestRefillFollowsBounds(t *testing.T) {
	type input struct {
		portions [][]*columnar.Batch
		bounds   [][]byte
	}
	for _, c := range []struct {
		name   string
		k      int64
		inputs []input
		want   []int64
		asked  [][]int
	}{
		{"all are at their end", 2, []input{{[][]*columnar.Batch{one(1, 9)}, [][]byte{nil}}, {[][]*columnar.Batch{one(4)}, [][]byte{nil}}},
			[]int64{1, 4}, [][]int{nil, nil}},
		{"a bound behind the last winner", 2, []input{{[][]*columnar.Batch{one(1, 9)}, [][]byte{keyOf(10)}}, {[][]*columnar.Batch{one(4)}, [][]byte{nil}}},
			[]int64{1, 4}, [][]int{nil, nil}},
		{"a bound between the winners", 2, []input{{[][]*columnar.Batch{one(1), one(2)}, [][]byte{keyOf(2), nil}}, {[][]*columnar.Batch{one(4)}, [][]byte{nil}}},
			[]int64{1, 2}, [][]int{{1}, nil}},
		{"a bound that ties with the last winner", 2, []input{{[][]*columnar.Batch{one(1)}, [][]byte{keyOf(4)}}, {[][]*columnar.Batch{one(4)}, [][]byte{nil}}},
			[]int64{1, 4}, [][]int{nil, nil}},
		{"a bound that was cut short", 2, []input{{[][]*columnar.Batch{one(1), one(2)}, [][]byte{keyOf(2)[:8], nil}}, {[][]*columnar.Batch{one(4)}, [][]byte{nil}}},
			[]int64{1, 2}, [][]int{{2}, nil}},
		{"too few rows", 4, []input{{[][]*columnar.Batch{one(1, 2), one(8)}, [][]byte{keyOf(3), nil}}, {[][]*columnar.Batch{one(4)}, [][]byte{nil}}},
			[]int64{1, 2, 4, 8}, [][]int{{2}, nil}},
		{"several are asked", 3, []input{{[][]*columnar.Batch{one(1), one(2)}, [][]byte{keyOf(2), keyOf(7)}}, {[][]*columnar.Batch{one(4), one(5)}, [][]byte{keyOf(5), keyOf(6)}}},
			[]int64{1, 2, 4}, [][]int{{2}, {1}}},
		{"no rows at all", 3, []input{{}, {}}, nil, [][]int{nil, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema := opSchema(catalog.BigInt)
			var parts []Operator
			for _, in := range c.inputs {
				parts = append(parts, &scripted{schema: schema, portions: in.portions, bounds: in.bounds})
			}
			op := &planner.TopK{K: c.k, Keys: []planner.SortKey{{}}, First: min(c.k, 2), Refill: true}
			var got []int64
			for _, r := range drain(t, must(newRefill(parts, parts, op.Keys, op, &Env{}))) {
				got = append(got, r[0].(int64))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("rows %v instead of %v", got, c.want)
			}
			for i, p := range parts {
				if s := p.(*scripted); !slices.Equal(s.asked, c.asked[i]) || !s.closed {
					t.Errorf("input %d was asked for %v instead of %v, closed: %t", i, s.asked, c.asked[i], s.closed)
				}
			}
		})
	}
}

func TestRefillReportsBrokenProducers(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]*scripted{
		"no progress":      {portions: [][]*columnar.Batch{one(1), one()}, bounds: [][]byte{keyOf(2), keyOf(2)}},
		"lowered bound":    {portions: [][]*columnar.Batch{one(1), one(3)}, bounds: [][]byte{keyOf(3), keyOf(2)}},
		"row below bound":  {portions: [][]*columnar.Batch{one(1), one(2)}, bounds: [][]byte{keyOf(3), nil}},
		"too many rows":    {portions: [][]*columnar.Batch{one(1, 2, 3)}, bounds: [][]byte{nil}},
		"refill fails":     {portions: [][]*columnar.Batch{one(1), one(2)}, bounds: [][]byte{keyOf(2), nil}, failed: down},
		"nothing in first": {portions: [][]*columnar.Batch{one()}, bounds: [][]byte{keyOf(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			c.schema = opSchema(catalog.BigInt)
			parts := []Operator{&scripted{schema: c.schema}, c}
			op := &planner.TopK{K: 5, Keys: []planner.SortKey{{}}, First: 2, Refill: true}
			_, err := drainCtx(t.Context(), must(newRefill(parts, parts, op.Keys, op, &Env{})))
			var broken *RefillError
			switch {
			case c.failed != nil && !errors.Is(err, down):
				t.Errorf("error %v", err)
			case c.failed == nil && (!errors.As(err, &broken) || broken.Input != 1 || sqlstate.CodeOf(err) != sqlstate.InternalError):
				t.Errorf("error %v", err)
			}
			if !c.closed {
				t.Error("the producer is left open")
			}
		})
	}
}

// TestSortKeysRankSpecialValues holds the keys that travel as bounds to the order
// of values: numbers of every width, infinities, NaN and zeros of both signs.
func TestSortKeysRankSpecialValues(t *testing.T) {
	for _, desc := range []bool{false, true} {
		t.Run(fmt.Sprint("descending ", desc), func(t *testing.T) {
			for _, typ := range opTypes {
				g := newGenerator(11)
				keys := []planner.SortKey{{Descending: desc, NullsFirst: desc}}
				schema := opSchema(typ)
				rows := rowsOf(copied(&columnar.Batch{Len: 300, Cols: []*columnar.Vector{g.plain(typ, 300)}}))
				g = newGenerator(11)
				coder := must(newSortKeyCoder(schema, keys))
				var enc sortKeys
				if err := coder.encode(&enc, []*columnar.Vector{g.plain(typ, 300)}, nil, 300, (*Budget)(nil).workingAccount("test")); err != nil {
					t.Fatal(err)
				}
				for i := range 299 {
					byKey := slices.Compare(enc.key(i), enc.key(i+1))
					if want := compareRows(keys)(rows[i], rows[i+1]); byKey != want {
						t.Errorf("%s: %v and %v compare as %d instead of %d", typ, rows[i], rows[i+1], byKey, want)
					}
				}
			}
		})
	}
}
