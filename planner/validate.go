package planner

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// ValidateLite checks that a tree is well-formed: that ordinals are in range
// and typed like the columns they name, that predicates are boolean and that
// every node has what it needs. It fails with an *InvalidPlanError.
func ValidateLite(root Node) error {
	_, err := newValidator(false).node(root)
	return err
}

// node checks a subtree and returns its output.
func (v validator) node(n Node) ([]arrow.Field, error) {
	switch n := n.(type) {
	case *Scan:
		return v.scan(n)
	case *Values:
		return v.values(n)
	case *Join:
		return v.join(n)
	case *Filter:
		in, err := v.input(n.Input, "filter")
		if err != nil {
			return nil, err
		}
		return in, v.predicate(n.Predicate, in, "filter")
	case *Project:
		in, err := v.input(n.Input, "projection")
		if err != nil {
			return nil, err
		}
		return v.project(n, in)
	case *Aggregate:
		in, err := v.input(n.Input, "aggregate")
		if err != nil {
			return nil, err
		}
		return v.aggregate(n, in)
	case *Union:
		return v.union(n)
	case *Window:
		in, err := v.input(n.Input, "window")
		if err != nil {
			return nil, err
		}
		return v.window(n, in)
	case *Sort:
		in, err := v.input(n.Input, "sort")
		if err != nil {
			return nil, err
		}
		return in, v.sort(n, in)
	case *Limit:
		in, err := v.input(n.Input, "limit")
		if err != nil {
			return nil, err
		}
		if n.Limit < -1 || n.Offset < 0 {
			return nil, invalid("limit %d offset %d: neither may be negative", n.Limit, n.Offset)
		}
		return in, nil
	case *With:
		return v.with(n)
	case *CommonScan:
		return v.commonScan(n)
	case *Recursive:
		return v.recursive(n)
	case *WorkingScan:
		return v.workingScan(n)
	case nil:
		return nil, invalid("there is no root node")
	}
	return nil, invalid("unknown node %T", n)
}

func (v validator) input(input Node, of string) ([]arrow.Field, error) {
	if input == nil {
		return nil, invalid("%s needs an input", of)
	}
	return v.node(input)
}

func (v validator) scan(n *Scan) ([]arrow.Field, error) {
	if n.Table == nil || n.Table.Name == "" {
		return nil, invalid("scan needs a table")
	}
	for _, c := range n.Projection {
		if !ValidProjection(n.Table, c) {
			return nil, invalid("scan of %q projects column %d of %d", n.Table.Name, c, len(n.Table.Columns))
		}
	}
	fields := outputFields(n)
	if n.Filter == nil {
		return fields, nil
	}
	return fields, v.predicate(n.Filter, fields, "scan of "+catalog.QuoteIdent(n.Table.Name))
}

func (v validator) values(n *Values) ([]arrow.Field, error) {
	if n.Fields == nil {
		return nil, invalid("values need a schema")
	}
	fields := n.Fields.Fields()
	for r, row := range n.Rows {
		if len(row) != len(fields) {
			return nil, invalid("row %d of values has %d columns instead of %d", r+1, len(row), len(fields))
		}
		for i, e := range row {
			if err := v.expr(e, nil, "values"); err != nil {
				return nil, err
			}
			if !arrow.TypeEqual(e.Type(), fields[i].Type) {
				return nil, invalid("row %d of values: column %d is %s instead of %s", r+1, i+1, catalog.TypeName(e.Type()), catalog.TypeName(fields[i].Type))
			}
		}
	}
	return fields, nil
}

func (v validator) project(n *Project, in []arrow.Field) ([]arrow.Field, error) {
	if len(n.Exprs) != len(n.Names) {
		return nil, invalid("projection has %d expressions and %d names", len(n.Exprs), len(n.Names))
	}
	for _, e := range n.Exprs {
		if err := v.expr(e, in, "projection"); err != nil {
			return nil, err
		}
	}
	return outputFields(n), nil
}

