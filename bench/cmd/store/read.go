package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"skein/bench/internal/skeinproc"
	"skein/bench/tpch"
)

// scans measures aggregates and a large result.
func (b *bench) scans(ctx context.Context, client *skeinproc.Client, d *duckFigures) error {
	q6, err := tpch.Query(6)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		name, text string
		duck       float64
		bound      float64
	}{{"sum of a BIGINT column", scanQuery, d.scan, 2}, {"TPC-H Q6", q6, d.q6, 2.5}} {
		took, err := best(b.runs, func() (time.Duration, error) {
			_, took, err := client.Query(ctx, q.text)
			return took, err
		})
		if err != nil {
			return err
		}
		b.report.atMost(q.name, "ms", took, "DuckDB", q.duck, q.bound)
	}
	var bytes int64
	took, err := best(b.runs, func() (time.Duration, error) {
		began := time.Now()
		var rows int64
		rows, bytes, err = client.Drain(ctx, "SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber, l_shipdate FROM lineitem")
		if err == nil && rows != b.data.rows {
			err = fmt.Errorf("%d rows came, %d are stored", rows, b.data.rows)
		}
		return time.Since(began), err
	})
	if err != nil {
		return err
	}
	b.report.atLeast("DoGet of 5 columns", "MB/s", float64(bytes)/took/1000, "", 0, 400)
	return nil
}

// connects measures how long a new client waits for its first row.
func (b *bench) connects(ctx context.Context, address string) error {
	took, err := best(b.runs, func() (took time.Duration, err error) {
		began := time.Now()
		client, err := skeinproc.Dial(address)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		rows, _, err := client.Query(ctx, "SELECT 1 AS one")
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("%d rows of one", len(rows))
		}
		return time.Since(began), err
	})
	if err != nil {
		return err
	}
	b.report.atMost("connection and first query", "ms", took, "", 0, 20)
	return nil
}

// Load of the point queries.
const (
	pointWarm    = 500
	pointAlone   = 3000
	pointClients = 16
	pointTime    = 5 * time.Second
)

// points measures prepared selects of one row by its key.
func (b *bench) points(ctx context.Context, address string) error {
	var keys []pointKey
	random := rand.New(rand.NewPCG(1, 2))
	for range 1 << 14 {
		keys = append(keys, b.data.key(random))
	}
	if _, err := pointClient(ctx, address, keys[:pointWarm], 0); err != nil {
		return err
	}
	alone, err := pointClient(ctx, address, keys[:pointAlone], 0)
	if err != nil {
		return err
	}
	slices.Sort(alone)
	micros := func(p float64) float64 { return float64(alone[int(p*float64(len(alone)-1))].Nanoseconds()) / 1000 }
	b.report.atMost("prepared point select, p50", "us", micros(0.5), "", 0, 700)
	b.report.atMost("prepared point select, p99", "us", micros(0.99), "", 0, 3000)
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	total := 0
	began := time.Now()
	for i := range pointClients {
		group.Go(func() error {
			own := keys[i*len(keys)/pointClients : (i+1)*len(keys)/pointClients]
			took, err := pointClient(ctx, address, own, pointTime)
			mu.Lock()
			defer mu.Unlock()
			total += len(took)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	b.report.atLeast("prepared point selects, 16 clients", "1/s", float64(total)/time.Since(began).Seconds(), "", 0, 6000)
	return nil
}

// pointKey is a key of lineitem and a value to check the answer by.
type pointKey struct {
	order int64
	line  int32
	part  int64
}

func (l *lineitem) key(random *rand.Rand) pointKey {
	b := l.batches[random.IntN(len(l.batches))]
	row := random.IntN(int(b.NumRows()))
	column := func(name string) int { return l.schema.FieldIndices(name)[0] }
	return pointKey{
		b.Column(column("l_orderkey")).(*array.Int64).Value(row),
		b.Column(column("l_linenumber")).(*array.Int32).Value(row),
		b.Column(column("l_partkey")).(*array.Int64).Value(row),
	}
}

// pointClient selects the keys one after the other over a connection of its
// own, again and again for a while if one is given, and returns each time.
func pointClient(ctx context.Context, address string, keys []pointKey, lasting time.Duration) (took []time.Duration, err error) {
	client, err := skeinproc.Dial(address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	p, err := client.Prepare(ctx, "SELECT l_partkey, l_quantity, l_shipdate, l_comment FROM lineitem WHERE l_orderkey = $1 AND l_linenumber = $2")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	for start := time.Now(); ; {
		for _, key := range keys {
			began := time.Now()
			part, err := p.Point(ctx, key.order, key.line)
			if err != nil {
				return took, err
			}
			took = append(took, time.Since(began))
			if part != key.part {
				return took, fmt.Errorf("line %d of order %d is of part %d, not %d", key.line, key.order, part, key.part)
			}
			if lasting > 0 && time.Since(start) > lasting {
				return took, nil
			}
		}
		if lasting == 0 {
			return took, nil
		}
	}
}
