package planner

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// maxPrunedKeys bounds the combinations of constants that are looked up.
const maxPrunedKeys = 256

// pruneTablets drops the tablets that cannot hold a row for which the scan's
// filter is true. At least one tablet is left.
func pruneTablets(n *Scan, tablets []catalog.Tablet, partitioning catalog.Partitioning) []catalog.Tablet {
	if n.Filter == nil || len(tablets) < 2 || len(partitioning.Columns) == 0 {
		return tablets
	}
	conds := conjuncts(n.Filter)
	var keep func(*catalog.Tablet) bool
	switch partitioning.Kind {
	case catalog.Hash, catalog.Tenant:
		keep = bucketFilter(n, conds, partitioning)
	case catalog.Range, catalog.TimeRange:
		keep = rangeFilter(n, conds, partitioning)
	}
	if keep == nil {
		return tablets
	}
	var kept []catalog.Tablet
	for i := range tablets {
		if keep(&tablets[i]) {
			kept = append(kept, tablets[i])
		}
	}
	if len(kept) == 0 {
		return tablets[:1]
	}
	return kept
}

// bucketFilter keeps the owners of the buckets that the partition columns'
// constants hash to; nil unless every partition column is fixed.
func bucketFilter(n *Scan, conds []Expr, partitioning catalog.Partitioning) func(*catalog.Tablet) bool {
	if partitioning.Buckets == 0 {
		return nil
	}
	keys := [][]byte{nil}
	for _, ordinal := range partitioning.Columns {
		values := fixedValues(n, conds, ordinal)
		if len(values) == 0 || len(keys)*len(values) > maxPrunedKeys {
			return nil
		}
		var longer [][]byte
		for _, key := range keys {
			for _, v := range values {
				k, err := catalog.AppendKeyValue(bytes.Clone(key), n.Table.Columns[ordinal].Type, v.Value)
				if err != nil {
					return nil // such a value is the scan's to report
				}
				longer = append(longer, k)
			}
		}
		keys = longer
	}
	return func(t *catalog.Tablet) bool {
		for _, k := range keys {
			if b := catalog.HashBucket(k, partitioning.Buckets); b >= t.BucketLow && b < t.BucketHigh {
				return true
			}
		}
		return false
	}
}

// rangeFilter keeps the tablets that overlap the key interval that the
// conditions leave: equalities on leading columns, then bounds on the next.
func rangeFilter(n *Scan, conds []Expr, partitioning catalog.Partitioning) func(*catalog.Tablet) bool {
	var prefix, low, high []byte
	bounded := false
	for _, ordinal := range partitioning.Columns {
		dt := n.Table.Columns[ordinal].Type
		if values := fixedValues(n, conds, ordinal); len(values) == 1 {
			key, err := catalog.AppendKeyValue(prefix, dt, values[0].Value)
			if err != nil {
				return nil
			}
			prefix, bounded = key, true
			continue
		}
		low, high = columnBounds(n, conds, ordinal, prefix)
		break
	}
	if low == nil {
		low = prefix
	}
	if high == nil {
		high = catalog.KeySuccessor(prefix)
	} else {
		bounded = true
	}
	if !bounded && len(low) == 0 {
		return nil
	}
	return func(t *catalog.Tablet) bool {
		return (len(high) == 0 || bytes.Compare(t.KeyLow, high) < 0) &&
			(len(t.KeyHigh) == 0 || bytes.Compare(t.KeyHigh, low) > 0)
	}
}

// columnBounds are the tightest inclusive lower and exclusive upper keys that
// comparisons of a column with constants give, behind a prefix; nil for none.
func columnBounds(n *Scan, conds []Expr, ordinal int, prefix []byte) (low, high []byte) {
	for _, c := range conds {
		op, lit, ok := comparison(n, c, ordinal)
		if !ok || lit.Value == nil {
			continue
		}
		key, err := catalog.AppendKeyValue(bytes.Clone(prefix), n.Table.Columns[ordinal].Type, lit.Value)
		if err != nil {
			continue
		}
		switch op {
		case ">", ">=": // a key equal to an exclusive bound is harmless
			if low == nil || bytes.Compare(key, low) > 0 {
				low = key
			}
		case "<=":
			key = catalog.KeySuccessor(key)
			fallthrough
		case "<":
			if key != nil && (high == nil || bytes.Compare(key, high) < 0) {
				high = key
			}
		}
	}
	return low, high
}

// fixedValues are the constants that the conditions allow for a column of the
// table: of an equality or an IN list; none when it is not fixed.
func fixedValues(n *Scan, conds []Expr, ordinal int) []*Literal {
	for _, c := range conds {
		if op, lit, ok := comparison(n, c, ordinal); ok && op == "=" && lit.Value != nil {
			return []*Literal{lit}
		}
	}
	for _, c := range conds {
		in, ok := c.(*InList)
		if !ok || in.Negate || !readsColumn(n, in.Arg, ordinal) {
			continue
		}
		var values []*Literal
		for _, l := range in.List {
			if !comparableConstant(n.Table.Columns[ordinal].Type, l) {
				return nil
			}
			if l.Value != nil { // NULL matches nothing
				values = append(values, l)
			}
		}
		return values
	}
	return nil
}

// comparison recognises "column op constant" and "constant op column" for one
// column of the table.
func comparison(n *Scan, e Expr, ordinal int) (op string, lit *Literal, ok bool) {
	c, is := e.(*Call)
	if !is || len(c.Args) != 2 {
		return "", nil, false
	}
	switch c.Func {
	case "=", "<", "<=", ">", ">=":
	default:
		return "", nil, false
	}
	op = c.Func
	column, constant := c.Args[0], c.Args[1]
	if _, flipped := column.(*Literal); flipped {
		column, constant, op = constant, column, flipComparison(op)
	}
	lit, is = constant.(*Literal)
	if !is || !readsColumn(n, column, ordinal) || !comparableConstant(n.Table.Columns[ordinal].Type, lit) {
		return "", nil, false
	}
	return op, lit, true
}

func readsColumn(n *Scan, e Expr, ordinal int) bool {
	c, ok := e.(*Column)
	return ok && n.Projection[c.Index] == ordinal
}

// comparableConstant reports whether a literal's value means the same in the
// column's type, so that its key is that of equal column values.
func comparableConstant(column arrow.DataType, l *Literal) bool {
	return l.Value == nil || sameKeyType(column, l.DataType)
}