func (v validator) aggregate(n *Aggregate, in []arrow.Field) ([]arrow.Field, error) {
	for _, g := range n.GroupBy {
		if g < 0 || g >= len(in) {
			return nil, invalid("aggregate groups by column %d of %d", g, len(in))
		}
	}
	for i := range n.Calls {
		if err := validAggregate(&n.Calls[i], len(in)); err != nil {
			return nil, err
		}
	}
	return aggregateFields(in, n.GroupBy, n.Calls), nil
}

// validAggregate checks a call over an input of so many columns.
func validAggregate(c *AggCall, columns int) error {
	args := 0
	switch c.Func {
	case Count, Sum, Min, Max, Avg, BoolAnd, BoolOr, StddevSamp, StddevPop, VarSamp, VarPop, AnyValue, ArrayAgg:
	case StringAgg, PercentileCont:
		args = 1
	default:
		return invalid("unknown aggregate %q", c.Func)
	}
	if c.Arg == -1 && c.Func != Count {
		return invalid("%s needs a column", c.Func)
	}
	if c.Arg < -1 || c.Arg >= columns {
		return invalid("%s reads column %d of %d", c.Func, c.Arg, columns)
	}
	if c.Arg == -1 && c.Distinct {
		return invalid("%s(*) of distinct rows", c.Func)
	}
	if len(c.Args) != args {
		return invalid("%s has %d further arguments instead of %d", c.Func, len(c.Args), args)
	}
	for _, a := range c.Args {
		if a < 0 || a >= columns {
			return invalid("%s reads column %d of %d", c.Func, a, columns)
		}
	}
	if c.DataType == nil {
		return invalid("%s has no result type", c.Func)
	}
	return validKeys(c.OrderBy, columns)
}

func validKeys(keys []SortKey, columns int) error {
	for _, k := range keys {
		if k.Column < 0 || k.Column >= columns {
			return invalid("sort by column %d of %d", k.Column, columns)
		}
	}
	return nil
}

func (v validator) union(n *Union) ([]arrow.Field, error) {
	if len(n.Branches) == 0 {
		return nil, invalid("union needs a branch")
	}
	branches := make([][]arrow.Field, len(n.Branches))
	for i, b := range n.Branches {
		var err error
		if branches[i], err = v.input(b, "union"); err != nil {
			return nil, err
		}
		if len(branches[i]) != len(branches[0]) {
			return nil, invalid("branch %d of a union has %d columns instead of %d", i+1, len(branches[i]), len(branches[0]))
		}
		for c := range branches[i] {
			if l, r := branches[0][c].Type, branches[i][c].Type; !arrow.TypeEqual(l, r) {
				return nil, invalid("column %d of a union is %s and %s", c+1, catalog.TypeName(l), catalog.TypeName(r))
			}
		}
	}
	return unionFields(branches), nil
}

func (v validator) window(n *Window, in []arrow.Field) ([]arrow.Field, error) {
	for _, c := range n.PartitionBy {
		if c < 0 || c >= len(in) {
			return nil, invalid("window is partitioned by column %d of %d", c, len(in))
		}
	}
	if err := validKeys(n.OrderBy, len(in)); err != nil {
		return nil, err
	}
	if len(n.Calls) == 0 {
		return nil, invalid("window needs a function")
	}
	for i := range n.Calls {
		c := &n.Calls[i]
		for _, a := range c.Args {
			if a < 0 || a >= len(in) {
				return nil, invalid("%s reads column %d of %d", c.Func, a, len(in))
			}
		}
		if c.DataType == nil {
			return nil, invalid("%s has no result type", c.Func)
		}
		for _, b := range []FrameBound{c.Frame.Start, c.Frame.End} {
			if needs := b.Kind == Preceding || b.Kind == Following; needs != (b.Offset != nil) {
				return nil, invalid("%s has a frame bound %q with offset %v", c.Func, b.Kind, b.Offset)
			}
		}
	}
	return windowFields(in, n.Calls), nil
}

