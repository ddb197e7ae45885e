package planner

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// estimate is the expected size of a stream of rows.
//
// Base and fraction remember where rows came from: a filter leaves base and
// lowers fraction, so that a join of a filtered table with one that refers to
// it keeps the same share of the referring rows.
type estimate struct {
	rows     uint64
	bytes    uint64
	base     uint64
	fraction float64
	columns  []columnEstimate // one per output column
}

// columnEstimate describes the values of an output column.
type columnEstimate struct {
	distinct uint64  // 0: unknown
	nulls    float64 // share of NULLs, negative: unknown
	min, max any     // nil: unknown; literal form
	width    float64 // bytes per value
}

// typeWidth is the assumed bytes per value of a type without statistics.
func typeWidth(dt arrow.DataType) float64 {
	switch t := catalog.PhysicalType(dt).(type) {
	case *arrow.BooleanType:
		return 1
	case arrow.FixedWidthDataType:
		return float64(t.Bytes())
	}
	return 24
}

// scanEstimate is the estimate of a whole table, all rows of the projected
// columns. The table's bytes are shared out by column width, so a scan of all
// columns has exactly the table's bytes.
func scanEstimate(table *catalog.Table, projection []int, stats TableStats) estimate {
	known := len(stats.Columns) == len(table.Columns)
	widths := make([]float64, len(table.Columns))
	var total, kept float64
	for i, c := range table.Columns {
		widths[i] = typeWidth(c.Type)
		if known && stats.Columns[i].Width > 0 {
			widths[i] = stats.Columns[i].Width
		}
		total += widths[i]
	}
	e := estimate{rows: stats.Rows, base: stats.Rows, fraction: 1, columns: make([]columnEstimate, len(projection))}
	for i, ordinal := range projection {
		if ordinal < 0 { // row ids differ, tablets hardly
			kept += typeWidth(catalog.BigInt)
			e.columns[i] = columnEstimate{width: typeWidth(catalog.BigInt)}
			if ordinal == RowIDColumn {
				e.columns[i].distinct = stats.Rows
			}
			continue
		}
		kept += widths[ordinal]
		c := columnEstimate{width: widths[ordinal], nulls: -1}
		if known {
			s := &stats.Columns[ordinal]
			c.distinct, c.min, c.max = s.Distinct, s.Min, s.Max
			if stats.Rows > 0 {
				c.nulls = float64(s.Nulls) / float64(stats.Rows)
			}
		}
		if !table.Columns[ordinal].Nullable {
			c.nulls = 0
		}
		if len(table.PrimaryKey) == 1 && table.PrimaryKey[0] == ordinal {
			c.distinct = stats.Rows
		}
		e.columns[i] = c
	}
	switch {
	case stats.Bytes == 0:
		e.bytes = toCount(kept * float64(stats.Rows))
	case len(projection) == len(table.Columns) || total == 0:
		e.bytes = stats.Bytes
	default:
		e.bytes = toCount(float64(stats.Bytes) * kept / total)
	}
	return e
}

// filtered keeps a share of the rows.
func (e estimate) filtered(predicate Expr) estimate {
	if predicate == nil {
		return e
	}
	s := selectivity(predicate, e.columns)
	rows := scaled(e.rows, s)
	e.bytes = scaledBytes(e.bytes, e.rows, rows)
	e.rows = rows
	e.fraction *= s
	return e
}

// projected computes expressions over the rows.
func (e estimate) projected(exprs []Expr) estimate {
	columns := make([]columnEstimate, len(exprs))
	same := len(exprs) == len(e.columns)
	var width float64
	for i, x := range exprs {
		if c, ok := x.(*Column); ok {
			columns[i] = e.columns[c.Index]
			same = same && c.Index == i
		} else {
			columns[i] = columnEstimate{width: typeWidth(x.Type()), nulls: -1}
			same = false
		}
		width += columns[i].width
	}
	if !same {
		e.bytes = toCount(float64(e.rows) * width * e.density())
	}
	e.columns = columns
	return e
}

// density is the ratio of the row's real size to the sum of its columns'
// assumed widths.
func (e estimate) density() float64 {
	var width float64
	for _, c := range e.columns {
		width += c.width
	}
	if width == 0 || e.rows == 0 || e.bytes == 0 {
		return 1
	}
	return float64(e.bytes) / (float64(e.rows) * width)
}

