package gateway

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// jobWait is one long poll while a statement waits for the end of a job.
const jobWait = 5 * time.Second

// callReshape runs skein.split_tablet and skein.merge_tablets, which return when
// the job is over. A statement that is cancelled before leaves it going on.
func (s *sqlService) callReshape(ctx context.Context, c *sql.Call) (int64, error) {
	snap, err := s.gw.directory.Fresh(ctx)
	if err != nil {
		return 0, err
	}
	tablet, err := tabletArgument(c, 0)
	if err != nil {
		return 0, err
	}
	reply := consensus.TableReply{}
	if c.Procedure == sql.MergeTablets {
		other, err := tabletArgument(c, 1)
		if err != nil {
			return 0, err
		}
		err = s.gw.directory.meta(ctx, consensus.MetaReshape, consensus.ReshapeTablets{
			RequestID: newID(), Kind: consensus.JobMerge, Tablets: []catalog.TabletID{tablet, other}, AtUnixMS: time.Now().UnixMilli(),
		}, &reply)
		if err != nil {
			return 0, err
		}
		return 1, s.gw.directory.awaitJob(ctx, reply)
	}
	table := snap.meta.TableOf(tablet)
	if table == nil {
		return 0, sqlstate.New(sqlstate.UndefinedObject, "tablet %d does not exist", tablet).WithHint("See the table skein.tablets.")
	}
	request := consensus.SplitTablet{RequestID: newID(), Tablet: tablet, AtUnixMS: time.Now().UnixMilli()}
	if len(c.Args) > 1 {
		if request.At, err = splitKeyOf(ctx, table, c.Args[1].(*planner.Literal)); err != nil {
			return 0, err
		}
	}
	if err := s.gw.directory.metaAt(ctx, snap.nearestAddresses(tablet), consensus.MetaSplitTablet, request, &reply); err != nil {
		return 0, err
	}
	return 1, s.gw.directory.awaitJob(ctx, reply)
}

func tabletArgument(c *sql.Call, i int) (catalog.TabletID, error) {
	n, ok := c.Args[i].(*planner.Literal).Value.(int64)
	if !ok || n <= 0 {
		return 0, sqlstate.New(sqlstate.InvalidParameter, "argument %d of %s must be the number of a tablet", i+1, c.Procedure)
	}
	return catalog.TabletID(n), nil
}

// splitKeyOf reads where to split a table's tablet: a bucket of a hashed table,
// else a value of the first column by which its rows are divided.
func splitKeyOf(ctx context.Context, t *catalog.Table, key *planner.Literal) (*catalog.Splitter, error) {
	text, ok := key.Value.(string)
	if !ok {
		return nil, sqlstate.New(sqlstate.InvalidParameter, "the key to split at is NULL")
	}
	at := &catalog.Splitter{Columns: t.PartitionIDs(), Buckets: t.Partitioning.Buckets}
	if len(at.Columns) == 0 {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "table %s has neither partition columns nor a primary key by which a tablet could be divided", t.QualifiedName())
	}
	if at.Buckets > 0 {
		bucket, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return nil, sqlstate.New(sqlstate.InvalidText, "table %s is hashed: %q is not a bucket to split at", t.QualifiedName(), text)
		}
		at.Bucket = uint32(bucket)
		return at, nil
	}
	column := t.Columns[t.ColumnByID(at.Columns[0])]
	column.Default = "'" + strings.ReplaceAll(text, "'", "''") + "'"
	value, err := sql.Default(ctx, &column)
	if err != nil {
		return nil, sqlstate.New(sqlstate.InvalidText, "%q is not a value of column %q to split at", text, column.Name).
			WithHint("give a constant of type %s", catalog.TypeName(column.Type))
	}
	literal, ok := value.(*planner.Literal)
	if !ok || literal.Value == nil {
		return nil, sqlstate.New(sqlstate.InvalidText, "%q is not a value of column %q to split at", text, column.Name)
	}
	at.Key, err = catalog.AppendKeyValue(nil, column.Type, literal.Value)
	return at, err
}

// nearestAddresses lists the workers with a replica of a tablet, the leader
// first.
func (s *snapshot) nearestAddresses(id catalog.TabletID) []string {
	list := s.replicaAddresses(id)
	if leader, ok := s.leaderAddress(id); ok {
		list = slices.DeleteFunc(list, func(a string) bool { return a == leader })
		list = slices.Insert(list, 0, leader)
	}
	return list
}

// awaitJob waits for the end of the job that a command has begun. An aborted one
// is an error.
func (d *directory) awaitJob(ctx context.Context, begun consensus.TableReply) error {
	if begun.Job == nil {
		return sqlstate.New(sqlstate.InternalError, "the command has begun no job")
	}
	for {
		meta := d.Current().meta
		if job, ok := meta.Job(begun.Job.ID); ok && meta.Version >= begun.Version {
			switch job.State {
			case consensus.JobDone:
				return nil
			case consensus.JobAborted:
				return sqlstate.New(sqlstate.ObjectNotInState, "job %d, the %s of tablets %v, was given up: %s", job.ID, job.Kind, job.Tablets, job.Error)
			}
		}
		asking, cancel := context.WithTimeout(ctx, jobWait+metaTimeout)
		var reply consensus.WatchReply
		err := d.meta(asking, consensus.MetaWatch, consensus.WatchRequest{After: meta.Version, WaitMillis: jobWait.Milliseconds()}, &reply)
		if err == nil && reply.Version > d.Current().meta.Version {
			err = d.refresh(asking, true)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			d.log.Debug("waiting for a job", "job", begun.Job.ID, "err", err)
			sleep(ctx, jitter(watchBackoff))
		}
		if err := ctx.Err(); err != nil {
			return causeOf(ctx, err)
		}
	}
}
