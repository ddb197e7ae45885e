package worker_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
	"skein/storage"
	"skein/worker"
)

// ids scans a whole table, tablet by tablet, at a node's present.
func (c *cluster) ids(table *catalog.Table) ([]int64, error) {
	c.t.Helper()
	var all []int64
	for i := range table.Tablets {
		n := c.nodes[table.Tablets[i].Replicas[0].Node-1]
		p := newPlan()
		x := p.exchange(p.scan(n, table, i, nil), coordinator, merge(table))
		p.start(c.t)
		ids, err := p.pull(c.t.Context(), x)
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	return all, nil
}

func (c *cluster) checkTable(table *catalog.Table, from, n int) {
	c.t.Helper()
	ids, err := c.ids(table)
	if err != nil {
		c.t.Fatal(err)
	}
	checkIDs(c.t, ids, from, n)
}

func (n *node) commands() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := map[string]int{}
	for _, command := range n.proposed {
		switch command := command.(type) {
		case storage.Stage:
			count["stage"]++
		case storage.Commit:
			count["commit"]++
			if len(command.Inline) > 0 {
				count["inline"]++
			}
		case storage.Abort:
			count["abort"]++
		case storage.Prepare:
			count["prepare"]++
		}
	}
	return count
}

func (n *node) transact(step pb.TransactRequest_Step, tablet catalog.TabletID, txn string, change func(*pb.TransactRequest)) (*pb.TransactResponse, error) {
	request := &pb.TransactRequest{Step: step, TransactionId: txn, TabletId: uint64(tablet)}
	if change != nil {
		change(request)
	}
	return n.conn.Transact(n.t.Context(), request)
}

func TestSmallWritesCommitInOneEntry(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	n.mustWrite(table, 0, "one", 0, 1)
	n.mustWrite(table, 0, "two", 1, 500)
	if got := n.commands(); got["inline"] != 2 || got["stage"] != 0 {
		t.Errorf("commands were %v", got)
	}
	if result, err := n.write(table, 0, "none", true, 0, 0); err != nil || result.GetRows() != 0 || result.GetCommitTimestamp() == 0 {
		t.Errorf("an empty write: %v, %v", result, err)
	}
	c.checkTable(table, 0, 501)
	_, err := n.write(table, 0, "dup", true, 7, 1)
	if sqlstate.CodeOf(err) != sqlstate.UniqueViolation || !strings.Contains(err.Error(), "(id)=(7)") {
		t.Errorf("a duplicate key: %v", err)
	}
	c.checkTable(table, 0, 501)
}

func TestTwoParticipantsCommitTogether(t *testing.T) {
	const each = 150_000 // two segments
	c := newCluster(t, 2, nil)
	table := c.createTable("t", []int{0}, 0, 1)
	segments := make([]uint32, 2)
	for i, n := range c.nodes {
		result, err := n.write(table, i, "txn", false, i*each, each)
		if err != nil {
			t.Fatal(err)
		}
		if result.GetRows() != each || result.GetSegments() != 2 || result.GetCommitTimestamp() != 0 {
			t.Fatalf("result is %v", result)
		}
		segments[i] = result.GetSegments()
	}
	c.checkTable(table, 0, 0)
	commitAt := uint64(0)
	primary := table.Tablets[0].ID
	for range 2 { // every step may be repeated
		for i, n := range c.nodes {
			response, err := n.transact(pb.TransactRequest_PREPARE, table.Tablets[i].ID, "txn", func(r *pb.TransactRequest) {
				r.Segments, r.PrimaryTabletId = segments[i], uint64(primary)
			})
			if err != nil || response.GetOutcome() != pb.TransactResponse_PREPARED {
				t.Fatalf("prepare: %v, %v", response, err)
			}
			commitAt = max(commitAt, response.GetClock())
		}
	}
	for i, n := range c.nodes {
		for range 2 {
			response, err := n.transact(pb.TransactRequest_COMMIT, table.Tablets[i].ID, "txn", func(r *pb.TransactRequest) {
				r.Segments, r.CommitTimestamp = segments[i], commitAt
			})
			if err != nil || response.GetOutcome() != pb.TransactResponse_COMMITTED || response.GetCommitTimestamp() != commitAt {
				t.Fatalf("commit: %v, %v", response, err)
			}
		}
	}
	c.checkTable(table, 0, 2*each)
}

