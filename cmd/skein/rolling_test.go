package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein/cmd/skein/internal/client"
)

var rollingRounds = flag.Int("rolling.rounds", 1, "how often TestRollingRestart restarts all processes")

// rollingTable is what clients work on while processes restart.
const rollingTable = `CREATE TABLE IF NOT EXISTS counters (client BIGINT, slot BIGINT, n BIGINT NOT NULL, PRIMARY KEY (client, slot))
	PARTITION BY HASH (client, slot) WITH (tablets = 4, replicas = 3)`

// rollingSlots are the rows of each client.
const rollingSlots = 8

// rollingClient writes, reads back, aggregates and ingests until stop, and
// returns how many statements that were. Every one must succeed, at the second
// gateway if the first is away, and reads must see what was written before.
func rollingClient(ctx context.Context, g *anyGateway, id int, stop <-chan struct{}) (done int, slowest time.Duration, err error) {
	statement := func(text string) (rows []string, err error) {
		began := time.Now()
		err = g.do(ctx, func(ctx context.Context, c *client.Client) error {
			rows, err = query(ctx, c, text)
			return err
		})
		done++
		slowest = max(slowest, time.Since(began))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		return rows, nil
	}
	expect := func(text, want string) error {
		rows, err := statement(text)
		if err == nil && (len(rows) != 1 || rows[0] != want) {
			err = fmt.Errorf("%s: %v instead of %s", text, rows, want)
		}
		return err
	}
	total := 0
	var last [rollingSlots]int
	for n := 1; ; n++ {
		select {
		case <-stop:
			return done, slowest, nil
		default:
		}
		slot := n % rollingSlots
		write := fmt.Sprintf("INSERT INTO counters VALUES (%d, %d, %d) ON CONFLICT (client, slot) DO UPDATE SET n = excluded.n", id, slot, n)
		if _, err := statement(write); err != nil {
			return done, slowest, err
		}
		total += n - last[slot]
		last[slot] = n
		if err := expect(fmt.Sprintf("SELECT n FROM counters WHERE client = %d AND slot = %d", id, slot), strconv.Itoa(n)); err != nil {
			return done, slowest, err
		}
		if err := expect(fmt.Sprintf("SELECT sum(n) FROM counters WHERE client = %d", id), strconv.Itoa(total)); err != nil {
			return done, slowest, err
		}
	}
}

// TestRollingRestart restarts three workers and two gateways one after the other
// while clients work: none of their statements fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2)
	f.awaitAll()
	mustExec(t, dial(t, f.flights[0]), rollingTable)
	const clients = 4
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*rollingRounds)*2*timeout)
	defer cancel()
	stop := make(chan struct{})
	var all sync.WaitGroup
	var statements, moves atomic.Int64
	var slowest [clients]time.Duration
	for i := range clients {
		all.Go(func() {
			g := f.dialAny(i)
			n, slow, err := rollingClient(ctx, g, i, stop)
			statements.Add(int64(n))
			moves.Add(int64(g.moves))
			slowest[i] = slow
			if err != nil {
				t.Errorf("client %d, after %d statements: %v", i, n, err)
			}
		})
	}
	var stops []time.Duration
	for range *rollingRounds {
		for i := range f.workers {
			began := time.Now()
			f.workers[i].stop()
			stops = append(stops, time.Since(began))
			f.startWorker(i)
			f.awaitWorker(i)
		}
		for i := range f.gateways {
			began := time.Now()
			f.gateways[i].stop()
			stops = append(stops, time.Since(began))
			f.startGateway(i)
			f.awaitGateway(i)
		}
	}
	close(stop)
	all.Wait()
	t.Logf("%d statements, none may fail; clients went to another gateway %d times; slowest statements %v; stops took %v",
		statements.Load(), moves.Load(), slowest, stops)
	if statements.Load() < 50 || moves.Load() == 0 {
		t.Errorf("%d statements and %d moves: nothing was put to the test", statements.Load(), moves.Load())
	}
	f.stopAll()
}
