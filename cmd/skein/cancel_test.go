package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"skein/catalog"
	"skein/cmd/skein/internal/client"
	"skein/consensus"
	"skein/flightproto"
)

// idleWithin is how soon workers must be idle after a cancel. The aim is 100 ms on a
// machine with nothing else to do, see docs/performance.md; the test has to hold on
// one that runs other tests as well.
const idleWithin = 5 * time.Second

// watcher sees what workers are doing.
type watcher struct {
	t     *testing.T
	conns []*flightproto.Conn
	*flightproto.Authority
}

func watch(t *testing.T, c *cluster) *watcher {
	t.Helper()
	w := &watcher{t: t}
	for _, member := range c.members {
		_, flight, _ := strings.Cut(member, "/")
		conn, err := flightproto.Dial(flight)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		w.conns = append(w.conns, conn)
	}
	var snapshot consensus.MetaSnapshot
	reply, err := w.conns[0].Meta(testContext(t), consensus.MetaReadSnapshot, []byte("{}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(reply.GetBody(), &snapshot); err != nil {
		t.Fatal(err)
	}
	w.Authority = flightproto.NewAuthority(func() []catalog.SigningKey { return snapshot.Keys }, "", time.Now)
	return w
}

// fragments is how many each worker holds, running ones until they have stopped.
func (w *watcher) fragments(ctx context.Context) (busy, idle int, memory int64) {
	w.t.Helper()
	envelope, err := w.Sign(flightproto.Claims{Subject: flightproto.SubjectStatus, Expires: time.Now().Add(time.Minute)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, conn := range w.conns {
		status, err := conn.Status(ctx, envelope)
		if err != nil {
			w.t.Fatal(err)
		}
		memory += status.MemoryBytes
		if status.Fragments+status.Queries > 0 {
			busy++
		} else {
			idle++
		}
	}
	return busy, idle, memory
}

// await polls until a condition holds and tells how long that took.
func (w *watcher) await(ctx context.Context, what string, condition func(busy, idle int, memory int64) bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for {
		busy, idle, memory := w.fragments(ctx)
		if condition(busy, idle, memory) {
			return time.Since(began)
		}
		if time.Since(began) > timeout/2 {
			w.t.Fatalf("%s: %d workers are busy, %d idle, %d bytes", what, busy, idle, memory)
		}
	}
}

// cancelTables makes tables that the queries of shapes run long on.
func cancelTables(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := testContext(t)
	eventually(t, "creating a table", func(ctx context.Context) error {
		_, err := c.Exec(ctx, `CREATE TABLE IF NOT EXISTS a (id BIGINT NOT NULL PRIMARY KEY, g INTEGER, v TEXT) PARTITION BY HASH (id) WITH (tablets = 6, replicas = 1)`)
		return err
	})
	for _, statement := range []string{
		`CREATE TABLE b (id BIGINT NOT NULL PRIMARY KEY, g INTEGER, v TEXT) PARTITION BY HASH (id) WITH (tablets = 6, replicas = 1)`,
		`INSERT INTO a WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 399) SELECT x.n * 400 + y.n, y.n % 40, 'value ' || CAST(x.n * 400 + y.n AS TEXT) FROM s x, s y`,
		`INSERT INTO b SELECT id, g, v FROM a`,
	} {
		if _, err := c.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// shapes are queries that run for minutes, each held up in another kind of
// operator.
var shapes = map[string]string{
	"scan":                     `SELECT x.id, x.v, y.v FROM a x JOIN b y ON x.g = y.g`, // whose reader does not read
	"join":                     `SELECT count(*) FROM a x JOIN b y ON x.g = y.g AND x.v || y.v < 'value 1value'`,
	"join without keys":        `SELECT count(*) FROM a x JOIN b y ON x.v || 'z' < y.v`,
	"aggregate":                `SELECT x.v, count(*), max(y.v) FROM a x JOIN b y ON x.g = y.g GROUP BY x.v`,
	"sort":                     `SELECT x.v, y.v FROM a x JOIN b y ON x.g = y.g ORDER BY y.v || x.v, x.id`,
	"window":                   `SELECT x.v, sum(y.id) OVER (PARTITION BY x.g ORDER BY y.v, x.id) FROM a x JOIN b y ON x.g = y.g`,
	"exchange between workers": `SELECT count(*) FROM (SELECT g, v FROM a UNION ALL SELECT g, v FROM b) x JOIN (SELECT g, v FROM b UNION ALL SELECT g, v FROM a) y ON x.g = y.g AND x.v || y.v < 'w'`,
}

// cancels are the ways to cancel a statement. Each runs one until it is told to
// cancel it and returns the error that its client got.
var cancels = map[string]func(ctx context.Context, c *cancelCase) error{
	"procedure": func(ctx context.Context, c *cancelCase) error {
		return c.byID(ctx, func(id string) error {
			n, err := c.other.Exec(ctx, "CALL skein.cancel_query('"+id+"')")
			if err == nil && n != 1 {
				err = fmt.Errorf("%d queries were cancelled", n)
			}
			return err
		})
	},
	"skein admin cancel": func(ctx context.Context, c *cancelCase) error {
		return c.byID(ctx, func(id string) error {
			if _, stderr, code := command(c.t, "", "admin", "cancel", id, "--addr", c.flight); code != 0 {
				return errors.New(stderr)
			}
			return nil
		})
	},
	"procedure of another gateway": func(ctx context.Context, c *cancelCase) error {
		return c.byID(ctx, func(id string) error {
			n, err := dial(c.t, c.impatient).Exec(ctx, "CALL skein.cancel_query('"+id+"')")
			if err == nil && n != 1 {
				err = fmt.Errorf("%d queries were cancelled", n)
			}
			return err
		})
	},
	"skein admin cancel at another gateway": func(ctx context.Context, c *cancelCase) error {
		return c.byID(ctx, func(id string) error {
			if _, stderr, code := command(c.t, "", "admin", "cancel", id, "--addr", c.impatient); code != 0 {
				return errors.New(stderr)
			}
			return nil
		})
	},
	"CancelFlightInfo of another gateway": func(ctx context.Context, c *cancelCase) error {
		return c.runInfo(ctx, func(_ *flightsql.Client, info *flight.FlightInfo) error {
			other, err := flightsql.NewClient(c.impatient, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return err
			}
			defer func() { _ = other.Close() }()
			r, err := other.CancelFlightInfo(ctx, &flight.CancelFlightInfoRequest{Info: info})
			if err == nil && r.Status != flight.CancelStatusCancelled {
				err = fmt.Errorf("the status is %s", r.Status)
			}
			return err
		})
	},
	"context": func(ctx context.Context, c *cancelCase) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c.gone = true
		return c.run(ctx, cancel)
	},
	"deadline": func(ctx context.Context, c *cancelCase) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		c.gone = true
		return c.run(ctx, func() { <-ctx.Done() })
	},
	"CancelFlightInfo": func(ctx context.Context, c *cancelCase) error {
		return c.runInfo(ctx, func(sql *flightsql.Client, info *flight.FlightInfo) error {
			r, err := sql.CancelFlightInfo(ctx, &flight.CancelFlightInfoRequest{Info: info})
			if err == nil && r.Status != flight.CancelStatusCancelled {
				err = fmt.Errorf("the status is %s", r.Status)
			}
			return err
		})
	},
	"closed connection": func(ctx context.Context, c *cancelCase) error {
		c.gone = true
		return c.runInfo(ctx, func(sql *flightsql.Client, _ *flight.FlightInfo) error { return sql.Close() })
	},
	"ADBC": func(ctx context.Context, c *cancelCase) error {
		c.gone = true
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s := statement(c.t, connectADBC(c.t, c.flight), c.statement)
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			c.ready(context.WithoutCancel(ctx))
			cancel()
		})
		r, _, err := s.ExecuteQuery(ctx)
		if err != nil {
			return err
		}
		defer r.Release()
		for r.Next() {
		}
		return r.Err()
	},
	"statement timeout": func(ctx context.Context, c *cancelCase) error {
		c.flight = c.impatient
		err := c.run(ctx, func() {})
		c.cancelled = time.Now()
		return err
	},
}

// cancelCase runs one statement and has it cancelled.
type cancelCase struct {
	t         *testing.T
	flight    string
	impatient string // a gateway with a statement timeout
	statement string
	other     *client.Client
	watcher   *watcher
	stalled   bool // the client reads one batch and no more
	gone      bool // it was the client that broke off, in whatever words
	cancelled time.Time
}

// ready waits until the statement's fragments are at work on several workers.
func (c *cancelCase) ready(ctx context.Context) {
	c.watcher.await(ctx, "starting", func(busy, _ int, memory int64) bool { return busy > 1 && (memory > 1<<20 || c.stalled) })
	c.cancelled = time.Now()
}

// run runs the statement and calls cancel when it is at work.
func (c *cancelCase) run(ctx context.Context, cancel func()) error {
	own := dial(c.t, c.flight)
	defer func() { _ = own.Close() }()
	var group sync.WaitGroup
	defer group.Wait()
	cancelled := make(chan struct{})
	group.Go(func() {
		defer close(cancelled)
		c.ready(context.WithoutCancel(ctx))
		cancel()
		if ctx.Err() != nil {
			c.cancelled = time.Now()
		}
	})
	r, err := own.Run(ctx, c.statement)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		if b, err := r.Next(); err != nil || b == nil {
			return err
		}
		if c.stalled {
			<-cancelled
			c.watcher.await(context.WithoutCancel(ctx), "ending", allIdle)
		}
	}
}

