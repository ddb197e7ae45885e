package bind

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
	"skein/sqlstate"
)

// Substitute returns the statement with the parameters replaced by values, one
// per entry of Params; a value of another type is cast as an explicit CAST
// would. The receiver is unchanged and can be executed again. What it
// returns has no parameters.
func (s *Bound) Substitute(values []*planner.Literal) (*Bound, error) {
	if len(values) != len(s.Params) {
		return nil, sqlstate.New(sqlstate.ProtocolViolation,
			"the statement has %d parameters, but %d values are given", len(s.Params), len(values))
	}
	if s.Timeless() {
		return s, nil
	}
	sub := &substitution{values: make([]*planner.Literal, len(values)), limits: s.limits, zone: s.zone, now: clockValue()}
	for i, v := range values {
		var err error
		if sub.values[i], err = parameterValue(v, s.Params[i], s.zone); err != nil {
			return nil, err
		}
	}
	statement, err := sub.statement(s.Statement)
	if err != nil {
		return nil, err
	}
	return &Bound{Statement: statement}, nil
}

// parameterValue is a value as a literal of the parameter's type. A nil one and
// one without a value are NULL.
func parameterValue(v *planner.Literal, dt arrow.DataType, zone string) (*planner.Literal, error) {
	if v == nil || v.Value == nil {
		return &planner.Literal{DataType: dt}, nil
	}
	if same, ok := exactly(v, dt); ok {
		return same, nil
	}
	if !exec.CanCast(v.DataType, dt, true) {
		return nil, sqlstate.New(sqlstate.DatatypeMismatch, "a parameter of type %s cannot take a value of type %s",
			catalog.TypeName(dt), catalog.TypeName(v.DataType))
	}
	return evaluate(CastIn(zone, v, dt))
}

type substitution struct {
	values []*planner.Literal
	limits map[*planner.Limit]limitExprs
	zone   string
	now    *planner.Literal
}

func (s *substitution) statement(stmt Statement) (Statement, error) {
	switch stmt := stmt.(type) {
	case *Query:
		node, err := s.node(stmt.Node)
		if err != nil {
			return nil, err
		}
		return &Query{Node: node, Schema: stmt.Schema}, nil
	case *Insert:
		node, err := s.node(stmt.Source)
		if err != nil {
			return nil, err
		}
		out := *stmt
		out.Source = node
		if out.Conflict, err = s.conflict(stmt.Conflict); err != nil {
			return nil, err
		}
		out.Returning, err = s.returning(stmt.Returning)
		return &out, err
	case *Update:
		out := *stmt
		var err error
		if out.Source, err = s.node(stmt.Source); err != nil {
			return nil, err
		}
		out.Returning, err = s.returning(stmt.Returning)
		return &out, err
	case *Delete:
		out := *stmt
		var err error
		if out.Source, err = s.node(stmt.Source); err != nil {
			return nil, err
		}
		out.Returning, err = s.returning(stmt.Returning)
		return &out, err
	case *Call:
		args, err := s.exprs(stmt.Args)
		return &Call{Procedure: stmt.Procedure, Args: args}, err
	case *Explain:
		inner, err := s.statement(stmt.Statement)
		if err != nil {
			return nil, err
		}
		out := *stmt
		out.Statement = inner
		return &out, nil
	}
	return stmt, nil
}

func (s *substitution) conflict(c *OnConflict) (*OnConflict, error) {
	if c == nil || c.Set == nil {
		return c, nil
	}
	out := *c
	var err error
	if out.Set, err = s.exprs(c.Set); err == nil && c.Where != nil {
		out.Where, err = s.expr(c.Where)
	}
	return &out, err
}

func (s *substitution) returning(r *Returning) (*Returning, error) {
	if r == nil {
		return nil, nil
	}
	exprs, err := s.exprs(r.Exprs)
	return &Returning{Exprs: exprs, Schema: r.Schema}, err
}

