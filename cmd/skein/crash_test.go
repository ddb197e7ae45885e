package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/cmd/skein/internal/client"
)

// batch is one ingest: rows (tag, 0) to (tag, rows-1), all or none of which
// are stored.
type batch struct {
	tag   string
	table string
	rows  int
}

// history is what the writers of a crash test have tried and been told.
type history struct {
	mu        sync.Mutex
	attempted map[string]batch
	acked     map[string]bool
}

func (h *history) attempt(b batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempted[b.tag] = b
}

func (h *history) ack(b batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked[b.tag] = true
}

var batchSchema = arrow.NewSchema([]arrow.Field{
	{Name: "tag", Type: arrow.BinaryTypes.String},
	{Name: "n", Type: arrow.PrimitiveTypes.Int64},
}, nil)

// reader streams the batch's rows as several record batches.
func (b batch) reader() (array.RecordReader, error) {
	const chunk = 4096
	var records []arrow.RecordBatch
	builder := array.NewRecordBuilder(memory.DefaultAllocator, batchSchema)
	defer builder.Release()
	for from := 0; from < b.rows; from += chunk {
		for n := from; n < min(from+chunk, b.rows); n++ {
			builder.Field(0).(*array.StringBuilder).Append(b.tag)
			builder.Field(1).(*array.Int64Builder).Append(int64(n))
		}
		records = append(records, builder.NewRecordBatch())
	}
	return array.NewRecordReader(batchSchema, records)
}

func (b batch) ingest(ctx context.Context, c *client.Client) error {
	rows, err := b.reader()
	if err != nil {
		return err
	}
	defer rows.Release()
	n, err := c.Ingest(ctx, client.Table{Name: b.table}, client.Append, rows)
	if err == nil && n != int64(b.rows) {
		return fmt.Errorf("%d rows acknowledged of %d", n, b.rows)
	}
	return err
}

// check compares what tables hold with what was promised.
func (h *history) check(ctx context.Context, c *client.Client, tables []string) error {
	found := map[string]bool{}
	for _, table := range tables {
		rows, err := query(ctx, c, "SELECT tag, count(*), min(n), max(n), sum(n) FROM "+table+" GROUP BY tag")
		if err != nil {
			return fmt.Errorf("reading %s: %w", table, err)
		}
		for _, row := range rows {
			tag, counts, _ := strings.Cut(row, ",")
			b, ok := h.attempted[tag]
			if !ok || b.table != table {
				return fmt.Errorf("%s holds batch %q, which nobody wrote to it", table, tag)
			}
			if want := fmt.Sprintf("%d,0,%d,%d", b.rows, b.rows-1, b.rows*(b.rows-1)/2); counts != want {
				return fmt.Errorf("batch %s in %s is (count, min, max, sum) %s, want %s", tag, table, counts, want)
			}
			found[tag] = true
		}
	}
	for tag := range h.acked {
		if !found[tag] {
			return fmt.Errorf("batch %s was acknowledged and is lost", tag)
		}
	}
	return nil
}

// crashTables are written to in turn: one participant, and several.
var crashTables = map[string]string{
	"single": "CREATE TABLE single (tag TEXT, n BIGINT, PRIMARY KEY (tag, n)) WITH (tablets = 1)",
	"spread": "CREATE TABLE spread (tag TEXT, n BIGINT, PRIMARY KEY (tag, n)) PARTITION BY HASH (n) WITH (tablets = 3)",
}

// TestCrashDuringIngest kills the server in the middle of ingests, again and
// again, and checks after each restart that every acknowledged batch is there
// once and whole, and no other batch in part.
func TestCrashDuringIngest(t *testing.T) {
	t.Parallel()
	const rounds, writers = 20, 2
	data, tables := t.TempDir(), []string{"single", "spread"}
	r := rand.New(rand.NewPCG(20, 26))
	h := &history{attempted: map[string]batch{}, acked: map[string]bool{}}
	server := startDev(t, data)
	for _, table := range tables {
		mustExec(t, dial(t, server.flight), crashTables[table])
	}
	for round := range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		// The kill comes when so many batches have begun, so that it meets them
		// at any age.
		begun := make(chan struct{}, 1000)
		killAfter := r.IntN(5)
		var group sync.WaitGroup
		for w := range writers {
			c, seed := dial(t, server.flight), r.Uint64()
			group.Go(func() {
				sizes := rand.New(rand.NewPCG(seed, 1))
				for i := 0; ; i++ {
					b := batch{tag: fmt.Sprintf("r%d-w%d-%d", round, w, i), table: tables[(w+i)%2], rows: 1 + sizes.IntN(30)*sizes.IntN(1000)}
					h.attempt(b)
					begun <- struct{}{}
					if b.ingest(ctx, c) != nil {
						return
					}
					h.ack(b)
				}
			})
		}
		for range killAfter + writers {
			select {
			case <-begun:
			case <-ctx.Done():
				t.Fatalf("round %d: writers are stuck:\n%s", round, server.stderr.String())
			}
		}
		server.kill()
		group.Wait()
		server = startDev(t, data)
		if err := h.check(ctx, dial(t, server.flight), tables); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		cancel()
	}
	server.stop()
	t.Logf("%d batches attempted, %d acknowledged", len(h.attempted), len(h.acked))
	if len(h.acked) == 0 || len(h.acked) == len(h.attempted) {
		t.Errorf("%d of %d batches acknowledged: nothing was put to the test", len(h.acked), len(h.attempted))
	}
}

