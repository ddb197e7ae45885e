package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/cmd/skein/internal/client"
)

// breaker passes connections on to a server and breaks each off after a random
// number of bytes, until it has broken off as many as it may. Half of them break
// as the server answers, so that what it has done goes unheard.
type breaker struct {
	listener net.Listener
	to       string
	left     atomic.Int64 // connections to break off
	limit    int          // of the bytes before the end of a connection
	mu       sync.Mutex
	random   *rand.Rand
	wg       sync.WaitGroup
}

func startBreaker(t *testing.T, to string, seed uint64, breaks, limit int) *breaker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{listener: l, to: to, limit: limit, random: rand.New(rand.NewPCG(seed, 1))}
	b.left.Store(int64(breaks))
	b.wg.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.pass(from) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		b.wg.Wait()
	})
	return b
}

func (b *breaker) draw(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.random.IntN(n)
}

func (b *breaker) pass(from net.Conn) {
	to, err := net.Dial("tcp", b.to)
	if err != nil {
		_ = from.Close()
		return
	}
	hangUp := sync.OnceFunc(func() {
		_, _ = from.Close(), to.Close()
	})
	// From so many bytes of the client on, the next piece of either side is not
	// passed on any more.
	after, answers := int64(b.draw(b.limit)), b.draw(2) == 0
	var sent atomic.Int64
	breaks := func(answer bool) bool {
		return sent.Load() > after && answers == answer && b.left.Add(-1) >= 0
	}
	var both sync.WaitGroup
	copyBytes := func(dst, src net.Conn, answer bool) {
		defer hangUp()
		buffer := make([]byte, 32<<10)
		for {
			n, err := src.Read(buffer)
			if !answer {
				sent.Add(int64(n))
			}
			if n > 0 && breaks(answer) {
				return
			}
			if _, writeErr := dst.Write(buffer[:n]); err != nil || writeErr != nil {
				return
			}
		}
	}
	both.Go(func() { copyBytes(to, from, false) })
	both.Go(func() { copyBytes(from, to, true) })
	both.Wait()
}

// numbersFile is a CSV file of the numbers below n.
func numbersFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,name\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,name of %d\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "numbers.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadThroughBrokenConnections(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	const rows = 60_000
	file := numbersFile(t, rows)
	for i, tc := range []struct {
		name, ddl string
		args      []string
		breaks    int // pauses between the attempts of one write grow
		limit     int
	}{
		{"one write", "CREATE TABLE %s (id BIGINT, name TEXT)", nil, 5, 1_000_000},
		{"one write, several tablets", "CREATE TABLE %s (id BIGINT, name TEXT) PARTITION BY HASH (id) WITH (tablets = 3)", nil, 5, 1_000_000},
		{"workers", "CREATE TABLE %s (id BIGINT, name TEXT)", []string{"--workers", "3", "--batch-rows", "2000"}, 12, 200_000},
		{"workers, several tablets", "CREATE TABLE %s (id BIGINT, name TEXT) PARTITION BY HASH (id) WITH (tablets = 3)", []string{"--workers", "3", "--batch-rows", "2000"}, 12, 200_000},
		{"workers, with a key", "CREATE TABLE %s (id BIGINT PRIMARY KEY, name TEXT)", []string{"--workers", "2", "--batch-rows", "2000"}, 12, 200_000},
	} {
		seed := uint64(time.Now().UnixNano())
		t.Run(tc.name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			table := "numbers_" + strconv.Itoa(i)
			mustExec(t, c, fmt.Sprintf(tc.ddl, table))
			b := startBreaker(t, server.flight, seed, tc.breaks, tc.limit)
			args := append([]string{"load", file, "--addr", b.listener.Addr().String(), "--table", table}, tc.args...)
			out, stderr, code := command(t, "", args...)
			// The connection may also break before the first write; nothing is stored then.
			for range 12 {
				if code != 0 && !strings.Contains(stderr, "trying again") {
					out, stderr, code = command(t, "", args...)
				}
			}
			if code != 0 {
				t.Fatalf("code %d, %s", code, stderr)
			}
			if !strings.Contains(out, fmt.Sprintf("%d rows into", rows)) {
				t.Errorf("it says %q", out)
			}
			if !strings.Contains(stderr, "trying again") {
				t.Errorf("nothing broke: %s", stderr)
			}
			got, err := query(testContext(t), c, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM "+table)
			if want := fmt.Sprintf("%d,%d,0,%d", rows, rows, rows-1); err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("the table has %v, %v; want %s", got, err, want)
			}
		})
	}
}

