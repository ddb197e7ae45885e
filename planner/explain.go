package planner

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// ExplainLite prints a tree, one node a line, inputs indented below. The text
// is stable: it holds no ids that change between runs.
func ExplainLite(root Node) string {
	var b strings.Builder
	explainNode(&b, root, 0)
	return b.String()
}

func explainNode(b *strings.Builder, n Node, depth int) {
	b.WriteString(strings.Repeat("  ", depth))
	b.WriteString(nodeLine(n))
	b.WriteByte('\n')
	for _, in := range n.Inputs() {
		explainNode(b, in, depth+1)
	}
}

func nodeLine(n Node) string {
	switch n := n.(type) {
	case *Scan:
		s := "Scan " + scanTarget(n.Table, n.Projection, n.Filter)
		if n.Alias != "" && n.Alias != n.Table.Name {
			s = "Scan " + catalog.QuoteIdent(n.Alias) + " = " + s[len("Scan "):]
		}
		return s
	case *Filter:
		return "Filter " + n.Predicate.String()
	case *Project:
		return "Project " + projection(n.Exprs, n.Names)
	case *Aggregate:
		return "Aggregate " + aggregation(outputFields(n.Input), n.GroupBy, n.Calls)
	case *Join:
		return fmt.Sprintf("Join %s%s", n.Kind, joinCondition(outputFields(n.Left), outputFields(n.Right), n.On, n.Residual))
	case *Union:
		return fmt.Sprintf("Union of %d", len(n.Branches))
	case *Window:
		return "Window " + windowText(outputFields(n.Input), n.PartitionBy, n.OrderBy, n.Calls)
	case *Sort:
		return "Sort " + sortOrder(outputFields(n.Input), n.Keys) + limitSuffix(n.Limit)
	case *Limit:
		return limitText(n.Limit, n.Offset)
	case *Values:
		return fmt.Sprintf("Values [%s] %d rows", fieldNames(n.Fields.Fields()), len(n.Rows))
	case *With:
		return fmt.Sprintf("With %s", commonNames(n.Commons))
	case *CommonScan:
		return fmt.Sprintf("CommonScan %s [%s]", commonName(n.ID, n.Name), fieldNames(n.fields()))
	case *Recursive:
		if n.Distinct {
			return fmt.Sprintf("Recursive %s distinct", commonName(n.ID, n.Name))
		}
		return fmt.Sprintf("Recursive %s", commonName(n.ID, n.Name))
	case *WorkingScan:
		return fmt.Sprintf("WorkingScan %s [%s]", commonName(n.ID, n.Name), fieldNames(n.Fields.Fields()))
	}
	return fmt.Sprintf("%T", n)
}

// commonName names a common table: its own name, or a number if it has none.
func commonName(id CommonID, name string) string {
	if name == "" {
		return fmt.Sprintf("#%d", id)
	}
	return catalog.QuoteIdent(name)
}

// commonNames lists common tables in the order in which their plans follow.
func commonNames(commons []*Common) string {
	list := make([]string, len(commons))
	for i, c := range commons {
		list[i] = commonName(c.ID, c.Name)
	}
	return strings.Join(list, ", ")
}

// Explain prints a plan fragment by fragment: where it runs, what it is
// expected to yield, its operators, and where its output goes.
func Explain(p *Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Plan: %d fragments, %d exchanges, metadata version %d\n", len(p.Fragments), len(p.Exchanges), p.MetadataVersion)
	for _, f := range p.Fragments {
		p.explainFragment(&b, f)
	}
	return b.String()
}

func (p *Plan) explainFragment(b *strings.Builder, f *Fragment) {
	where := "coordinator"
	if f.Assignment != Coordinator {
		where = fmt.Sprintf("tablet %d", f.Assignment.Tablet)
	}
	fmt.Fprintf(b, "Fragment %d on %s: %d rows, %d bytes, spill up to %d bytes\n",
		f.ID, where, f.EstimatedRows, f.EstimatedBytes, f.MaxSpill)
	// A stack that does not work out is cut short here; ValidatePlan says why.
	_, _ = runStack(f.Operators, func(op Operator, stack []*arrow.Schema) {
		fmt.Fprintf(b, "  %s\n", p.operatorLine(op, stack))
	})
}

