package planner

import (
	"slices"

	"skein/catalog"
)

// Binder replaces the parameters of an expression by values.
type Binder func(Expr) (Expr, error)

// HasParams reports whether an expression holds parameters. The nil expression
// has none.
func HasParams(e Expr) bool {
	if e == nil {
		return false
	}
	found := false
	walk(e, func(x Expr) {
		if _, ok := x.(*Param); ok {
			found = true
		}
	})
	return found
}

// ReplaceParams rebuilds an expression with what replace returns for every
// parameter; what holds none is shared.
func ReplaceParams(e Expr, replace func(*Param) (Expr, error)) (Expr, error) {
	if !HasParams(e) {
		return e, nil
	}
	switch e := e.(type) {
	case *Param:
		return replace(e)
	case *Call:
		args := make([]Expr, len(e.Args))
		for i, a := range e.Args {
			var err error
			if args[i], err = ReplaceParams(a, replace); err != nil {
				return nil, err
			}
		}
		return &Call{Func: e.Func, Args: args, DataType: e.DataType, Null: e.Null}, nil
	case *Cast:
		arg, err := ReplaceParams(e.Arg, replace)
		return &Cast{Arg: arg, DataType: e.DataType}, err
	case *InList:
		arg, err := ReplaceParams(e.Arg, replace)
		return &InList{Arg: arg, List: e.List, Negate: e.Negate}, err
	case *Case:
		return replaceInCase(e, replace)
	}
	return nil, invalid("cannot give parameters to a %T", e)
}

func replaceInCase(e *Case, replace func(*Param) (Expr, error)) (Expr, error) {
	out := &Case{Whens: make([]When, len(e.Whens)), DataType: e.DataType}
	var err error
	for i, w := range e.Whens {
		if out.Whens[i].Cond, err = ReplaceParams(w.Cond, replace); err != nil {
			return nil, err
		}
		if out.Whens[i].Then, err = ReplaceParams(w.Then, replace); err != nil {
			return nil, err
		}
	}
	out.Else, err = ReplaceParams(e.Else, replace)
	return out, err
}

// operatorExprs are the expressions of an operator.
func operatorExprs(op Operator) []Expr {
	switch op := op.(type) {
	case *TabletScan:
		return []Expr{op.Filter}
	case *FilterOp:
		return []Expr{op.Predicate}
	case *ProjectOp:
		return op.Exprs
	case *HashJoin:
		return []Expr{op.Residual}
	case *ValuesSource:
		return slices.Concat(op.Rows...)
	case *RecursiveOp:
		var all []Expr
		for _, step := range op.Step {
			all = append(all, operatorExprs(step)...)
		}
		return all
	}
	return nil
}

// OpenOperators reports whether operators hold parameters.
func OpenOperators(ops []Operator) bool {
	return slices.ContainsFunc(ops, func(op Operator) bool { return slices.ContainsFunc(operatorExprs(op), HasParams) })
}