// aggregated groups the rows: half of them stay when nothing is known of the
// group columns, one row when there are none.
func (e estimate) aggregated(groupBy []int, calls []AggCall) estimate {
	rows := uint64(1)
	if len(groupBy) > 0 {
		rows = max(e.rows/2, 1)
		if groups, ok := e.groups(groupBy); ok {
			rows = max(min(groups, e.rows), 1)
		}
	}
	perRow := max(e.bytes/max(e.rows, 1), 1)
	out := estimate{rows: rows, bytes: saturatingMul(rows, perRow), base: rows, fraction: 1}
	for _, g := range groupBy {
		c := e.columns[g]
		c.distinct = min(c.distinct, rows)
		if len(groupBy) == 1 {
			c.distinct = rows
		}
		out.columns = append(out.columns, c)
	}
	for _, c := range calls {
		out.columns = append(out.columns, columnEstimate{width: typeWidth(c.DataType), nulls: -1})
	}
	return out
}

// groups multiplies the distinct values of the group columns, if all are known.
func (e estimate) groups(groupBy []int) (uint64, bool) {
	groups := uint64(1)
	for _, g := range groupBy {
		if e.columns[g].distinct == 0 {
			return 0, false
		}
		groups = saturatingMul(groups, e.columns[g].distinct)
	}
	return groups, true
}

// limited keeps at most limit rows after offset (-1: all).
func (e estimate) limited(limit, offset int64) estimate {
	if limit < 0 && offset <= 0 {
		return e
	}
	rows := e.rows - min(e.rows, uint64(max(offset, 0)))
	if limit >= 0 {
		rows = min(rows, uint64(limit))
	}
	e.bytes = scaledBytes(e.bytes, e.rows, rows)
	e.rows, e.base, e.fraction = rows, rows, 1
	return e
}

// joined pairs the rows of e with those of r. Where distinct counts of a key
// are known the usual containment assumption holds; else every row of the
// larger input finds one partner, less what filters have removed.
func (e estimate) joined(r estimate, on []JoinKey, residual Expr) estimate {
	out := estimate{fraction: 1, columns: append(append(make([]columnEstimate, 0, len(e.columns)+len(r.columns)), e.columns...), r.columns...)}
	divisor, known := 1.0, false
	for _, k := range on {
		if d := max(e.columns[k.Left].distinct, r.columns[k.Right].distinct); d > 0 {
			divisor *= float64(d)
			known = true
		}
	}
	switch {
	case len(on) == 0:
		out.rows = saturatingMul(e.rows, r.rows)
	case known:
		if len(on) > 1 {
			// Combinations of keys are no more than the rows that hold them.
			divisor = min(divisor, float64(max(min(e.base, r.base), 1)))
		}
		out.rows = scaled(max(e.rows, r.rows), float64(min(e.rows, r.rows))/divisor)
	default:
		out.rows = scaled(max(e.base, r.base), e.fraction*r.fraction)
	}
	out.base = max(e.base, r.base, out.rows)
	if out.base > 0 {
		out.fraction = float64(out.rows) / float64(out.base)
	}
	out.bytes = saturatingMul(out.rows, e.rowBytes()+r.rowBytes())
	return out.filtered(residual)
}

// joinedAs is the output of a join of any kind.
func (e estimate) joinedAs(kind JoinKind, r estimate, on []JoinKey, residual Expr) estimate {
	inner := e.joined(r, on, residual)
	switch kind {
	case SemiJoin, AntiJoin:
		share := e.matchedShare(r, on, residual, inner)
		if kind == AntiJoin {
			share = max(1-share, 0.05)
		}
		return e.share(share)
	case MarkJoin:
		out := e
		out.columns = append(append([]columnEstimate(nil), e.columns...), columnEstimate{distinct: 3, nulls: -1, width: 1})
		return out
	case LeftJoin:
		return inner.atLeast(e.rows)
	case SingleJoin:
		return inner.atLeast(e.rows).limited(int64(min(e.rows, math.MaxInt64)), 0)
	case RightJoin:
		return inner.atLeast(r.rows)
	case FullJoin:
		return inner.atLeast(saturatingAdd(e.rows, r.rows) / 2).atLeast(e.rows).atLeast(r.rows)
	}
	return inner
}

