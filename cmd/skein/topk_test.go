package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"skein/cmd/skein/internal/client"
	"skein/flightproto"
	"skein/internal/faultproxy"
)

// topKTable is a table whose best rows are all on one tablet, so that a top-k asks
// that one for more than its first portion. It returns the query of the best.
func topKTable(t *testing.T, c *client.Client, name string, replicas int) (text string, want []string) {
	t.Helper()
	const rows, groups, k = 60_000, 6, 5000
	eventually(t, "creating a table", func(ctx context.Context) error {
		_, err := c.Exec(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (id BIGINT, g BIGINT, v BIGINT) PARTITION BY HASH (g) WITH (tablets = %d, replicas = %d)",
			name, groups, replicas))
		return err
	})
	mustExec(t, c, fmt.Sprintf("INSERT INTO %s SELECT n, n %% %d, CASE WHEN n %% %d = 0 THEN %d + n ELSE n END FROM generate_series(1, %d) AS s(n)",
		name, groups, groups, 10*rows, rows))
	for n := rows; len(want) < k; n -= groups {
		want = append(want, fmt.Sprintf("%d,%d", n, 10*rows+n))
	}
	return fmt.Sprintf("SELECT id, v FROM %s ORDER BY v DESC LIMIT %d", name, k), want
}

// TestTopKOutlivesItsWorkers breaks refills, then kills a worker that is asked for
// one: where there are other replicas the rows are exact; where there are none,
// the statement fails and says why.
func TestTopKOutlivesItsWorkers(t *testing.T) {
	t.Parallel()
	cluster, proxies := startFaultyCluster(t)
	c := dial(t, cluster.flight)
	text, want := topKTable(t, c, "safe", 3)
	lonely, _ := topKTable(t, c, "lonely", 1)
	refill := isAction(flightproto.ActionRefill)
	check := func(what, text string) error {
		t.Helper()
		got, err := query(testContext(t), c, text)
		switch {
		case err != nil && !sqlstateText.MatchString(err.Error()):
			t.Errorf("%s: an error without SQLSTATE: %v", what, err)
		case err == nil && !slices.Equal(got, want):
			t.Errorf("%s: %d rows, the first are %v", what, len(got), got[:min(3, len(got))])
		}
		return err
	}
	// Whoever is asked for more, the request or its answer is lost once.
	for _, f := range []faultproxy.Fault{
		{Kind: faultproxy.Reset, Place: faultproxy.Request}, {Kind: faultproxy.Drop, Place: faultproxy.Response},
		{Kind: faultproxy.Reset, Place: faultproxy.End},
	} {
		f.Match = refill
		fired := 0
		for _, p := range proxies {
			fired -= p.Fired()
			p.Arm(&f)
		}
		err := check(string(f.Kind), text)
		for _, p := range proxies {
			fired += p.Fired()
			p.Arm(nil)
		}
		if fired == 0 {
			t.Errorf("%s: nobody was asked for more", f.Kind)
		}
		if err != nil && f.Kind == faultproxy.Reset {
			t.Errorf("%s of %s: %v", f.Kind, f.Place, err)
		}
	}
	w := watch(t, cluster)
	w.await(testContext(t), "getting idle", allIdle)
	killed := -1
	for i, p := range proxies {
		p.Arm(&faultproxy.Fault{Match: func(method string, request []byte) bool {
			if killed < 0 && refill(method, request) {
				killed = i
				cluster.workers[i].kill()
			}
			return false
		}})
	}
	if err := check("killed in a refill", text); err != nil {
		t.Errorf("with two replicas left: %v", err)
	}
	if killed < 0 {
		t.Fatal("nobody was asked for more")
	}
	if err := check("killed, the only replica", lonely); err == nil {
		t.Error("rows came from a tablet that is gone")
	}
}