// BindOperators returns operators with the parameters replaced; those without
// are shared.
func BindOperators(ops []Operator, bind Binder) ([]Operator, error) {
	out := slices.Clone(ops)
	for i, op := range ops {
		if !slices.ContainsFunc(operatorExprs(op), HasParams) {
			continue
		}
		var err error
		if out[i], err = bindOperator(op, bind); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func bindOperator(op Operator, bind Binder) (Operator, error) {
	var err error
	switch op := op.(type) {
	case *TabletScan:
		bound := *op
		bound.Filter, err = bind(op.Filter)
		return &bound, err
	case *FilterOp:
		predicate, err := bind(op.Predicate)
		return &FilterOp{Predicate: predicate}, err
	case *ProjectOp:
		exprs, err := bindAll(op.Exprs, bind)
		return &ProjectOp{Exprs: exprs, Schema: op.Schema}, err
	case *HashJoin:
		bound := *op
		bound.Residual, err = bind(op.Residual)
		return &bound, err
	case *ValuesSource:
		rows := make([][]Expr, len(op.Rows))
		for i, row := range op.Rows {
			if rows[i], err = bindAll(row, bind); err != nil {
				return nil, err
			}
		}
		return &ValuesSource{Schema: op.Schema, Rows: rows}, nil
	case *RecursiveOp:
		bound := *op
		bound.Step, err = BindOperators(op.Step, bind)
		return &bound, err
	}
	return nil, invalid("cannot give parameters to a %T", op)
}

func bindAll(exprs []Expr, bind Binder) ([]Expr, error) {
	out := make([]Expr, len(exprs))
	for i, e := range exprs {
		var err error
		if out[i], err = bind(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PrunedTablets lists, for each scan of a tree in depth-first order, the tablets
// that are left when its parameters have values. Trees for which the lists are
// equal are distributed alike.
func PrunedTablets(root Node, bind Binder, locator Locator) ([]catalog.TabletID, error) {
	var list []catalog.TabletID
	var visit func(Node) error
	visit = func(n Node) error {
		for _, in := range n.Inputs() {
			if err := visit(in); err != nil {
				return err
			}
		}
		scan, ok := n.(*Scan)
		if !ok || scan.Table.System || !HasParams(scan.Filter) {
			return nil
		}
		tablets, _, err := scanTablets(scan, bind, locator)
		if err != nil {
			return err
		}
		for i := range tablets {
			list = append(list, tablets[i].ID)
		}
		list = append(list, 0) // no tablet's: between two scans
		return nil
	}
	return list, visit(root)
}

// scanTablets are the tablets that a scan has to read and how they partition the
// table.
func scanTablets(n *Scan, bind Binder, locator Locator) ([]catalog.Tablet, catalog.Partitioning, error) {
	all, err := locator.Tablets(n.Table)
	if err != nil {
		return nil, catalog.Partitioning{}, err
	}
	if len(all) == 0 {
		return nil, catalog.Partitioning{}, &EmptyLayoutError{Table: n.Table.Name}
	}
	partitioning, err := locator.Partitioning(n.Table)
	if err != nil {
		return nil, catalog.Partitioning{}, err
	}
	if len(all) > 1 && bind != nil && HasParams(n.Filter) {
		bound, err := bind(n.Filter)
		if err != nil {
			return nil, catalog.Partitioning{}, err
		}
		n = &Scan{Table: n.Table, Alias: n.Alias, Projection: n.Projection, Filter: bound}
	}
	return pruneTablets(n, all, partitioning), partitioning, nil
}

// ParamsSteer reports whether the best plan of an optimized tree depends on the
// values of its parameters, so that one made without them may be much worse: a
// condition on parameters alone switches a part of the tree on or off, and with
// joins, anything but "expression = parameter" may change the sizes that joins
// are ordered by.
func ParamsSteer(root Node) bool {
	return steers(root, hasJoin(root))
}

func hasJoin(n Node) bool {
	if _, ok := n.(*Join); ok {
		return true
	}
	return slices.ContainsFunc(n.Inputs(), hasJoin)
}

func steers(n Node, joins bool) bool {
	var condition Expr
	switch n := n.(type) {
	case *Scan:
		condition = n.Filter
	case *Filter:
		condition = n.Predicate
	case *Join:
		condition = n.Residual
	}
	for _, c := range conjuncts(condition) {
		if HasParams(c) && (!hasColumns(c) || joins && !equalsParam(c)) {
			return true
		}
	}
	return slices.ContainsFunc(n.Inputs(), func(in Node) bool { return steers(in, joins) })
}

// equalsParam recognises an equality with what only parameters decide.
func equalsParam(e Expr) bool {
	c, ok := e.(*Call)
	if !ok || c.Func != "=" || len(c.Args) != 2 {
		return false
	}
	a, b := c.Args[0], c.Args[1]
	return !hasColumns(a) && !HasParams(b) || !hasColumns(b) && !HasParams(a)
}