// node rebuilds a plan with the parameters replaced.
func (s *substitution) node(n planner.Node) (planner.Node, error) {
	inputs := n.Inputs()
	built := make([]planner.Node, len(inputs))
	for i, in := range inputs {
		var err error
		if built[i], err = s.node(in); err != nil {
			return nil, err
		}
	}
	switch n := n.(type) {
	case *planner.Scan:
		return n, nil
	case *planner.Filter:
		predicate, err := s.expr(n.Predicate)
		return &planner.Filter{Input: built[0], Predicate: predicate}, err
	case *planner.Project:
		exprs, err := s.exprs(n.Exprs)
		return &planner.Project{Input: built[0], Exprs: exprs, Names: n.Names}, err
	case *planner.Aggregate:
		return &planner.Aggregate{Input: built[0], GroupBy: n.GroupBy, Calls: n.Calls}, nil
	case *planner.Join:
		return s.join(n, built[0], built[1])
	case *planner.Sort:
		return &planner.Sort{Input: built[0], Keys: n.Keys, Limit: n.Limit}, nil
	case *planner.Union:
		return &planner.Union{Branches: built}, nil
	case *planner.Window:
		return &planner.Window{Input: built[0], PartitionBy: n.PartitionBy, OrderBy: n.OrderBy, Calls: n.Calls}, nil
	case *planner.Limit:
		return s.limit(n, built[0])
	case *planner.Values:
		return s.rows(n)
	case *planner.With:
		out := &planner.With{Main: built[len(n.Commons)]}
		for i, c := range n.Commons {
			out.Commons = append(out.Commons, &planner.Common{ID: c.ID, Name: c.Name, Input: built[i], Keep: c.Keep})
		}
		return out, nil
	case *planner.Recursive:
		out := *n
		out.Seed, out.Step = built[0], built[1]
		return &out, nil
	case *planner.CommonScan, *planner.WorkingScan:
		return n, nil
	}
	return nil, sqlstate.New(sqlstate.InternalError, "cannot give parameters to a %T", n)
}

func (s *substitution) join(n *planner.Join, left, right planner.Node) (planner.Node, error) {
	out := &planner.Join{Kind: n.Kind, Left: left, Right: right, On: n.On}
	if n.Residual == nil {
		return out, nil
	}
	var err error
	out.Residual, err = s.expr(n.Residual)
	return out, err
}

func (s *substitution) limit(n *planner.Limit, input planner.Node) (planner.Node, error) {
	out := &planner.Limit{Input: input, Limit: n.Limit, Offset: n.Offset}
	open := s.limits[n]
	var err error
	if open.limit != nil {
		if out.Limit, err = s.count(open.limit, "LIMIT", -1); err != nil {
			return nil, err
		}
	}
	if open.offset != nil {
		if out.Offset, err = s.count(open.offset, "OFFSET", 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *substitution) count(e planner.Expr, what string, absent int64) (int64, error) {
	e, err := s.expr(e)
	if err != nil {
		return 0, err
	}
	l, err := evaluate(e)
	if err != nil {
		return 0, err
	}
	return countValue(l, what, absent)
}

func (s *substitution) rows(n *planner.Values) (planner.Node, error) {
	rows := make([][]planner.Expr, len(n.Rows))
	for i, row := range n.Rows {
		var err error
		if rows[i], err = s.exprs(row); err != nil {
			return nil, err
		}
	}
	return &planner.Values{Fields: n.Fields, Rows: rows}, nil
}

func (s *substitution) exprs(exprs []planner.Expr) ([]planner.Expr, error) {
	out := make([]planner.Expr, len(exprs))
	for i, e := range exprs {
		var err error
		if out[i], err = s.expr(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// expr replaces parameters and folds what has become constant.
func (s *substitution) expr(e planner.Expr) (planner.Expr, error) {
	if !hasParam(e) {
		return e, nil
	}
	replaced, err := s.replace(e)
	if err != nil {
		return nil, err
	}
	return exec.Fold(replaced)
}

func (s *substitution) replace(e planner.Expr) (planner.Expr, error) {
	if p, ok := e.(*planner.Param); ok {
		if p.Ordinal == clockParam {
			return s.now, nil
		}
		if p.Ordinal > len(s.values) {
			return nil, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", p.Ordinal)
		}
		l := s.values[p.Ordinal-1]
		if !arrow.TypeEqual(l.DataType, p.DataType) {
			return parameterValue(l, p.DataType, s.zone)
		}
		return l, nil
	}
	return rebuild(e, s.replace)
}
