package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"

	"skein/internal/faultproxy"
)

// A gateway that is killed leaves fragments that it has started and not pulled. The
// workers drop them when their lease has run out; those that were read end with
// the gateway's connections.
func TestFragmentsOfAKilledGatewayAreSwept(t *testing.T) {
	t.Parallel()
	const lease = 8 * time.Second
	cluster, proxies := startFaultyCluster(t, "--fragment-lease", lease.String())
	c := dial(t, cluster.flight)
	spreadTables(t, c)
	w := watch(t, cluster)
	ctx := testContext(t)
	w.await(ctx, "getting idle", allIdle)
	// The first pull from each worker never gets there.
	for _, p := range proxies {
		p.Arm(&faultproxy.Fault{Kind: faultproxy.Drop, Place: faultproxy.Request, Match: isPull})
	}
	failed := make(chan error, 1)
	go func() {
		_, err := query(ctx, c, spread("SELECT id, k FROM F ORDER BY k, id", "cut"))
		failed <- err
	}()
	// Those that lead the tablets run fragments: one worker, two or all.
	held := 0
	w.await(ctx, "fragments are started and no pull gets there", func(busy, _ int, _ int64) bool {
		fired := 0
		for _, p := range proxies {
			fired += p.Fired()
		}
		held = busy
		return busy > 0 && fired == busy
	})
	began := time.Now()
	cluster.gateway.kill()
	if err := <-failed; err == nil {
		t.Error("the client of a killed gateway got an answer")
	}
	if busy, _, _ := w.fragments(ctx); busy != held {
		t.Errorf("%d workers of %d held on to unread fragments", busy, held)
	}
	took := w.await(ctx, "the lease runs out", allIdle)
	t.Logf("idle %s after the gateway was killed", time.Since(began).Round(time.Millisecond))
	if took > lease+10*time.Second {
		t.Errorf("fragments were swept after %s only", took)
	}
}

// isPull matches the calls that pull rows.
func isPull(method string, _ []byte) bool { return method == "DoGet" }

// isAction matches an action by its name.
func isAction(name string) func(string, []byte) bool {
	return func(method string, request []byte) bool {
		action := &flight.Action{}
		return method == "DoAction" && proto.Unmarshal(request, action) == nil && action.GetType() == name
	}
}

// What a gateway may run at a time is taken by a statement whose client does not
// read: another one waits for it, is refused when it has waited long enough, and
// runs as soon as there is room.
func TestAdmission(t *testing.T) {
	t.Parallel()
	const wait = 3 * time.Second
	c := startCluster(t)
	setup := dial(t, c.flight)
	cancelTables(t, setup)
	var workers []string
	for _, conn := range watch(t, c).conns {
		workers = append(workers, conn.Address())
	}
	narrow := freePorts(t, 1)[0]
	start(t, "gateway", "--workers", strings.Join(workers, ","), "--flight", narrow, "--http", "", "--log-level", "warn",
		"--max-fragments", "12", "--admission-queue", "1", "--admission-wait", wait.String())
	conn := dial(t, narrow)
	eventually(t, "reaching the narrow gateway", func(ctx context.Context) error {
		_, err := query(ctx, conn, "SELECT count(*) FROM a")
		return err
	})
	const count = "SELECT count(*) FROM a"
	ctx := testContext(t)
	// More fragments than there may be are never admitted.
	if _, err := query(ctx, conn, "SELECT count(*) FROM a UNION ALL SELECT count(*) FROM b UNION ALL SELECT count(*) FROM a x"); err == nil ||
		!strings.Contains(err.Error(), "53400") || !strings.Contains(err.Error(), "max_query_fragments") {
		t.Errorf("a statement of 18 fragments: %v", err)
	}
	held, err := conn.Run(ctx, shapes["scan"])
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if b, err := held.Next(); err != nil || b == nil {
		t.Fatalf("first rows %v, error %v", b, err)
	}
	// Of two more one waits, in vain, and the other one finds the queue full.
	began := time.Now()
	waited := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := query(ctx, dial(t, narrow), count)
			waited <- err
		}()
	}
	for _, limit := range []string{"admission_queue", "admission_wait"} {
		if err := <-waited; err == nil || !strings.Contains(err.Error(), "53400") || !strings.Contains(err.Error(), limit) {
			t.Errorf("a statement more, by %s: %v", limit, err)
		}
	}
	if took := time.Since(began); took < wait {
		t.Errorf("the one that waited was refused after %s", took)
	}
	// With room again the next one runs.
	go func() {
		_, err := query(ctx, dial(t, narrow), count)
		waited <- err
	}()
	// What needs no worker is not held up, so that it can be seen what is.
	eventually(t, "it is there", func(ctx context.Context) error {
		rows, err := query(ctx, conn, "SELECT query_id FROM skein.queries WHERE statement = '"+count+"'")
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("%d statements are", len(rows))
		}
		return err
	})
	held.Close()
	if err := <-waited; err != nil {
		t.Errorf("a statement with room for it: %v", err)
	}
}