func TestBrokenWritesAreAborted(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	tablet := n.tablet(table.Tablets[0].ID)

	t.Run("disconnect", func(t *testing.T) {
		w, err := n.conn.Write(t.Context(), &pb.WriteHeader{
			TransactionId: "gone", TableId: uint64(table.ID), TabletId: uint64(tablet.ID()),
		}, table.ArrowSchema())
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < 150_000; at += 10_000 {
			if err := w.Send(rows(t, at, 10_000)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "a segment is staged", func() bool { return len(tablet.Staged()) == 1 })
		w.Abort()
		eventually(t, "it is dropped", func() bool { return n.commands()["abort"] > 0 && len(tablet.Staged()) == 0 })
	})
	t.Run("refused stage", func(t *testing.T) {
		n.refuse(func(command storage.Command) error {
			if _, ok := command.(storage.Stage); ok {
				return sqlstate.New(sqlstate.DiskFull, "no space")
			}
			return nil
		})
		defer n.refuse(nil)
		if _, err := n.write(table, 0, "full", true, 0, 300_000); sqlstate.CodeOf(err) != sqlstate.DiskFull {
			t.Errorf("a full disk: %v", err)
		}
	})
	t.Run("no quorum", func(t *testing.T) {
		n.refuse(func(storage.Command) error { return consensus.ErrUnavailable })
		defer n.refuse(nil)
		_, err := n.write(table, 0, "away", true, 0, 10)
		if flightproto.ReasonOf(err) != flightproto.Unavailable || sqlstate.CodeOf(err) != sqlstate.ConnectionFailure {
			t.Errorf("no quorum: %v", err)
		}
	})
	t.Run("duplicate in a large write", func(t *testing.T) {
		n.mustWrite(table, 0, "first", 140_000, 10)
		if _, err := n.write(table, 0, "second", true, 0, 150_000); sqlstate.CodeOf(err) != sqlstate.UniqueViolation {
			t.Errorf("a duplicate key: %v", err)
		}
		if staged := tablet.Staged(); len(staged) != 0 {
			t.Errorf("left behind: %v", staged)
		}
	})
	c.checkTable(table, 140_000, 10)
}

func TestWriteHeadersAreChecked(t *testing.T) {
	c := newCluster(t, 2, func(cfg *worker.Config) { cfg.MetadataWait, cfg.MaxWrites = 20*time.Millisecond, 1 })
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	elsewhere := c.createTable("u", nil, 1)
	for name, test := range map[string]struct {
		header *pb.WriteHeader
		code   sqlstate.Code
		reason flightproto.Reason
	}{
		"no transaction":   {&pb.WriteHeader{TableId: uint64(table.ID)}, sqlstate.ProtocolViolation, ""},
		"no table":         {&pb.WriteHeader{TransactionId: "t", TableId: 404}, sqlstate.UndefinedTable, flightproto.StaleMetadata},
		"no tablet":        {&pb.WriteHeader{TransactionId: "t", TableId: uint64(table.ID), TabletId: 5}, sqlstate.SerializationFailure, flightproto.TabletSplit},
		"newer metadata":   {&pb.WriteHeader{TransactionId: "t", MetadataVersion: 1 << 40}, sqlstate.CannotConnectNow, flightproto.Unavailable},
		"tablet elsewhere": {&pb.WriteHeader{TransactionId: "t", TableId: uint64(elsewhere.ID), TabletId: uint64(elsewhere.Tablets[0].ID)}, sqlstate.ConnectionFailure, flightproto.TabletMoved},
	} {
		w, err := n.conn.Write(t.Context(), test.header, table.ArrowSchema())
		if err == nil {
			_, err = w.Finish()
		}
		if sqlstate.CodeOf(err) != test.code || flightproto.ReasonOf(err) != test.reason {
			t.Errorf("%s: %v (%q)", name, err, flightproto.ReasonOf(err))
		}
	}
	open, err := n.conn.Write(t.Context(), &pb.WriteHeader{TransactionId: "t", TableId: uint64(table.ID), TabletId: uint64(table.Tablets[0].ID)}, table.ArrowSchema())
	if err != nil {
		t.Fatal(err)
	}
	if err := open.Send(rows(t, 0, 10)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the write is open", func() bool {
		status, err := n.conn.Status(t.Context(), nil)
		return err == nil && status.Writes == 1
	})
	if _, err := n.write(table, 0, "u", true, 0, 1); flightproto.ReasonOf(err) != flightproto.Reservation {
		t.Errorf("a write beyond the limit: %v", err)
	}
	open.Abort()
}