func (c *cancelCase) byID(ctx context.Context, cancel func(id string) error) error {
	var failed error
	err := c.run(ctx, func() {
		var ids []string
		if ids, failed = query(ctx, c.other, "SELECT query_id FROM skein.queries WHERE statement NOT LIKE '%skein.queries%'"); failed == nil {
			c.cancelled = time.Now()
			failed = cancel(ids[0])
		}
	})
	if failed != nil {
		c.t.Fatalf("cancelling: %v", failed)
	}
	return err
}

func (c *cancelCase) runInfo(ctx context.Context, cancel func(*flightsql.Client, *flight.FlightInfo) error) error {
	sql, err := flightsql.NewClient(c.flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = sql.Close() }()
	info, err := sql.Execute(ctx, c.statement)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		c.ready(ctx)
		failed <- cancel(sql, info)
	}()
	r, err := sql.DoGet(ctx, info.Endpoint[0].Ticket)
	if err == nil {
		for r.Next() {
		}
		err = r.Err()
		r.Release()
	}
	if f := <-failed; f != nil {
		return fmt.Errorf("cancelling: %w", f)
	}
	return flightproto.FromStatus(err)
}

func allIdle(busy, _ int, memory int64) bool { return busy == 0 && memory == 0 }

// However a statement is cancelled, and whatever it is doing, the workers are idle
// soon.
func TestWorkersAreIdleSoonAfterACancel(t *testing.T) {
	c := startCluster(t, "--query-memory", "64MiB")
	c.awaitWorkers()
	other := dial(t, c.flight)
	cancelTables(t, other)
	w := watch(t, c)
	var workers []string
	for _, conn := range w.conns {
		workers = append(workers, conn.Address())
	}
	impatient := freePorts(t, 1)[0]
	start(t, "gateway", "--workers", strings.Join(workers, ","), "--flight", impatient, "--http", "", "--statement-timeout", "3s")
	eventually(t, "reaching the second gateway", func(ctx context.Context) error {
		_, err := query(ctx, dial(t, impatient), "SELECT count(*) FROM b")
		return err
	})
	measure := func(name, statement string, cancel func(context.Context, *cancelCase) error) {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			w := &watcher{t: t, conns: w.conns, Authority: w.Authority}
			w.await(ctx, "getting idle", allIdle)
			one := &cancelCase{t: t, flight: c.flight, impatient: impatient, statement: statement, other: other, watcher: w, stalled: statement == shapes["scan"]}
			err := cancel(ctx, one)
			w.await(ctx, "ending", allIdle)
			took := time.Since(one.cancelled)
			if err == nil || !one.gone && !strings.Contains(err.Error(), "57014") {
				t.Errorf("the client got %v", err)
			}
			if took > idleWithin {
				t.Errorf("the workers were idle after %s only", took)
			}
			t.Logf("idle after %s", took.Round(time.Millisecond/10))
		})
	}
	for name, statement := range shapes {
		measure("shape/"+name, statement, cancels["procedure"])
	}
	for name, cancel := range cancels {
		measure("way/"+name, shapes["exchange between workers"], cancel)
	}
}
