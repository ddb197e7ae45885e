package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/cmd/skein/internal/client"
)

// TestDamagedReplicaIsRebuilt flips bits in the store of the worker that leads a
// tablet. Queries are answered from the other replicas, without an error at the
// client, and the damaged one is replaced.
func TestDamagedReplicaIsRebuilt(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	conn := dial(t, c.flight)
	eventually(t, "creating the table", func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS t (n BIGINT PRIMARY KEY, v TEXT) WITH (tablets = 1, replicas = 3)")
		return err
	})
	const rows = 20_000
	eventually(t, "loading", func(ctx context.Context) error { return ingestRandom(ctx, conn, rows) })
	leader, old := "", ""
	eventually(t, "finding the leader", func(ctx context.Context) error {
		found, err := query(ctx, conn, "SELECT node_id, replica_id FROM skein.replicas WHERE role = 'leader'")
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("leaders: %v", found)
		}
		if err == nil {
			leader, old, _ = strings.Cut(found[0], ",")
		}
		return err
	})
	node := int(leader[0] - '0')
	damageStore(t, c.data[node-1])
	want := fmt.Sprintf("%d,%d,%d", rows, rows*(rows-1)/2, rows*64)
	ask := func(ctx context.Context) {
		t.Helper()
		got, err := query(ctx, conn, "SELECT count(*), sum(n), sum(length(v)) FROM t")
		if err != nil || len(got) != 1 || got[0] != want {
			t.Fatalf("read %v, want %s: %v", got, want, err)
		}
	}
	ask(testContext(t))
	eventually(t, "rebuilding", func(ctx context.Context) error {
		ask(ctx)
		found, err := query(ctx, conn, "SELECT replica_id, row_count FROM skein.replicas WHERE node_id = "+leader)
		if err == nil && (len(found) != 1 || strings.HasPrefix(found[0], old+",") || !strings.HasSuffix(found[0], fmt.Sprint(",", rows))) {
			err = fmt.Errorf("replica %s on node %s is still %v", old, leader, found)
		}
		return err
	})
	c.gateway.stop()
	for _, w := range c.workers {
		w.stop()
	}
}

// ingestRandom loads rows with texts of 64 random letters.
func ingestRandom(ctx context.Context, conn *client.Client, rows int) error {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "v", Type: arrow.BinaryTypes.String},
	}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 64)
	for n := range rows {
		for i := range text {
			text[i] = byte(' ' + random.IntN(95))
		}
		builder.Field(0).(*array.Int64Builder).Append(int64(n))
		builder.Field(1).(*array.StringBuilder).Append(string(text))
	}
	record := builder.NewRecordBatch()
	defer record.Release()
	reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{record})
	if err != nil {
		return err
	}
	defer reader.Release()
	_, err = conn.Ingest(ctx, client.Table{Name: "t"}, client.Append, reader)
	return err
}

// damageStore flips bits in the large values of a running worker.
func damageStore(t *testing.T, data string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(data, "store", "*.vlog"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no value log in %s: %v", data, err)
	}
	flipped := 0
	for _, name := range logs {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for at := 100_000; at < len(content); at += 1000 {
			if content[at] == 0 {
				continue
			}
			if _, err := f.WriteAt([]byte{content[at] ^ 8}, int64(at)); err != nil {
				t.Fatal(err)
			}
			flipped++
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if flipped == 0 {
		t.Fatal("the value log is empty")
	}
}
