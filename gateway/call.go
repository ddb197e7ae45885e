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
		n, err := s.callOnce(ctx, bound.(*sql.Call))
		affected += n
		if err != nil {
			return affected, err
		}
	}
	return affected, nil
}

func (s *sqlService) callOnce(ctx context.Context, c *sql.Call) (int64, error) {
	if c.Procedure == sql.CancelQuery {
		return s.callCancel(ctx, c)
	}
	if err := s.gw.mayAdminister(ctx, "call "+string(c.Procedure)); err != nil {
		return 0, err
	}
	switch c.Procedure {
	case sql.RotateKey:
		return 1, s.gw.rotateKey(ctx)
	case sql.SetSetting:
		return s.callSetSetting(ctx, c)
	case sql.MoveReplica, sql.AbortMove, sql.TransferLeader, sql.DrainNode, sql.ActivateNode, sql.RemoveNode:
		return s.callPlacement(ctx, c)
	case sql.SplitTablet, sql.MergeTablets:
		return s.callReshape(ctx, c)
	}
	return 0, sqlstate.New(sqlstate.InternalError, "no way to run procedure %s", c.Procedure)
}

func (s *sqlService) callCancel(ctx context.Context, c *sql.Call) (int64, error) {
	id, ok := c.Args[0].(*planner.Literal).Value.(string)
	if !ok {
		return 0, sqlstate.New(sqlstate.InvalidParameter, "the query id given to %s is NULL", c.Procedure)
	}
	cancelled, err := s.gw.cancelStatement(ctx, id)
	if err != nil || !cancelled {
		return 0, err
	}
	return 1, nil
}