// matchedShare is the share of e's rows that have a match in r.
func (e estimate) matchedShare(r estimate, on []JoinKey, residual Expr, inner estimate) float64 {
	if len(on) == 0 && residual == nil {
		if r.rows == 0 {
			return 0
		}
		return 1
	}
	share := 0.5
	for _, k := range on {
		left, right := e.columns[k.Left].distinct, min(r.columns[k.Right].distinct, r.rows)
		if left == 0 {
			continue
		}
		if right == 0 {
			right = r.rows
		}
		share = min(share, float64(right)/float64(left))
	}
	if e.rows > 0 {
		share = min(share, float64(inner.rows)/float64(e.rows))
	}
	return clampShare(share)
}

// share keeps a share of the rows.
func (e estimate) share(s float64) estimate {
	rows := scaled(e.rows, s)
	e.bytes = scaledBytes(e.bytes, e.rows, rows)
	e.rows = rows
	e.fraction *= s
	return e
}

// atLeast is an estimate of at least so many rows.
func (e estimate) atLeast(rows uint64) estimate {
	if e.rows >= rows {
		return e
	}
	if e.rows == 0 {
		var width float64
		for _, c := range e.columns {
			width += c.width
		}
		e.bytes = toCount(width * float64(rows))
	} else {
		e.bytes = scaledBytes(e.bytes, e.rows, rows)
	}
	e.rows, e.base, e.fraction = rows, max(e.base, rows), 1
	return e
}

// unioned is all rows of several inputs.
func unioned(branches []estimate) estimate {
	out := branches[0]
	out.columns = append([]columnEstimate(nil), out.columns...)
	for _, b := range branches[1:] {
		out.rows, out.bytes = saturatingAdd(out.rows, b.rows), saturatingAdd(out.bytes, b.bytes)
		for i := range out.columns {
			c, d := &out.columns[i], &b.columns[i]
			c.distinct = max(c.distinct, d.distinct)
			c.min, c.max, c.nulls = nil, nil, -1
		}
	}
	out.base, out.fraction = out.rows, 1
	return out
}

// windowed adds the results of window calls.
func (e estimate) windowed(calls []WindowCall) estimate {
	perRow := e.rowBytes()
	e.columns = append([]columnEstimate(nil), e.columns...)
	for _, c := range calls {
		w := typeWidth(c.DataType)
		perRow += uint64(w)
		e.columns = append(e.columns, columnEstimate{width: w, nulls: -1})
	}
	e.bytes = saturatingMul(e.rows, perRow)
	return e
}

// plain reports that nothing but table sizes is known of a join's inputs.
func plainJoin(l, r estimate, on []JoinKey, residual Expr) bool {
	if residual != nil || len(on) == 0 || l.fraction != 1 || r.fraction != 1 {
		return false
	}
	for _, k := range on {
		if l.columns[k.Left].distinct > 0 || r.columns[k.Right].distinct > 0 {
			return false
		}
	}
	return true
}

func (e estimate) rowBytes() uint64 {
	if e.rows == 0 {
		return 0
	}
	return ceilDiv(e.bytes, e.rows)
}

// scaledBytes scales a byte estimate from rows to newRows.
func scaledBytes(bytes, rows, newRows uint64) uint64 {
	if rows == 0 {
		return 0
	}
	return saturatingMul(bytes, newRows) / rows
}

// scaled is the share s of n, at least 1 for a non-empty n.
func scaled(n uint64, s float64) uint64 {
	if n == 0 {
		return 0
	}
	return max(toCount(math.Ceil(float64(n)*s)), 1)
}

func ceilDiv(a, b uint64) uint64 {
	if b == 0 {
		return a
	}
	return a/b + min(a%b, 1)
}

func saturatingMul(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}