func TestTransactRefusesBadSteps(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	tablet := table.Tablets[0].ID
	for name, try := range map[string]func() error{
		"no step":             func() error { _, err := n.transact(0, tablet, "t", nil); return err },
		"no transaction":      func() error { _, err := n.transact(pb.TransactRequest_ABORT, tablet, "", nil); return err },
		"no primary":          func() error { _, err := n.transact(pb.TransactRequest_PREPARE, tablet, "t", nil); return err },
		"no commit timestamp": func() error { _, err := n.transact(pb.TransactRequest_COMMIT, tablet, "t", nil); return err },
	} {
		if err := try(); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := n.transact(pb.TransactRequest_ABORT, 999_999, "t", nil); flightproto.ReasonOf(err) != flightproto.TabletMoved {
		t.Errorf("an unknown tablet: %v", err)
	}
	if r, err := n.transact(pb.TransactRequest_RESOLVE, tablet, "never", nil); err != nil || r.GetOutcome() != pb.TransactResponse_ABORTED {
		t.Errorf("resolving an unknown transaction: %v, %v", r, err)
	}
}

// prepareBoth leaves a transaction prepared on two workers.
func (c *cluster) prepareBoth(table *catalog.Table, txn string, from int) (clock uint64) {
	c.t.Helper()
	for i, n := range c.nodes {
		result, err := n.write(table, i, txn, false, from+10*i, 10)
		if err != nil {
			c.t.Fatal(err)
		}
		response, err := n.transact(pb.TransactRequest_PREPARE, table.Tablets[i].ID, txn, func(r *pb.TransactRequest) {
			r.Segments, r.PrimaryTabletId = result.GetSegments(), uint64(table.Tablets[0].ID)
		})
		if err != nil {
			c.t.Fatal(err)
		}
		clock = max(clock, response.GetClock())
	}
	return clock
}

// Participants whose coordinator has died ask the primary, on another worker.
func TestTransactionsInDoubtAreResolved(t *testing.T) {
	c := newCluster(t, 2, func(cfg *worker.Config) {
		cfg.ResolveInterval, cfg.ResolveAfter = 5*time.Millisecond, 50*time.Millisecond
	})
	table := c.createTable("t", []int{0}, 0, 1)
	settled := func() bool {
		for i, n := range c.nodes {
			if len(n.tablet(table.Tablets[i].ID).InDoubt()) > 0 {
				return false
			}
		}
		return true
	}
	c.prepareBoth(table, "undecided", 0)
	eventually(t, "undecided transactions are aborted", settled)
	c.checkTable(table, 0, 0)

	clock := c.prepareBoth(table, "decided", 0)
	if _, err := c.nodes[0].transact(pb.TransactRequest_COMMIT, table.Tablets[0].ID, "decided", func(r *pb.TransactRequest) {
		r.Segments, r.CommitTimestamp = 1, clock
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second participant hears of the commit", settled)
	c.checkTable(table, 0, 20)
}

// While its coordinator is heard of, nobody decides a transaction in its stead,
// however long the prepare of another participant takes.
func TestLivingCoordinatorsDecide(t *testing.T) {
	start := time.Now()
	var passed atomic.Int64
	c := newCluster(t, 2, func(cfg *worker.Config) {
		cfg.ResolveInterval, cfg.ResolveAfter = time.Millisecond, time.Minute
		cfg.Now = func() time.Time { return start.Add(time.Duration(passed.Load())) }
	})
	table := c.createTable("t", []int{0}, 0, 1)
	c.prepareBoth(table, "slow", 0)
	prepared := func() bool {
		return len(c.nodes[0].tablet(table.Tablets[0].ID).InDoubt()) == 1 && len(c.nodes[1].tablet(table.Tablets[1].ID).InDoubt()) == 1
	}
	for range 5 {
		for _, step := range []pb.TransactRequest_Step{pb.TransactRequest_KEEP, pb.TransactRequest_RESOLVE} {
			r, err := c.nodes[0].transact(step, table.Tablets[0].ID, "slow", nil)
			if err != nil || r.GetOutcome() != pb.TransactResponse_STAGED {
				t.Fatalf("%s: %v, %v", step, r, err)
			}
		}
		passed.Add(int64(40 * time.Second))
		if r, err := c.nodes[0].transact(pb.TransactRequest_RESOLVE, table.Tablets[0].ID, "slow", nil); err != nil || r.GetOutcome() != pb.TransactResponse_STAGED {
			t.Fatalf("%v, %v", r, err)
		}
		if !prepared() {
			t.Fatal("the transaction was decided though its coordinator lives")
		}
	}
	passed.Add(int64(2 * time.Minute))
	eventually(t, "a transaction is aborted whose coordinator is silent", func() bool { return !prepared() })
	if r, err := c.nodes[0].transact(pb.TransactRequest_RESOLVE, table.Tablets[0].ID, "slow", nil); err != nil || r.GetOutcome() != pb.TransactResponse_ABORTED {
		t.Fatalf("%v, %v", r, err)
	}
}

// A reader that runs into a prepared transaction waits for it; if its outcome
// does not come the reader asks for it.
func TestReadersWaitForOutcomes(t *testing.T) {
	c := newCluster(t, 2, func(cfg *worker.Config) {
		cfg.ResolveInterval, cfg.ResolveAfter = time.Hour, 50*time.Millisecond
	})
	table := c.createTable("t", []int{0}, 0, 1)
	c.prepareBoth(table, "undecided", 0)
	c.checkTable(table, 0, 0)
	c.prepareBoth(table, "later", 0)
	var committer sync.WaitGroup
	defer committer.Wait()
	committer.Go(func() {
		for i, n := range c.nodes {
			_, err := n.transact(pb.TransactRequest_COMMIT, table.Tablets[i].ID, "later", func(r *pb.TransactRequest) {
				r.Segments, r.CommitTimestamp = 1, n.clock.Now()
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := c.ids(table); err != nil {
		t.Fatal(err)
	}
}

func TestForgottenRowsAreDropped(t *testing.T) {
	c := newCluster(t, 1, func(cfg *worker.Config) {
		cfg.ResolveInterval, cfg.StagedIdle = 5*time.Millisecond, 50*time.Millisecond
	})
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	if _, err := n.write(table, 0, "forgotten", false, 0, 100); err != nil {
		t.Fatal(err)
	}
	tablet := n.tablet(table.Tablets[0].ID)
	eventually(t, "they are dropped", func() bool { return len(tablet.Staged()) == 0 })
	_, err := n.transact(pb.TransactRequest_COMMIT, tablet.ID(), "forgotten", func(r *pb.TransactRequest) {
		r.Segments, r.CommitTimestamp = 1, n.clock.Now()
	})
	if err == nil {
		if ids, _ := c.ids(table); len(ids) != 0 {
			t.Error("a dropped transaction committed")
		}
	}
}

func TestMetaAndStatus(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 1000)
	response, err := n.conn.Meta(t.Context(), "snapshot", []byte(`{}`), nil)
	if err != nil || string(response.GetBody()) != "snapshot:{}" || response.GetClock() == 0 {
		t.Errorf("meta: %v, %v", response, err)
	}
	if _, err := n.conn.Meta(t.Context(), "fail", nil, nil); flightproto.ReasonOf(err) != flightproto.Unavailable {
		t.Errorf("a meta group without quorum: %v", err)
	}
	status, err := n.conn.Status(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if status.Node != 1 || status.Clock == 0 || len(status.Tablets) != 1 {
		t.Fatalf("status is %+v", status)
	}
	if got := status.Tablets[0]; got.Rows != 1000 || got.Name != "public.t" || got.Leader != 1 || got.Bytes == 0 || len(got.Columns) != 4 || got.Applied == 0 {
		t.Errorf("tablet status is %+v", got)
	}
}
