// Command clients compares how fast clients load: ADBC from Python against ADBC
// from Go, the same rows into tables alike, in turns.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/bench/internal/skeinproc"
)

// What is to be reached.
const (
	leastShare = 0.8 // of Go's rate, from Python
	mostTime   = 2 * time.Minute
)

// batchRows is the size of the batches that both send.
const batchRows = 65536

//go:embed ingest.py
var script string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainError(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func mainError(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("clients", flag.ContinueOnError)
	binary := fs.String("skein", "../bin/skein", "Skein's binary")
	python := fs.String("python", "../examples/.cache/venv/bin/python", "a Python with adbc-driver-flightsql and pyarrow, as `make test-clients` makes it")
	rows := fs.Int("rows", 5_000_000, "rows of each load")
	rounds := fs.Int("rounds", 3, "loads of each client; the fastest counts")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || *rows < 1 || *rounds < 1 {
		return fmt.Errorf("unexpected arguments %v, or no rows or rounds", fs.Args())
	}
	data, err := os.MkdirTemp("", "skein-clients-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	server, err := skeinproc.Start(ctx, *binary, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := skeinproc.Dial(server.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	uri := "grpc://" + server.Address
	batches := makeRows(*rows)
	best := map[string]time.Duration{}
	for range *rounds {
		for name, load := range map[string]func() (time.Duration, error){
			"Go":     func() (time.Duration, error) { return loadGo(ctx, uri, batches) },
			"Python": func() (time.Duration, error) { return loadPython(ctx, *python, uri, *rows) },
		} {
			for _, text := range []string{"DROP TABLE IF EXISTS loaded", "CREATE TABLE loaded (id BIGINT PRIMARY KEY, grp INTEGER, name TEXT)"} {
				if err := client.Exec(ctx, text); err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
			}
			took, err := load()
			if err != nil {
				return fmt.Errorf("loading from %s: %w", name, err)
			}
			if before, ok := best[name]; !ok || took < before {
				best[name] = took
			}
		}
	}
	return report(best, *rows)
}

func report(best map[string]time.Duration, rows int) error {
	for _, name := range []string{"Go", "Python"} {
		fmt.Printf("ADBC ingest, %-6s %d rows in %.2f s, %.0f rows/s\n", name, rows, best[name].Seconds(), float64(rows)/best[name].Seconds())
	}
	share := best["Go"].Seconds() / best["Python"].Seconds()
	fmt.Printf("Python reaches %.0f %% of Go's rate (at least %.0f %%)\n", 100*share, 100*leastShare)
	if share < leastShare || best["Python"] > mostTime {
		return errors.New("Python loads too slowly")
	}
	return nil
}

// makeRows is what ingest.py sends.
func makeRows(rows int) []arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "grp", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	var out []arrow.RecordBatch
	for from := 0; from < rows; from += batchRows {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := from; i < min(rows, from+batchRows); i++ {
			b.Field(0).(*array.Int64Builder).Append(int64(i))
			b.Field(1).(*array.Int32Builder).Append(int32(i))
			b.Field(2).(*array.StringBuilder).Append("name of " + strconv.Itoa(i))
		}
		out = append(out, b.NewRecordBatch())
		b.Release()
	}
	return out
}

func loadGo(ctx context.Context, uri string, batches []arrow.RecordBatch) (took time.Duration, err error) {
	db, err := flightsql.NewDriver(memory.DefaultAllocator).NewDatabase(map[string]string{adbc.OptionKeyURI: uri})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	connection, err := db.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	statement, err := connection.NewStatement()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	for key, value := range map[string]string{
		adbc.OptionKeyIngestTargetTable: "loaded", adbc.OptionKeyIngestMode: adbc.OptionValueIngestModeAppend,
	} {
		if err := statement.SetOption(key, value); err != nil {
			return 0, err
		}
	}
	rows, err := array.NewRecordReader(batches[0].Schema(), batches)
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	began := time.Now()
	if err := statement.BindStream(ctx, rows); err != nil {
		return 0, err
	}
	_, err = statement.ExecuteUpdate(ctx)
	return time.Since(began), err
}

func loadPython(ctx context.Context, python, uri string, rows int) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, python, "-c", script, uri, "loaded", strconv.Itoa(rows))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return time.Duration(seconds * float64(time.Second)), err
}
