package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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
			asked, err := crowd(ctx, o, cluster.Address, texts, want, going)
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
