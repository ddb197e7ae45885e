package planner

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// Schema is the projected columns of the table.
func (n *Scan) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs is empty.
func (n *Scan) Inputs() []Node { return nil }

// Schema is the input's.
func (n *Filter) Schema() *arrow.Schema { return n.Input.Schema() }

// Inputs is the one input.
func (n *Filter) Inputs() []Node { return []Node{n.Input} }

// Schema has one column per expression.
func (n *Project) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs is the one input.
func (n *Project) Inputs() []Node { return []Node{n.Input} }

// Schema is the group columns as in the input, then one column per call: a
// count is never NULL, nor is any value of a group if none is; other aggregates
// may be.
func (n *Aggregate) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs is the one input.
func (n *Aggregate) Inputs() []Node { return []Node{n.Input} }

// Schema is the left input's columns, then those that the kind of join adds.
func (n *Join) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs are the left and the right input.
func (n *Join) Inputs() []Node { return []Node{n.Left, n.Right} }

// Schema is the input's.
func (n *Sort) Schema() *arrow.Schema { return n.Input.Schema() }

// Inputs is the one input.
func (n *Sort) Inputs() []Node { return []Node{n.Input} }

// Schema is the input's.
func (n *Limit) Schema() *arrow.Schema { return n.Input.Schema() }

// Inputs is the one input.
func (n *Limit) Inputs() []Node { return []Node{n.Input} }

// Schema is the first branch's, columns nullable if they are in any branch.
func (n *Union) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs are the branches.
func (n *Union) Inputs() []Node { return n.Branches }

// Schema is the input's, then one column per call.
func (n *Window) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs is the one input.
func (n *Window) Inputs() []Node { return []Node{n.Input} }

// Schema is Fields.
func (n *Values) Schema() *arrow.Schema { return n.Fields }

// Inputs is empty.
func (n *Values) Inputs() []Node { return nil }

// outputFields is Schema().Fields() without building the schema's name index,
// which rewrites have no use for. The result must not be written to.
func outputFields(n Node) []arrow.Field {
	switch n := n.(type) {
	case *Scan:
		return scanFields(n.Table, n.Projection)
	case *Filter:
		return outputFields(n.Input)
	case *Sort:
		return outputFields(n.Input)
	case *Limit:
		return outputFields(n.Input)
	case *Project:
		return projectFields(n.Exprs, n.Names)
	case *Aggregate:
		return aggregateFields(outputFields(n.Input), n.GroupBy, n.Calls)
	case *Join:
		return joinFields(n.Kind, outputFields(n.Left), outputFields(n.Right))
	case *Union:
		branches := make([][]arrow.Field, len(n.Branches))
		for i, b := range n.Branches {
			branches[i] = outputFields(b)
		}
		return unionFields(branches)
	case *Window:
		return windowFields(outputFields(n.Input), n.Calls)
	case *Values:
		return n.Fields.Fields()
	case *With:
		return outputFields(n.Main)
	case *CommonScan:
		return n.fields()
	}
	return n.Schema().Fields()
}

func scanFields(table *catalog.Table, projection []int) []arrow.Field {
	fields := make([]arrow.Field, len(projection))
	for i, ordinal := range projection {
		c := ProjectedColumn(table, ordinal)
		fields[i] = arrow.Field{Name: c.Name, Type: c.Type, Nullable: c.Nullable}
	}
	return fields
}

func projectFields(exprs []Expr, names []string) []arrow.Field {
	fields := make([]arrow.Field, len(exprs))
	for i, e := range exprs {
		fields[i] = arrow.Field{Name: names[i], Type: e.Type(), Nullable: e.Nullable()}
	}
	return fields
}

func aggregateFields(in []arrow.Field, groupBy []int, calls []AggCall) []arrow.Field {
	fields := make([]arrow.Field, 0, len(groupBy)+len(calls))
	for _, g := range groupBy {
		fields = append(fields, in[g])
	}
	for _, c := range calls {
		// A group has a row, so there is a value if none may be NULL.
		value := c.Func == AnyValue && len(groupBy) > 0 && c.Arg < len(in) && !in[c.Arg].Nullable
		fields = append(fields, arrow.Field{Name: c.Name, Type: c.DataType, Nullable: c.Func != Count && !value})
	}
	return fields
}