func saturatingAdd(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func toCount(f float64) uint64 {
	switch {
	case !(f > 0):
		return 0
	case f >= math.MaxUint64:
		return math.MaxUint64
	}
	return uint64(f)
}

// estimator sizes nodes from table statistics.
type estimator struct {
	metadata Metadata // nil: nothing is known
	tables   map[catalog.TableID]TableStats
	commons  map[CommonID]estimate // and working tables
}

func newEstimator(metadata Metadata) *estimator {
	return &estimator{metadata: metadata, tables: make(map[catalog.TableID]TableStats), commons: make(map[CommonID]estimate)}
}

func (s *estimator) stats(table *catalog.Table) (TableStats, error) {
	if s.metadata == nil {
		return TableStats{}, nil
	}
	if known, ok := s.tables[table.ID]; ok {
		return known, nil
	}
	stats, err := s.metadata.TableStats(table)
	if err == nil {
		s.tables[table.ID] = stats
	}
	return stats, err
}

// node estimates the output of a subtree.
func (s *estimator) node(n Node) (estimate, error) {
	switch n := n.(type) {
	case *Scan:
		stats, err := s.stats(n.Table)
		if err != nil {
			return estimate{}, err
		}
		return scanEstimate(n.Table, n.Projection, stats).filtered(n.Filter), nil
	case *Values:
		return valuesEstimate(n), nil
	case *Join:
		left, err := s.node(n.Left)
		if err != nil {
			return estimate{}, err
		}
		right, err := s.node(n.Right)
		if err != nil {
			return estimate{}, err
		}
		return left.joinedAs(n.Kind, right, n.On, n.Residual), nil
	case *Union:
		branches := make([]estimate, len(n.Branches))
		for i, b := range n.Branches {
			var err error
			if branches[i], err = s.node(b); err != nil {
				return estimate{}, err
			}
		}
		return unioned(branches), nil
	case *With:
		if err := s.addCommons(n); err != nil {
			return estimate{}, err
		}
		return s.node(n.Main)
	case *CommonScan:
		return s.commons[n.ID].selected(n), nil
	case *Recursive:
		seed, err := s.node(n.Seed)
		return seed.repeated(n.Fields), err
	case *WorkingScan:
		if known, ok := s.commons[n.ID]; ok {
			return known, nil
		}
		return estimate{}.repeated(n.Fields), nil
	}
	inputs := n.Inputs()
	if len(inputs) != 1 {
		return estimate{}, invalid("%T cannot be estimated", n)
	}
	in, err := s.node(inputs[0])
	if err != nil {
		return estimate{}, err
	}
	switch n := n.(type) {
	case *Filter:
		return in.filtered(n.Predicate), nil
	case *Project:
		return in.projected(n.Exprs), nil
	case *Aggregate:
		return in.aggregated(n.GroupBy, n.Calls), nil
	case *Window:
		return in.windowed(n.Calls), nil
	case *Sort:
		return in.limited(n.Limit, 0), nil
	case *Limit:
		return in.limited(n.Limit, n.Offset), nil
	}
	return estimate{}, invalid("%T cannot be estimated", n)
}

// valuesEstimate counts the rows there are.
func valuesEstimate(n *Values) estimate {
	rows := uint64(len(n.Rows))
	est := estimate{rows: rows, base: rows, fraction: 1}
	var width float64
	for _, f := range n.Fields.Fields() {
		w := typeWidth(f.Type)
		est.columns = append(est.columns, columnEstimate{distinct: rows, nulls: -1, width: w})
		width += w
	}
	est.bytes = toCount(float64(rows) * width)
	return est
}

// selected is the estimate of a common table's columns that a scan reads.
func (e estimate) selected(n *CommonScan) estimate {
	exprs := make([]Expr, len(n.Columns))
	fields := n.Fields.Fields()
	for i, c := range n.Columns {
		exprs[i] = columnOf(fields, c)
	}
	if len(e.columns) != len(fields) {
		e = estimate{}.repeated(n.Fields)
	}
	return e.projected(exprs)
}

// roundsOfRecursion is how many times the rows of its seed a recursion is
// thought to yield.
const roundsOfRecursion = 10

// repeated is a recursion's output, given that of its seed.
func (e estimate) repeated(schema *arrow.Schema) estimate {
	out := estimate{rows: max(saturatingMul(e.rows, roundsOfRecursion), roundsOfRecursion), fraction: 1}
	out.base = out.rows
	var width float64
	for _, f := range schema.Fields() {
		w := typeWidth(f.Type)
		out.columns = append(out.columns, columnEstimate{nulls: -1, width: w})
		width += w
	}
	out.bytes = toCount(float64(out.rows) * width)
	return out
}
