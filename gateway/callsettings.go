package gateway

import (
	"context"

	"github.com/google/uuid"

	"skein/consensus"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// callSetSetting changes a setting of the cluster. When it returns, this gateway
// follows it.
func (s *sqlService) callSetSetting(ctx context.Context, c *sql.Call) (int64, error) {
	request := consensus.SetSetting{RequestID: uuid.NewString()}
	var ok bool
	if request.Name, ok = c.Args[0].(*planner.Literal).Value.(string); !ok {
		return 0, sqlstate.New(sqlstate.InvalidParameter, "the name given to %s is NULL", c.Procedure)
	}
	request.Value, ok = c.Args[1].(*planner.Literal).Value.(string)
	request.Reset = !ok
	var reply consensus.TableReply
	if err := s.gw.directory.meta(ctx, consensus.MetaSetSetting, request, &reply); err != nil {
		return 0, err
	}
	if s.gw.directory.Current().meta.Version < reply.Version {
		if err := s.gw.directory.refresh(ctx, false); err != nil {
			return 0, err
		}
	}
	return 1, nil
}