// A server that is killed during a load and started again is waited for.
func TestLoadThroughRestart(t *testing.T) {
	t.Parallel()
	data, addr := t.TempDir(), freePorts(t, 1)[0]
	server := startDev(t, data, "--flight", addr)
	mustExec(t, dial(t, addr), "CREATE TABLE numbers (id BIGINT, name TEXT)")
	const rows = 200_000
	file := numbersFile(t, rows)
	load := start(t, "load", file, "--addr", addr, "--table", "numbers", "--workers", "2", "--batch-rows", "1000")
	c := dial(t, addr)
	for n := "0"; n == "0"; { // until some writes are stored
		got, err := query(testContext(t), c, "SELECT count(*) FROM numbers")
		if err != nil {
			t.Fatal(err)
		}
		n = got[0]
	}
	server.kill()
	startDev(t, data, "--flight", addr)
	<-load.exited
	if load.err != nil {
		t.Fatalf("%v: %s", load.err, load.stderr.String())
	}
	got, err := query(testContext(t), dial(t, addr), "SELECT count(*), count(DISTINCT id) FROM numbers")
	if want := fmt.Sprintf("%d,%d", rows, rows); err != nil || got[0] != want {
		t.Errorf("the table has %v, %v; want %s\n%s", got, err, want, load.stderr.String())
	}
}

// The server's part: a write happens once, and answers as it did the first time.
func TestNamedWrites(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	mustExec(t, c, "CREATE TABLE named (id BIGINT) PARTITION BY HASH (id) WITH (tablets = 2)")
	ids, err := query(testContext(t), c, "SELECT tablet_id FROM skein.tablets WHERE table_name = 'named'")
	if err != nil {
		t.Fatal(err)
	}
	tablets := strings.Join(ids, ",")
	ingest := func(options map[string]string) (int64, error) {
		builder := array.NewInt64Builder(memory.DefaultAllocator)
		defer builder.Release()
		builder.AppendValues([]int64{1, 2, 3, 4, 5, 6, 7}, nil)
		column := builder.NewArray()
		defer column.Release()
		schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil)
		batch := array.NewRecordBatch(schema, []arrow.Array{column}, 7)
		defer batch.Release()
		rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Release()
		return c.IngestWithOptions(testContext(t), client.Table{Name: "named"}, client.Append, options, rows)
	}
	named := func(id, attempt, tablets string) map[string]string {
		return map[string]string{"skein.write_id": id, "skein.write_attempt": attempt, "skein.write_tablets": tablets}
	}
	for _, tc := range []struct {
		name    string
		options map[string]string
		err     string
		total   string
	}{
		{"the first attempt", named("a", "0", tablets), "", "7"},
		{"a repetition", named("a", "1", tablets), "", "7"},
		{"another one", named("a", "5", tablets), "", "7"},
		{"another write", named("b", "0", tablets), "", "14"},
		{"attempts before that never came", named("c", "3", tablets), "", "21"},
		{"a late attempt", named("c", "2", tablets), "", "21"},
		{"other tablets at first", named("d", "0", "99999"), "40001", "21"},
		{"other tablets later", named("d", "1", "99999"), "55000", "21"},
		{"no tablets", map[string]string{"skein.write_id": "e"}, "go together", "21"},
		{"a negative attempt", named("e", "-1", tablets), "22023", "21"},
		{"too many attempts", named("e", "100", tablets), "22023", "21"},
		{"an unknown option", map[string]string{"skein.write": "e"}, "the options are", "21"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := ingest(tc.options)
			switch {
			case tc.name == "a late attempt":
				// It was ended when a later one came.
				if err == nil {
					t.Error("it is stored")
				}
			case tc.err == "" && (err != nil || n != 7):
				t.Errorf("%d, %v", n, err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%v, want an error with %s", err, tc.err)
			}
			got, err := query(testContext(t), c, "SELECT count(*) FROM named")
			if err != nil || got[0] != tc.total {
				t.Errorf("%v, %v; want %s rows", got, err, tc.total)
			}
		})
	}
}

func TestIngestOnceGivesUp(t *testing.T) {
	t.Parallel()
	nobody := freePorts(t, 1)[0]
	failures := 0
	_, err := client.IngestOnce(context.Background(), func() (*client.Client, error) { return client.Dial(nobody) },
		client.Table{Name: "t"}, client.FailOnConflict, client.Retry{Elapsed: 200 * time.Millisecond, Notify: func(error) { failures++ }},
		func() (array.RecordReader, error) { return nil, errors.New("must not be opened") })
	var gone *client.UnreachableError
	if !errors.As(err, &gone) || !gone.Refused || failures == 0 {
		t.Errorf("%v after %d failures", err, failures)
	}
}