func TestHistoryCheckFindsLosses(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	for _, ddl := range crashTables {
		mustExec(t, c, ddl)
	}
	whole, half := batch{"whole", "single", 10}, batch{"half", "spread", 10}
	for _, b := range []batch{whole, half} {
		if err := b.ingest(testContext(t), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		attempted []batch
		acked     []string
		want      string
	}{
		{[]batch{whole, half}, []string{"whole", "half"}, ""},
		{[]batch{whole, half}, nil, ""},
		{[]batch{whole, {"half", "spread", 11}}, nil, "batch half in spread"},
		{[]batch{whole}, nil, "which nobody wrote"},
		{[]batch{whole, half}, []string{"gone"}, "acknowledged and is lost"},
	} {
		h := &history{attempted: map[string]batch{}, acked: map[string]bool{}}
		for _, b := range tc.attempted {
			h.attempt(b)
		}
		for _, tag := range tc.acked {
			h.ack(batch{tag: tag})
		}
		err := h.check(testContext(t), c, []string{"single", "spread"})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, acknowledged %v: %v, want %q", tc.attempted, tc.acked, err, tc.want)
		}
	}
}

// cluster is three workers and a gateway.
type cluster struct {
	t        *testing.T
	members  []string // of --members
	data     []string
	settings []string // of all
	workers  []*process
	gateway  *process
	flight   string
}

// startCluster starts three workers and a gateway, all with further settings.
func startCluster(t *testing.T, settings ...string) *cluster {
	return startClusterOf(t, 3, settings...)
}

// startClusterOf is startCluster with so many workers.
func startClusterOf(t *testing.T, size int, settings ...string) *cluster {
	t.Helper()
	ports := freePorts(t, 2*size+2)
	c := &cluster{t: t, settings: settings, workers: make([]*process, size), flight: ports[2*size]}
	var flights []string
	for i := range size {
		c.members = append(c.members, fmt.Sprintf("%d=%s/%s", i+1, ports[2*i], ports[2*i+1]))
		c.data = append(c.data, t.TempDir())
		flights = append(flights, ports[2*i+1])
	}
	for i := range size {
		c.startWorker(i)
	}
	c.gateway = start(t, append([]string{"gateway", "--workers", strings.Join(flights, ","), "--flight", c.flight, "--http", "",
		"--log-level", "warn"}, settings...)...)
	return c
}

func (c *cluster) startWorker(i int) {
	c.workers[i] = start(c.t, append([]string{"worker", "--cluster", "test", "--node-id", strconv.Itoa(i + 1), "--data", c.data[i],
		"--members", strings.Join(c.members, ","), "--init-if-empty", "--log-level", "warn"}, c.settings...)...)
}

// awaitWorkers waits until all workers serve: one that is just starting does not
// end on a signal as it should.
func (c *cluster) awaitWorkers() {
	c.t.Helper()
	for _, member := range c.members {
		_, flight, _ := strings.Cut(member, "/")
		eventually(c.t, "reaching "+member, func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", flight)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
}

// eventually retries an operation that may fail while leaders are elected.
func eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx := testContext(t)
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestClusterSurvivesWorkers kills each worker of three in turn: queries and
// writes go on with the others, and nothing acknowledged is lost.
func TestClusterSurvivesWorkers(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	conn := dial(t, c.flight)
	table := "CREATE TABLE IF NOT EXISTS spread (tag TEXT, n BIGINT, PRIMARY KEY (tag, n)) PARTITION BY HASH (n) WITH (tablets = 3, replicas = 3)"
	eventually(t, "creating the table", func(ctx context.Context) error {
		_, err := conn.Exec(ctx, table)
		return err
	})
	h := &history{attempted: map[string]batch{}, acked: map[string]bool{}}
	write := func(tag string) {
		t.Helper()
		attempt := 0
		eventually(t, "writing "+tag, func(ctx context.Context) error {
			attempt++ // a failed write may have happened: the next has a name of its own
			b := batch{fmt.Sprintf("%s-%d", tag, attempt), "spread", 1000}
			h.attempt(b)
			err := b.ingest(ctx, conn)
			if err == nil {
				h.ack(b)
			}
			return err
		})
	}
	check := func(when string) {
		t.Helper()
		eventually(t, "reading "+when, func(ctx context.Context) error { return h.check(ctx, conn, []string{"spread"}) })
	}
	write("before")
	check("before")
	for i := range c.workers {
		c.workers[i].kill()
		write(fmt.Sprintf("without-%d", i+1))
		check(fmt.Sprintf("without worker %d", i+1))
		c.startWorker(i)
		write(fmt.Sprintf("with-%d-again", i+1))
	}
	check("at the end")
	c.gateway.stop()
	c.awaitWorkers()
	for _, w := range slices.Backward(c.workers) {
		w.stop()
	}
	if len(h.acked) != 1+2*len(c.workers) {
		t.Errorf("%d batches acknowledged", len(h.acked))
	}
}
