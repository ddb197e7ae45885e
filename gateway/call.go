package gateway

import (
	"context"

	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// call runs a procedure once for each set of parameters and counts what it
// affected.
func (s *sqlService) call(ctx context.Context, st *statement, args [][]*planner.Literal) (int64, error) {
	affected := int64(0)
	for _, set := range args {
		bound, err := st.with(set)
		if err != nil {
			return affected, err
		}
		c := bound.(*sql.Call)
		if c.Procedure != sql.CancelQuery {
			return affected, sqlstate.New(sqlstate.InternalError, "no way to run procedure %s", c.Procedure)
		}
		id, ok := c.Args[0].(*planner.Literal).Value.(string)
		if !ok {
			return affected, sqlstate.New(sqlstate.InvalidParameter, "the query id given to %s is NULL", c.Procedure)
		}
		cancelled, err := s.gw.cancelStatement(ctx, id)
		if err != nil {
			return affected, err
		}
		if cancelled {
			affected++
		}
	}
	return affected, nil
}