// MarkColumn names the column that a mark join adds.
const MarkColumn = "mark"

// joinFields is the output of a join of the given kind.
func joinFields(kind JoinKind, left, right []arrow.Field) []arrow.Field {
	switch kind {
	case SemiJoin, AntiJoin:
		return left
	case MarkJoin:
		return append(append(make([]arrow.Field, 0, len(left)+1), left...),
			arrow.Field{Name: MarkColumn, Type: catalog.Boolean, Nullable: true})
	}
	fields := pairFields(left, right)
	for i := range fields {
		ofLeft := i < len(left)
		if ofLeft && (kind == RightJoin || kind == FullJoin) || !ofLeft && (kind == LeftJoin || kind == FullJoin || kind == SingleJoin) {
			fields[i].Nullable = true
		}
	}
	return fields
}

// pairFields is what the residual of a join reads: a row of each input.
func pairFields(left, right []arrow.Field) []arrow.Field {
	fields := make([]arrow.Field, 0, len(left)+len(right))
	return append(append(fields, left...), right...)
}

func unionFields(branches [][]arrow.Field) []arrow.Field {
	if len(branches) == 0 {
		return nil
	}
	fields := append([]arrow.Field(nil), branches[0]...)
	for _, b := range branches[1:] {
		for i := range fields {
			fields[i].Nullable = fields[i].Nullable || i < len(b) && b[i].Nullable
		}
	}
	return fields
}

func windowFields(in []arrow.Field, calls []WindowCall) []arrow.Field {
	fields := append(make([]arrow.Field, 0, len(in)+len(calls)), in...)
	for i := range calls {
		c := &calls[i]
		fields = append(fields, arrow.Field{Name: c.Name, Type: c.DataType, Nullable: c.nullable()})
	}
	return fields
}

// nullable reports whether a window call may be NULL.
func (c *WindowCall) nullable() bool {
	switch c.Func {
	case RowNumber, Rank, DenseRank, PercentRank, CumeDist, WindowFunc(Count):
		return false
	}
	return true
}

// PartialSchema is the output of a PartialAggregate over in: the group
// columns, then each call's state columns. A count is a bigint that is never
// NULL; a sum is accumulated in 128 bits (integers as decimal(38,0), decimals
// keep their scale) or as double; min and max keep the argument's type; an
// average is a sum and a count; a variance and a standard deviation are a
// count, a mean and the sum of squared differences from it.
// Every call must be Decomposable.
func PartialSchema(in *arrow.Schema, groupBy []int, calls []AggCall) *arrow.Schema {
	fields := make([]arrow.Field, 0, len(groupBy)+2*len(calls))
	for _, g := range groupBy {
		fields = append(fields, in.Field(g))
	}
	for i, c := range calls {
		name := fmt.Sprintf("__partial_%d", i)
		switch c.Func {
		case Count:
			fields = append(fields, arrow.Field{Name: name, Type: catalog.BigInt})
		case Sum:
			fields = append(fields, arrow.Field{Name: name, Type: SumState(in.Field(c.Arg).Type), Nullable: true})
		case Avg:
			fields = append(fields,
				arrow.Field{Name: name + "_sum", Type: SumState(in.Field(c.Arg).Type), Nullable: true},
				arrow.Field{Name: name + "_count", Type: catalog.BigInt})
		case StddevSamp, StddevPop, VarSamp, VarPop:
			fields = append(fields,
				arrow.Field{Name: name + "_count", Type: catalog.BigInt},
				arrow.Field{Name: name + "_mean", Type: catalog.Double},
				arrow.Field{Name: name + "_m2", Type: catalog.Double})
		default:
			fields = append(fields, arrow.Field{Name: name, Type: in.Field(c.Arg).Type, Nullable: true})
		}
	}
	return arrow.NewSchema(fields, nil)
}

// SumState is the type in which values of type dt are summed up.
func SumState(dt arrow.DataType) arrow.DataType {
	switch t := dt.(type) {
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return catalog.Decimal(catalog.MaxDecimalPrecision, 0)
	case *arrow.Decimal128Type:
		return catalog.Decimal(catalog.MaxDecimalPrecision, int(t.Scale))
	case *arrow.Float32Type, *arrow.Float64Type:
		return catalog.Double
	}
	return dt
}