func (p *Plan) operatorLine(op Operator, stack []*arrow.Schema) string {
	top := func(depth int) []arrow.Field {
		if len(stack) < depth {
			return nil
		}
		return stack[len(stack)-depth].Fields()
	}
	switch op := op.(type) {
	case *TabletScan:
		return fmt.Sprintf("TabletScan of tablet %d, %s", op.Tablet, scanTarget(op.Table, op.Projection, op.Filter))
	case *ValuesSource:
		return fmt.Sprintf("Values [%s] %d rows", fieldNames(op.Schema.Fields()), len(op.Rows))
	case *ExchangeSource:
		return fmt.Sprintf("ExchangeSource input %d%s", op.Input, p.edgeText(op.Exchange, false))
	case *ExchangeSink:
		return "ExchangeSink" + p.edgeText(op.Exchange, true)
	case *FilterOp:
		return "Filter " + op.Predicate.String()
	case *ProjectOp:
		return "Project " + projection(op.Exprs, names(op.Schema.Fields()))
	case *PartialAggregate:
		return "PartialAggregate " + aggregation(top(1), op.GroupBy, op.Calls)
	case *FinalAggregate:
		return "FinalAggregate [" + fieldNames(op.Schema.Fields()) + "]"
	case *CompleteAggregate:
		return "CompleteAggregate " + aggregation(top(1), op.GroupBy, op.Calls)
	case *WindowOp:
		return "Window " + windowText(top(1), op.PartitionBy, op.OrderBy, op.Calls)
	case *UnionAll:
		return fmt.Sprintf("UnionAll of %d", op.Inputs)
	case *HashJoin:
		return fmt.Sprintf("HashJoin %s %s build %s%s", op.Strategy, op.Kind, op.Build, joinCondition(top(2), top(1), op.On, op.Residual))
	case *MergeSort:
		return "MergeSort " + sortOrder(top(1), op.Keys) + limitSuffix(op.Limit)
	case *TopK:
		text := fmt.Sprintf("TopK %d by %s", op.K, sortOrder(top(1), op.order()))
		if op.First > 0 && op.First < op.K {
			text += fmt.Sprintf(", %d at first", op.First)
		}
		return text
	case *LimitOp:
		return limitText(op.Limit, op.Offset)
	case *StoredSource:
		if op.Index == 0 {
			return "StoredSource last round"
		}
		return fmt.Sprintf("StoredSource input %d", op.Index)
	case *RecursiveOp:
		return p.recursionText(op)
	}
	return fmt.Sprintf("%T", op)
}

// recursionText prints a recursion and, indented below, the operators of a
// round.
func (p *Plan) recursionText(op *RecursiveOp) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Recursive %s of %d inputs", catalog.QuoteIdent(op.Name), op.Inputs)
	if op.Distinct {
		b.WriteString(" distinct")
	}
	_, _ = runStack(op.Step, func(step Operator, stack []*arrow.Schema) {
		fmt.Fprintf(&b, "\n    %s", p.operatorLine(step, stack))
	})
	return b.String()
}

// edgeText prints an exchange as seen from one of its ends.
func (p *Plan) edgeText(id ExchangeID, fromProducer bool) string {
	if int(id) >= len(p.Exchanges) {
		return fmt.Sprintf(" #%d", id)
	}
	x := p.Exchanges[id]
	s := fmt.Sprintf(" #%d %s", id, x.Kind)
	if x.Kind == HashRepartitionExchange {
		keys := make([]string, len(x.Keys))
		for i, k := range x.Keys {
			keys[i] = columnName(x.Schema.Fields(), k)
		}
		s += fmt.Sprintf("(%s) part %d/%d", strings.Join(keys, ", "), x.Partition, x.Partitions)
	}
	if fromProducer {
		return s + fmt.Sprintf(" -> fragment %d", x.Consumer)
	}
	return s + fmt.Sprintf(" <- fragment %d", x.Producer)
}

func scanTarget(t *catalog.Table, columns []int, filter Expr) string {
	s := catalog.QuoteIdent(t.Name) + " [" + fieldNames(scanFields(t, columns)) + "]"
	if filter != nil {
		s += " where " + filter.String()
	}
	return s
}