func (v validator) sort(n *Sort, in []arrow.Field) error {
	if len(n.Keys) == 0 {
		return invalid("sort needs at least one key")
	}
	if err := validKeys(n.Keys, len(in)); err != nil {
		return err
	}
	if n.Limit < -1 {
		return invalid("sort limit %d: it may not be negative", n.Limit)
	}
	return nil
}

func (v validator) join(n *Join) ([]arrow.Field, error) {
	left, err := v.input(n.Left, "join")
	if err != nil {
		return nil, err
	}
	right, err := v.input(n.Right, "join")
	if err != nil {
		return nil, err
	}
	switch n.Kind {
	case InnerJoin:
		if len(n.On) == 0 && n.Residual == nil {
			return nil, invalid("join needs at least one key")
		}
	case CrossJoin:
		if len(n.On) > 0 {
			return nil, invalid("cross join has keys")
		}
	case LeftJoin, RightJoin, FullJoin, SemiJoin, AntiJoin, MarkJoin, SingleJoin:
	default:
		return nil, invalid("unknown join kind %q", n.Kind)
	}
	for _, k := range n.On {
		if k.Left < 0 || k.Left >= len(left) || k.Right < 0 || k.Right >= len(right) {
			return nil, invalid("join key %d = %d of inputs with %d and %d columns", k.Left, k.Right, len(left), len(right))
		}
		if l, r := left[k.Left].Type, right[k.Right].Type; !sameKeyType(l, r) {
			return nil, invalid("join key %s = %s compares %s with %s", left[k.Left].Name, right[k.Right].Name, catalog.TypeName(l), catalog.TypeName(r))
		}
	}
	fields := joinFields(n.Kind, left, right)
	if n.Residual == nil {
		return fields, nil
	}
	return fields, v.predicate(n.Residual, pairFields(left, right), "join")
}

func (v validator) predicate(e Expr, in []arrow.Field, of string) error {
	if err := v.expr(e, in, of); err != nil {
		return err
	}
	if id := e.Type().ID(); id != arrow.BOOL && id != arrow.NULL {
		return invalid("%s: condition %s is %s, not boolean", of, e, catalog.TypeName(e.Type()))
	}
	return nil
}

// expr checks an expression over the given columns.
func (v validator) expr(e Expr, in []arrow.Field, of string) error {
	if e == nil {
		return invalid("%s: an expression is missing", of)
	}
	switch e := e.(type) {
	case *Column:
		if e.Index < 0 || e.Index >= len(in) {
			return invalid("%s: expression reads column %d of %d", of, e.Index, len(in))
		}
		if want := in[e.Index].Type; e.DataType == nil || !arrow.TypeEqual(e.DataType, want) {
			return invalid("%s: column %d is read as %v but is %v", of, e.Index, e.DataType, want)
		}
	case *Param:
		if v.params {
			return nil
		}
		return invalid("%s: parameter $%d has no value", of, e.Ordinal)
	case *Case:
		if len(e.Whens) == 0 || e.Type() == nil {
			return invalid("%s: CASE without a branch or type", of)
		}
	case *Call:
		switch e.Func {
		case "not", "is null", "is not null":
			if len(e.Args) != 1 {
				return invalid("%s: %q takes one argument, not %d", of, e.Func, len(e.Args))
			}
		}
		if e.DataType == nil {
			return invalid("%s: %q has no result type", of, e.Func)
		}
	case *Literal, *Cast, *InList:
		if e.Type() == nil {
			return invalid("%s: expression without a type", of)
		}
	default:
		return invalid("%s: unknown expression %T", of, e)
	}
	for _, c := range children(e) {
		if err := v.expr(c, in, of); err != nil {
			return err
		}
	}
	return nil
}
