package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/bench/internal/compare"
	"skein/bench/internal/skeinproc"
)

// rebalanceTime bounds how long a further worker may take to be filled.
const rebalanceTime = 30 * time.Minute

// rebalance starts a further worker of a cluster that holds TPC-H and measures how
// long it takes until that has its part of the replicas, while clients ask mixed
// queries, none of which may fail or give other rows.
func rebalance(ctx context.Context, o *options) error {
	return onCluster(ctx, o, o.workers, func(cluster *skeinproc.Cluster, client *skeinproc.Client) error {
		texts, err := mixed()
		if err != nil {
			return err
		}
		want, err := answersTo(ctx, client, texts)
		if err != nil {
			return err
		}
		round := func(going func() bool) (float64, error) {
			began := time.Now()
			asked, err := askers(ctx, o, cluster.Address, texts, want, going)
			return float64(asked) / time.Since(began).Seconds(), err
		}
		end := time.Now().Add(o.soak)
		before, err := round(func() bool { return time.Now().Before(end) })
		if err != nil {
			return err
		}
		var over atomic.Bool
		var during float64
		var took time.Duration
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			during, err = round(func() bool { return !over.Load() })
			return err
		})
		group.Go(func() (err error) {
			defer over.Store(true)
			took, err = fill(ctx, o, cluster, client)
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		fmt.Printf("worker %d was filled in %.1f s; %d clients got %.1f answers/s before and %.1f meanwhile, none failed\n",
			o.workers+1, took.Seconds(), o.clients, before, during)
		return nil
	})
}

// fill starts the further worker and waits until it has its part, less one replica,
// and nothing moves.
func fill(ctx context.Context, o *options, cluster *skeinproc.Cluster, client *skeinproc.Client) (time.Duration, error) {
	began := time.Now()
	if err := cluster.StartSpare(); err != nil {
		return 0, err
	}
	pace := time.NewTicker(200 * time.Millisecond)
	defer pace.Stop()
	state := fmt.Sprintf(`SELECT (SELECT count(*) FROM skein.replicas WHERE node_id = %d) >= (SELECT count(*) FROM skein.replicas) / %d - 1
AND (SELECT count(*) FROM skein.jobs WHERE state = 'running') = 0`, o.workers+1, o.workers+1)
	for time.Since(began) < rebalanceTime {
		rows, _, err := client.Query(ctx, state)
		if err != nil {
			return 0, err
		}
		if fmt.Sprint(rows[0][0]) == "true" {
			return time.Since(began), nil
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, fmt.Errorf("worker %d was not filled within %s", o.workers+1, rebalanceTime)
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

// askers has clients ask as long as they should and returns the number of answers.
func askers(ctx context.Context, o *options, address string, texts []string, want []compare.Rows, going func() bool) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asked atomic.Int64
	errs := make([]error, o.clients)
	var all sync.WaitGroup
	for i := range o.clients {
		all.Go(func() {
			if errs[i] = askOn(ctx, address, i, going, texts, want, &asked); errs[i] != nil {
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

func askOn(ctx context.Context, address string, i int, going func() bool, texts []string, want []compare.Rows, asked *atomic.Int64) (err error) {
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
