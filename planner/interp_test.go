package planner

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// A row-at-a-time interpreter of trees and of distributed plans. It is as
// plain as possible, so that both can be compared with what rewriting and
// distributing make of them. Values are nil, int64, float64, bool and string.

type row []any

type database map[string][]row // by table name

func evalExpr(e Expr, r row) any {
	switch e := e.(type) {
	case *Column:
		return r[e.Index]
	case *Literal:
		return e.Value
	case *Case:
		for _, w := range e.Whens {
			if evalExpr(w.Cond, r) == true {
				return evalExpr(w.Then, r)
			}
		}
		return evalExpr(e.Else, r)
	case *InList:
		var result any = false
		v := evalExpr(e.Arg, r)
		for _, l := range e.List {
			switch {
			case v == nil || l.Value == nil:
				if result == false {
					result = nil
				}
			case v == l.Value:
				result = true
			}
		}
		if result == nil || !e.Negate {
			return result
		}
		return result == false
	case *Call:
		return evalCall(e, r)
	}
	panic(fmt.Sprintf("cannot evaluate %T", e))
}

func evalCall(e *Call, r row) any {
	args := make([]any, len(e.Args))
	for i, a := range e.Args {
		args[i] = evalExpr(a, r)
	}
	switch e.Func {
	case "and", "or":
		decisive := e.Func == "or"
		var result any = !decisive
		for _, a := range args {
			if a == decisive {
				return decisive
			}
			if a == nil {
				result = nil
			}
		}
		return result
	case "is null":
		return args[0] == nil
	case "is not null":
		return args[0] != nil
	case "is true":
		return args[0] == true
	case "coalesce":
		for _, a := range args {
			if a != nil {
				return a
			}
		}
		return nil
	}
	if slices.Contains(args, nil) {
		return nil
	}
	switch e.Func {
	case "not":
		return !args[0].(bool)
	case "+":
		return args[0].(int64) + args[1].(int64)
	case "-":
		return args[0].(int64) - args[1].(int64)
	}
	c := compareValues(args[0], args[1])
	switch e.Func {
	case "=":
		return c == 0
	case "<>":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	panic("cannot evaluate " + e.Func)
}

func compareValues(a, b any) int {
	switch a := a.(type) {
	case int64:
		b := b.(int64)
		return int(min(max(a-b, -1), 1))
	case float64:
		b := b.(float64)
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	case string:
		return strings.Compare(a, b.(string))
	case bool:
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	}
	panic(fmt.Sprintf("cannot compare %T", a))
}

func compareRows(keys []SortKey) func(a, b row) int {
	return func(a, b row) int {
		for _, k := range keys {
			x, y := a[k.Column], b[k.Column]
			c := 0
			switch {
			case x == nil && y == nil:
			case x == nil || y == nil:
				c = 1
				if (x == nil) == k.NullsFirst {
					c = -1
				}
			default:
				c = compareValues(x, y)
				if k.Descending {
					c = -c
				}
			}
			if c != 0 {
				return c
			}
		}
		return 0
	}
}

func filterRows(rows []row, predicate Expr) []row {
	var out []row
	for _, r := range rows {
		if predicate == nil || evalExpr(predicate, r) == true {
			out = append(out, r)
		}
	}
	return out
}

func projectRows(rows []row, exprs []Expr) []row {
	out := make([]row, len(rows))
	for i, r := range rows {
		for _, e := range exprs {
			out[i] = append(out[i], evalExpr(e, r))
		}
	}
	return out
}

func scanRows(tablet catalog.TabletID, rows []row, projection []int, filter Expr) []row {
	out := make([]row, len(rows))
	for i, r := range rows {
		for _, c := range projection {
			switch c {
			case RowIDColumn:
				out[i] = append(out[i], int64(i))
			case TabletColumn:
				out[i] = append(out[i], int64(tablet))
			default:
				out[i] = append(out[i], r[c])
			}
		}
	}
	return filterRows(out, filter)
}

func sortRows(rows []row, keys []SortKey, limit int64) []row {
	out := slices.Clone(rows)
	slices.SortStableFunc(out, compareRows(keys))
	return limitRows(out, limit, 0)
}

func limitRows(rows []row, limit, offset int64) []row {
	rows = rows[min(offset, int64(len(rows))):]
	if limit >= 0 {
		rows = rows[:min(limit, int64(len(rows)))]
	}
	return rows
}

// groupRows groups by columns; with none there is one group.
func groupRows(rows []row, by []int) (keys []row, groups [][]row) {
	at := make(map[string]int)
	if len(by) == 0 {
		return []row{nil}, [][]row{rows}
	}
	for _, r := range rows {
		var key row
		for _, g := range by {
			key = append(key, r[g])
		}
		i, ok := at[fmt.Sprint(key)]
		if !ok {
			i = len(keys)
			at[fmt.Sprint(key)] = i
			keys, groups = append(keys, key), append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return keys, groups
}

// fold combines the non-NULL values of one column of a group.
func fold(group []row, column int, f func(a, b any) any) any {
	var acc any
	for _, r := range group {
		switch v := r[column]; {
		case v == nil:
		case acc == nil:
			acc = v
		default:
			acc = f(acc, v)
		}
	}
	return acc
}

func add(a, b any) any { return a.(int64) + b.(int64) }

func extreme(sign int) func(a, b any) any {
	return func(a, b any) any {
		if sign*compareValues(b, a) > 0 {
			return b
		}
		return a
	}
}

func countRows(group []row, column int) int64 {
	var n int64
	for _, r := range group {
		if column < 0 || r[column] != nil {
			n++
		}
	}
	return n
}

func average(sum any, count int64) any {
	if count == 0 {
		return nil
	}
	return float64(sum.(int64)) / float64(count)
}

// evalNode runs a tree.
func evalNode(n Node, db database) []row {
	switch n := n.(type) {
	case *Scan:
		return scanRows(0, db[n.Table.Name], n.Projection, n.Filter)
	case *Values:
		return valuesRows(n.Rows)
	case *Filter:
		return filterRows(evalNode(n.Input, db), n.Predicate)
	case *Project:
		return projectRows(evalNode(n.Input, db), n.Exprs)
	case *Join:
		return joinRows(n.Kind, len(outputFields(n)), evalNode(n.Left, db), evalNode(n.Right, db), n.On, n.Residual)
	case *Union:
		var out []row
		for _, b := range n.Branches {
			out = append(out, evalNode(b, db)...)
		}
		return out
	case *Window:
		return windowRows(evalNode(n.Input, db), n.PartitionBy, n.OrderBy, n.Calls)
	case *Sort:
		return sortRows(evalNode(n.Input, db), n.Keys, n.Limit)
	case *Limit:
		return limitRows(evalNode(n.Input, db), n.Limit, n.Offset)
	case *Aggregate:
		return completeRows(evalNode(n.Input, db), n.GroupBy, n.Calls)
	case *With:
		inner := maps.Clone(db)
		for _, c := range n.Commons {
			inner[commonRows(c.ID)] = evalNode(c.Input, inner)
		}
		return evalNode(n.Main, inner)
	case *CommonScan:
		return scanRows(0, db[commonRows(n.ID)], n.Columns, nil)
	case *Recursive:
		inner := maps.Clone(db)
		return recursiveRows(evalNode(n.Seed, db), n.Distinct, func(working []row) []row {
			inner[workingRows(n.ID)] = working
			return evalNode(n.Step, inner)
		})
	case *WorkingScan:
		return db[workingRows(n.ID)]
	}
	panic(fmt.Sprintf("cannot evaluate %T", n))
}

func commonRows(id CommonID) string  { return fmt.Sprintf("common table %d", id) }
func workingRows(id CommonID) string { return fmt.Sprintf("working table %d", id) }

// planRun runs a distributed plan: every fragment once, on the rows that its
// tablets own.
type planRun struct {
	t       testing.TB
	plan    *Plan
	db      database
	outputs map[FragmentID][]row
}

func evalPlan(t testing.TB, plan *Plan, db database) []row {
	t.Helper()
	r := &planRun{t: t, plan: plan, db: db, outputs: make(map[FragmentID][]row)}
	return r.fragment(plan.Root().ID)
}

func (r *planRun) fragment(id FragmentID) []row {
	if out, ok := r.outputs[id]; ok {
		return out
	}
	out := r.run(r.plan.Fragments[id].Operators, nil)
	r.outputs[id] = out
	return out
}

// run runs operators; stored is what the StoredSources of a recursion's step
// read.
func (r *planRun) run(ops []Operator, stored [][]row) []row {
	var stack [][]row
	for i, op := range ops {
		top := len(stack) - 1
		switch op := op.(type) {
		case *StoredSource:
			stack = append(stack, stored[op.Index])
		case *RecursiveOp:
			seed := top - op.Inputs
			inputs := slices.Clone(stack[seed:])
			stack = append(stack[:seed], recursiveRows(inputs[0], op.Distinct, func(working []row) []row {
				return r.run(op.Step, append([][]row{working}, inputs[1:]...))
			}))
		case *TabletScan:
			stack = append(stack, scanRows(op.Tablet, r.owned(op.Table, op.Tablet), op.Projection, op.Filter))
		case *ValuesSource:
			stack = append(stack, valuesRows(op.Rows))
		case *ExchangeSource:
			rows := r.exchange(op.Exchange)
			if i > 0 {
				if before, ok := ops[i-1].(*ExchangeSource); ok && before.Input == op.Input {
					stack[top] = append(slices.Clip(stack[top]), rows...)
					continue
				}
			}
			stack = append(stack, rows)
		case *FilterOp:
			stack[top] = filterRows(stack[top], op.Predicate)
		case *ProjectOp:
			stack[top] = projectRows(stack[top], op.Exprs)
		case *PartialAggregate:
			stack[top] = partialRows(stack[top], op.GroupBy, op.Calls)
		case *FinalAggregate:
			stack[top] = finalRows(stack[top], op.GroupBy, op.Calls)
		case *HashJoin:
			stack = append(stack[:top-1], joinRows(op.Kind, op.Schema.NumFields(), stack[top-1], stack[top], op.On, op.Residual))
		case *CompleteAggregate:
			stack[top] = completeRows(stack[top], op.GroupBy, op.Calls)
		case *WindowOp:
			stack[top] = windowRows(stack[top], op.PartitionBy, op.OrderBy, op.Calls)
		case *UnionAll:
			var all []row
			for _, s := range stack[len(stack)-op.Inputs:] {
				all = append(all, s...)
			}
			stack = append(stack[:len(stack)-op.Inputs], all)
		case *MergeSort:
			r.checkSortedInputs(ops[:i], op)
			stack[top] = sortRows(stack[top], op.Keys, op.Limit)
		case *TopK:
			stack[top] = sortRows(stack[top], op.order(), op.K)
		case *LimitOp:
			stack[top] = limitRows(stack[top], op.Limit, op.Offset)
		}
	}
	return stack[0]
}

// checkSortedInputs holds the planner to what a merge relies on.
func (r *planRun) checkSortedInputs(before []Operator, sort *MergeSort) {
	if !sort.Sorted {
		return
	}
	input := -1
	for i := len(before) - 1; i >= 0; i-- {
		source, ok := before[i].(*ExchangeSource)
		if !ok || (input >= 0 && source.Input != input) {
			return
		}
		input = source.Input
		if !slices.IsSortedFunc(r.exchange(source.Exchange), compareRows(sort.Keys)) {
			r.t.Errorf("exchange %d is merged but not sorted in\n%s", source.Exchange, Explain(r.plan))
		}
	}
}

func (r *planRun) exchange(id ExchangeID) []row {
	x := r.plan.Exchanges[id]
	rows := r.fragment(x.Producer)
	if x.Kind != HashRepartitionExchange {
		return rows
	}
	var out []row
	for _, v := range rows {
		h := fnv.New32a()
		for _, k := range x.Keys {
			fmt.Fprintf(h, "%v|", v[k])
		}
		if int(h.Sum32()%uint32(x.Partitions)) == x.Partition {
			out = append(out, v)
		}
	}
	return out
}

// owned is the part of a table that a tablet holds.
func (r *planRun) owned(table *catalog.Table, tablet catalog.TabletID) []row {
	router, err := catalog.NewRouter(table)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []row
	for _, v := range r.db[table.Name] {
		var key []byte
		for _, c := range table.Partitioning.Columns {
			if key, err = catalog.AppendKeyValue(key, table.Columns[c].Type, v[c]); err != nil {
				r.t.Fatal(err)
			}
		}
		if table.Tablets[router.RouteKey(key)].ID == tablet {
			out = append(out, v)
		}
	}
	return out
}

// canonical prints rows so that equal multisets of rows print alike.
func canonical(rows []row) string {
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = fmt.Sprint(r...)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func fieldTypes(schema *arrow.Schema) string {
	var parts []string
	for _, f := range schema.Fields() {
		parts = append(parts, fmt.Sprintf("%s %s %t", f.Name, catalog.TypeName(f.Type), f.Nullable))
	}
	return strings.Join(parts, ", ")
}
