package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"skein/cmd/skein/internal/client"
)

// oneColumn is a reader of one batch with one column.
func oneColumn(t *testing.T, name string, dt arrow.DataType, fill func(array.Builder)) array.RecordReader {
	t.Helper()
	builder := array.NewBuilder(memory.DefaultAllocator, dt)
	defer builder.Release()
	fill(builder)
	schema := arrow.NewSchema([]arrow.Field{{Name: name, Type: dt, Nullable: true}}, nil)
	column := builder.NewArray()
	defer column.Release()
	r, err := array.NewRecordReader(schema, []arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Release)
	return r
}

func text(values ...string) func(array.Builder) {
	return func(b array.Builder) { b.(*array.StringBuilder).AppendValues(values, nil) }
}

// TestIngestRefusesWhatSQLCannotHold sends values and names that Arrow can
// carry and a table cannot: each is refused with its own SQLSTATE and its
// column, and leaves no table behind.
func TestIngestRefusesWhatSQLCannotHold(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	long := strings.Repeat("n", 256)
	wide := func(b array.Builder) {
		b.(*array.Decimal256Builder).Append(decimal256.FromI64(10).Mul(decimal256.GetScaleMultiplier(40)))
	}
	for name, tc := range map[string]struct {
		rows  array.RecordReader
		table string
		want  []string
	}{
		"bytes in text":     {oneColumn(t, "x", arrow.BinaryTypes.String, text("ok", "\xff\xfe")), "refused", []string{"22021", `column "x"`, "not valid UTF-8"}},
		"bytes in a view":   {oneColumn(t, "x", arrow.BinaryTypes.StringView, func(b array.Builder) { b.(*array.StringViewBuilder).Append("\xff") }), "refused", []string{"22021"}},
		"NUL in text":       {oneColumn(t, "x", arrow.BinaryTypes.String, text("a\x00b")), "refused", []string{"22021", "NUL"}},
		"no time of day":    {oneColumn(t, "x", arrow.FixedWidthTypes.Time64us, func(b array.Builder) { b.(*array.Time64Builder).Append(-5) }), "refused", []string{"22008", `column "x"`}},
		"lossy nanoseconds": {oneColumn(t, "x", arrow.FixedWidthTypes.Time64ns, func(b array.Builder) { b.(*array.Time64Builder).Append(1) }), "refused", []string{"22008", `column "x"`}},
		"wide decimal":      {oneColumn(t, "x", &arrow.Decimal256Type{Precision: 60, Scale: 0}, wide), "refused", []string{"22003", `column "x"`, "38 digits"}},
		"long column name":  {oneColumn(t, long, arrow.BinaryTypes.String, text("a")), "refused", []string{"42622"}},
		"NUL in a name":     {oneColumn(t, "a\x00b", arrow.BinaryTypes.String, text("a")), "refused", []string{"22021"}},
		"long table name":   {oneColumn(t, "x", arrow.BinaryTypes.String, text("a")), long, []string{"42622"}},
	} {
		_, err := c.Ingest(testContext(t), client.Table{Name: tc.table}, client.Create, tc.rows)
		if err == nil {
			t.Errorf("%s: stored", name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
		if n := strings.Count(err.Error(), "SQLSTATE"); n != 1 {
			t.Errorf("%s: %q has %d SQLSTATEs", name, err, n)
		}
	}
	if _, err := query(testContext(t), c, "SELECT * FROM refused"); err == nil || !strings.Contains(err.Error(), "42P01") {
		t.Errorf("the refused table: %v", err)
	}
}

func TestIngestOfNoBatches(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	rows, err := array.NewRecordReader(batchSchema, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Release()
	if n, err := c.Ingest(testContext(t), client.Table{Name: "none"}, client.Create, rows); n != 0 || err != nil {
		t.Fatalf("ingest: %d rows, %v", n, err)
	}
	if got, err := query(testContext(t), c, "SELECT count(*) FROM none"); err != nil || got[0] != "0" {
		t.Errorf("the table made of no batches: %v, %v", got, err)
	}

	// Other drivers send nothing at all, not even the table's name.
	bare, err := flight.NewClientWithMiddleware(server.flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Close() }()
	put, err := bare.DoPut(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := put.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_, err = put.Recv()
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), "send one empty record batch") {
		t.Errorf("an empty DoPut: %v", err)
	}
}

// TestConcurrentCreateAppend lets many ingests that create a missing table
// start at once: one creates it, all are stored.
func TestConcurrentCreateAppend(t *testing.T) {
	t.Parallel()
	const writers = 8
	server := startDev(t, ":memory:")
	errs := make([]error, writers)
	var group sync.WaitGroup
	for i := range writers {
		c := dial(t, server.flight)
		rows := oneColumn(t, "x", arrow.BinaryTypes.String, text(fmt.Sprint(i)))
		group.Go(func() {
			_, errs[i] = c.Ingest(context.Background(), client.Table{Name: "shared"}, client.CreateAppend, rows)
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	got, err := query(testContext(t), dial(t, server.flight), "SELECT count(*) FROM shared")
	if err != nil || got[0] != fmt.Sprint(writers) {
		t.Errorf("%v rows, %v", got, err)
	}
}

// TestDropWhileReading drops a table under a query that has begun to stream:
// it ends with all rows or with an error that says what happened.
func TestDropWhileReading(t *testing.T) {
	t.Parallel()
	server := startDev(t, t.TempDir())
	c := dial(t, server.flight)
	mustExec(t, c, crashTables["single"])
	big := batch{"big", "single", 400_000}
	if err := big.ingest(testContext(t), c); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(testContext(t), "SELECT tag, n FROM single")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	rows := b.NumRows()
	mustExec(t, dial(t, server.flight), "DROP TABLE single")
	for err == nil {
		if b, err = r.Next(); b == nil {
			break
		}
		rows += b.NumRows()
	}
	switch {
	case err == nil && rows != int64(big.rows):
		t.Errorf("the query ended well with %d of %d rows", rows, big.rows)
	case err != nil && !strings.Contains(err.Error(), "42P01"):
		t.Errorf("the query ended with %v", err)
	}
}

func TestShellWithoutTerminal(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	for _, args := range [][]string{{"-c", ""}, {"-c", " ; "}, {}} {
		out, errs, code := command(t, "", append([]string{"sql", "--addr", server.flight}, args...)...)
		if out != "" || errs != "" || code != 0 {
			t.Errorf("skein sql %q printed %q and %q, code %d", args, out, errs, code)
		}
	}
	out, errs, code := command(t, "", "sql", "--addr", server.flight, "-c", "SELECT 1 / 0")
	if out != "" || !strings.Contains(errs, "22012") || code != 1 {
		t.Errorf("a failing query printed %q and %q, code %d", out, errs, code)
	}
}

// TestResultsFitClients reads rows of very different sizes: no message may be
// larger than what ADBC's drivers take.
func TestResultsFitClients(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	conn := connectADBC(t, server.flight)
	rows := readADBC(t, statement(t, conn, "SELECT length(s) FROM (SELECT repeat('x', a) AS s FROM (VALUES (1), (1), (1), (1), (7000000), (7000000), (7000000), (15000000), (1)) t(a)) u"))
	if len(rows) != 9 {
		t.Errorf("%d rows", len(rows))
	}
	rows = readADBC(t, statement(t, conn, "SELECT repeat('x', a) AS s FROM (VALUES (1), (1), (1), (1), (7000000), (7000000), (7000000), (15000000), (1)) t(a)"))
	for i, want := range []int{1, 1, 1, 1, 7_000_000, 7_000_000, 7_000_000, 15_000_000, 1} {
		if i >= len(rows) || len(rows[i]) != want {
			t.Fatalf("row %d of %d is not of %d bytes", i, len(rows), want)
		}
	}
}

// TestDamagedDirectory overwrites files that the Raft library reads: the
// process refuses to start and says so on one line, without a stack trace or
// control characters.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	startDev(t, data).stop()
	for _, pattern := range []string{"NODEHOST.ID", "dragonboat.ds", "*/*/logdb-*/OPTIONS-*", "*/*/logdb-*/*.sst"} {
		files, err := filepath.Glob(filepath.Join(data, "worker", "raft", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, bytes.Repeat([]byte{0x9b, 1, 0xff, 7}, 100), 0o600); err != nil {
				t.Fatal(err)
			}
			_, errs, code := command(t, "", "dev", "--data", data, "--flight", "127.0.0.1:0", "--http", "")
			line := errs[strings.LastIndex(strings.TrimSpace(errs), "\n")+1:]
			if code != 1 || !strings.HasPrefix(line, "skein: starting the worker in "+data) || strings.Contains(errs, "goroutine ") || strings.ContainsAny(errs, "\x1b\x01\x07") {
				t.Errorf("%s: code %d, %q", filepath.Base(file), code, errs)
			}
			if err := os.WriteFile(file, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	startDev(t, data).stop()
}
