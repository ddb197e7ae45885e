package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/consensus"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// placementWait is one long poll while a procedure waits for what it has started.
const placementWait = 5 * time.Second

// callPlacement runs a procedure that changes where replicas are. One that takes
// time waits for the end; a statement that is cancelled before leaves it going on.
func (s *sqlService) callPlacement(ctx context.Context, c *sql.Call) (int64, error) {
	args := make([]uint64, len(c.Args))
	for i, arg := range c.Args {
		n, ok := arg.(*planner.Literal).Value.(int64)
		if !ok || n <= 0 {
			return 0, sqlstate.New(sqlstate.InvalidParameter, "argument %d of %s must be the number of a tablet or node", i+1, c.Procedure)
		}
		args[i] = uint64(n)
	}
	tablet, node := catalog.TabletID(args[0]), catalog.NodeID(args[0])
	var err error
	switch d := s.gw.directory; c.Procedure {
	case sql.MoveReplica:
		err = d.moveReplica(ctx, tablet, catalog.NodeID(args[1]), catalog.NodeID(args[2]))
	case sql.AbortMove:
		err = d.abortMove(ctx, tablet)
	case sql.TransferLeader:
		err = d.transferLeader(ctx, tablet, catalog.NodeID(args[1]))
	case sql.DrainNode:
		err = d.drainNode(ctx, node)
	case sql.ActivateNode:
		err = d.setNodeState(ctx, node, consensus.NodeActive)
	default:
		err = d.setNodeState(ctx, node, consensus.NodeRemoved)
	}
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// moveReplica starts a move and waits for its end.
func (d *directory) moveReplica(ctx context.Context, tablet catalog.TabletID, from, to catalog.NodeID) error {
	var reply consensus.TableReply
	err := d.meta(ctx, consensus.MetaMoveReplica, consensus.MoveReplica{
		RequestID: uuid.NewString(), Tablet: tablet, From: from, To: to, StartedUnixMS: time.Now().UnixMilli(),
	}, &reply)
	if err != nil {
		return err
	}
	if reply.Job == nil {
		return sqlstate.New(sqlstate.InternalError, "the move of tablet %d has no job", tablet)
	}
	return d.awaitMeta(ctx, func(snap *consensus.MetaSnapshot) (bool, error) {
		job, ok := snap.Job(reply.Job.ID)
		switch {
		case !ok:
			return false, sqlstate.New(sqlstate.UndefinedObject, "job %d is over and no longer remembered", reply.Job.ID).
				WithHint("See skein.replicas for where the replicas are.")
		case job.State == consensus.JobAborted:
			return false, sqlstate.New(sqlstate.ObjectNotInState, "the move of tablet %d from node %d to node %d was aborted: %s", tablet, from, to, job.Error)
		}
		return job.State == consensus.JobDone, nil
	})
}

func (d *directory) abortMove(ctx context.Context, tablet catalog.TabletID) error {
	var reply consensus.TableReply
	return d.meta(ctx, consensus.MetaAbortMove, consensus.AbortMove{
		RequestID: uuid.NewString(), Tablet: tablet, AtUnixMS: time.Now().UnixMilli(),
	}, &reply)
}

// transferLeader asks the node that is to lead.
func (d *directory) transferLeader(ctx context.Context, tablet catalog.TabletID, to catalog.NodeID) error {
	snap, err := d.Fresh(ctx)
	if err != nil {
		return err
	}
	node, ok := snap.meta.Node(to)
	if !ok {
		return sqlstate.New(sqlstate.UndefinedObject, "node %d does not exist", to)
	}
	described, ok := snap.tablets[tablet]
	if !ok {
		return sqlstate.New(sqlstate.UndefinedTable, "tablet %d does not exist", tablet)
	}
	if !slices.ContainsFunc(described.Replicas, func(r catalog.Replica) bool { return r.Node == to }) {
		return sqlstate.New(sqlstate.UndefinedObject, "node %d has no replica of tablet %d", to, tablet)
	}
	var reply consensus.TableReply
	if err := d.metaAt(ctx, []string{node.FlightAddress}, consensus.MetaTransferLeader, consensus.TransferLeader{Tablet: tablet, To: to}, &reply); err != nil {
		return err
	}
	d.Kick()
	return nil
}

// drainNode has a node give up its replicas and waits until it has none.
func (d *directory) drainNode(ctx context.Context, node catalog.NodeID) error {
	if err := d.setNodeState(ctx, node, consensus.NodeDraining); err != nil {
		return err
	}
	return d.awaitMeta(ctx, func(snap *consensus.MetaSnapshot) (bool, error) {
		n, _ := snap.Node(node)
		if n.Status() == consensus.NodeActive {
			return false, sqlstate.New(sqlstate.ObjectNotInState, "node %d was activated again before it was drained", node)
		}
		return snap.Holds(node) == 0, nil
	})
}

func (d *directory) setNodeState(ctx context.Context, node catalog.NodeID, state consensus.NodeState) error {
	var reply consensus.TableReply
	return d.meta(ctx, consensus.MetaSetNodeState, consensus.SetNodeState{RequestID: uuid.NewString(), Node: node, State: state}, &reply)
}

// awaitMeta waits until the metadata satisfies a condition.
func (d *directory) awaitMeta(ctx context.Context, holds func(*consensus.MetaSnapshot) (bool, error)) error {
	for {
		if err := d.refresh(ctx, false); err != nil {
			return err
		}
		known := d.Current().meta
		if over, err := holds(known); over || err != nil {
			return err
		}
		var reply consensus.WatchReply
		err := d.meta(ctx, consensus.MetaWatch, consensus.WatchRequest{After: known.Version, WaitMillis: placementWait.Milliseconds()}, &reply)
		if ctx.Err() != nil {
			return causeOf(ctx, ctx.Err())
		}
		if err != nil {
			return fmt.Errorf("waiting for a change of placement: %w", err)
		}
	}
}
