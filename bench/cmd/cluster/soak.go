package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"skein/bench/internal/compare"
	"skein/bench/internal/skeinproc"
	"skein/bench/tpch"
)

// What may be left of a round when its clients are gone.
const (
	spareGoroutines = 30       // of all processes: what comes and goes by itself
	spareMemory     = 64 << 20 // bytes beside one tenth
	settleTime      = 30 * time.Second
)

// mixed are the queries that clients ask in turn: of keys, of few rows, of a whole
// table, joins colocated and not, limits that stop early.
func mixed() ([]string, error) {
	list := []string{
		"SELECT * FROM orders WHERE o_orderkey = 7",
		"SELECT c_name, c_acctbal FROM customer WHERE c_custkey IN (1, 2, 3)",
		"SELECT count(*) FROM supplier",
		"SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_orderkey < 40 ORDER BY l_orderkey, l_linenumber",
		"SELECT o_orderkey, o_totalprice FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 10",
		"SELECT n_name, count(*) FROM customer, nation WHERE c_nationkey = n_nationkey GROUP BY n_name ORDER BY n_name",
		"SELECT count(*) FROM orders WHERE o_custkey NOT IN (SELECT c_custkey FROM customer WHERE c_acctbal > 0)",
		"SELECT max(k) FROM (SELECT o_orderkey AS k FROM orders LIMIT 5) AS few WHERE k < 0",
	}
	for _, n := range []int{1, 3, 4, 6, 12, 14} {
		text, err := tpch.Query(n)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// soak lets many clients ask mixed queries, in two rounds. No answer may be an
// error or differ, and the second round may leave no more than the first.
func soak(ctx context.Context, o *options, cluster *skeinproc.Cluster, client *skeinproc.Client) error {
	if o.clients == 0 {
		return nil
	}
	texts, err := mixed()
	if err != nil {
		return err
	}
	want, err := answersTo(ctx, client, texts)
	if err != nil {
		return err
	}
	var after [2]skeinproc.Usage
	for round := range after {
		end := time.Now().Add(o.soak)
		asked, err := crowd(ctx, o, cluster.Address, texts, want, func() bool { return time.Now().Before(end) })
		if err != nil {
			return err
		}
		most := skeinproc.Usage{Goroutines: 1 << 40, Memory: 1 << 60}
		if round == 1 {
			most.Goroutines = after[0].Goroutines + spareGoroutines
			most.Memory = after[0].Memory + after[0].Memory/10 + spareMemory
		}
		if after[round], err = settle(ctx, cluster, most); err != nil {
			return err
		}
		fmt.Printf("%d clients for %s: %d answers, then %d goroutines and %d MiB\n",
			o.clients, o.soak, asked, after[round].Goroutines, after[round].Memory>>20)
		if after[round].Goroutines > most.Goroutines || after[round].Memory > most.Memory {
			return fmt.Errorf("the second round left %+v, the first one %+v", after[1], after[0])
		}
	}
	return nil
}

// answersTo asks each query once.
func answersTo(ctx context.Context, client *skeinproc.Client, texts []string) ([]compare.Rows, error) {
	want := make([]compare.Rows, len(texts))
	for i, text := range texts {
		var err error
		if want[i], _, err = client.Query(ctx, text); err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
	}
	return want, nil
}

// crowd has clients ask as long as they should and returns the number of answers.
func crowd(ctx context.Context, o *options, address string, texts []string, want []compare.Rows, going func() bool) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asked atomic.Int64
	errs := make([]error, o.clients)
	var all sync.WaitGroup
	for i := range o.clients {
		all.Go(func() {
			if errs[i] = one(ctx, address, i, going, texts, want, &asked); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	for _, err := range errs { // the others were canceled
		if err != nil && !errors.Is(err, context.Canceled) {
			return 0, err
		}
	}
	return asked.Load(), ctx.Err()
}

func one(ctx context.Context, address string, i int, going func() bool, texts []string, want []compare.Rows, asked *atomic.Int64) (err error) {
	client, err := skeinproc.Dial(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for n := i; going(); n++ {
		at := n % len(texts)
		rows, _, err := client.Query(ctx, texts[at])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("client %d: %s: %w", i, texts[at], err)
		}
		if d := compare.Difference(rows, want[at], nil); d != "" {
			return fmt.Errorf("client %d: %s: other rows: %s", i, texts[at], d)
		}
		asked.Add(1)
	}
	return nil
}

// settle waits until the cluster uses no more than a bound and no less than the
// moment before: what clients leave behind goes away by and by.
func settle(ctx context.Context, cluster *skeinproc.Cluster, most skeinproc.Usage) (skeinproc.Usage, error) {
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	last := skeinproc.Usage{Goroutines: 1 << 40}
	for deadline := time.Now().Add(settleTime); ; {
		now, err := cluster.Usage(ctx)
		if err != nil {
			return now, err
		}
		quiet := now.Goroutines >= last.Goroutines && now.Goroutines <= most.Goroutines && now.Memory <= most.Memory
		if quiet || time.Now().After(deadline) {
			return now, nil
		}
		last = now
		select {
		case <-pace.C:
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}