func projection(exprs []Expr, as []string) string {
	parts := make([]string, len(exprs))
	for i, e := range exprs {
		parts[i] = e.String()
		if name := catalog.QuoteIdent(as[i]); name != parts[i] {
			parts[i] += " as " + name
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func aggregation(in []arrow.Field, groupBy []int, calls []AggCall) string {
	parts := make([]string, len(calls))
	for i, c := range calls {
		parts[i] = callText(in, &c)
	}
	s := "[" + strings.Join(parts, ", ") + "]"
	if len(groupBy) == 0 {
		return s
	}
	groups := make([]string, len(groupBy))
	for i, g := range groupBy {
		groups[i] = columnName(in, g)
	}
	return s + " by " + strings.Join(groups, ", ")
}

func callText(in []arrow.Field, c *AggCall) string {
	arg := "*"
	if c.Arg >= 0 {
		arg = columnName(in, c.Arg)
	}
	if c.Distinct {
		arg = "distinct " + arg
	}
	for _, a := range c.Args {
		arg += ", " + columnName(in, a)
	}
	if len(c.OrderBy) > 0 {
		arg += " order by " + sortOrder(in, c.OrderBy)
	}
	return fmt.Sprintf("%s(%s)", c.Func, arg)
}

func windowText(in []arrow.Field, partitionBy []int, orderBy []SortKey, calls []WindowCall) string {
	parts := make([]string, len(calls))
	for i := range calls {
		c := &calls[i]
		args := make([]string, len(c.Args))
		for k, a := range c.Args {
			args[k] = columnName(in, a)
		}
		if len(args) == 0 && c.Func == WindowFunc(Count) {
			args = []string{"*"}
		}
		parts[i] = fmt.Sprintf("%s(%s)%s", c.Func, strings.Join(args, ", "), frameText(c.Frame))
	}
	s := "[" + strings.Join(parts, ", ") + "]"
	if len(partitionBy) > 0 {
		columns := make([]string, len(partitionBy))
		for i, c := range partitionBy {
			columns[i] = columnName(in, c)
		}
		s += " partition by " + strings.Join(columns, ", ")
	}
	if len(orderBy) > 0 {
		s += " order by " + sortOrder(in, orderBy)
	}
	return s
}

// frameText prints a frame unless it is the default one.
func frameText(f Frame) string {
	if f.Mode == "" || f == DefaultFrame() {
		return ""
	}
	s := fmt.Sprintf(" %s between %s and %s", f.Mode, boundText(f.Start), boundText(f.End))
	if f.Exclude != ExcludeNothing {
		s += " exclude " + string(f.Exclude)
	}
	return s
}

func boundText(b FrameBound) string {
	if b.Offset == nil {
		return string(b.Kind)
	}
	return b.Offset.String() + " " + string(b.Kind)
}

func joinCondition(left, right []arrow.Field, on []JoinKey, residual Expr) string {
	var parts []string
	for _, k := range on {
		op := " = "
		if k.NullSafe {
			op = " is not distinct from "
		}
		parts = append(parts, columnName(left, k.Left)+op+columnName(right, k.Right))
	}
	if residual != nil {
		parts = append(parts, operand(residual, precAnd))
	}
	if len(parts) == 0 {
		return ""
	}
	return " on " + strings.Join(parts, " and ")
}

func sortOrder(in []arrow.Field, keys []SortKey) string {
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = columnName(in, k.Column)
		if k.Descending {
			parts[i] += " desc"
		}
		switch {
		case k.NullsFirst == k.Descending: // the default of the direction
		case k.NullsFirst:
			parts[i] += " nulls first"
		default:
			parts[i] += " nulls last"
		}
	}
	return strings.Join(parts, ", ")
}

func limitSuffix(limit int64) string {
	if limit < 0 {
		return ""
	}
	return fmt.Sprintf(" limit %d", limit)
}

func limitText(limit, offset int64) string {
	s := "Limit all"
	if limit >= 0 {
		s = fmt.Sprintf("Limit %d", limit)
	}
	if offset > 0 {
		s += fmt.Sprintf(" offset %d", offset)
	}
	return s
}

func columnName(fields []arrow.Field, i int) string {
	if i < 0 || i >= len(fields) || fields[i].Name == "" {
		return fmt.Sprintf("#%d", i)
	}
	return catalog.QuoteIdent(fields[i].Name)
}

func names(fields []arrow.Field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.Name
	}
	return out
}

func fieldNames(fields []arrow.Field) string {
	out := make([]string, len(fields))
	for i := range fields {
		out[i] = columnName(fields, i)
	}
	return strings.Join(out, ", ")
}
