package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/exec"
	"skein/planner"
)

const (
	// maxAnalyzed bounds the queries of one statement that EXPLAIN ANALYZE shows:
	// an upsert looks keys up with one query after another.
	maxAnalyzed = 16
	// reportTimeout bounds waiting for one worker's report.
	reportTimeout = 10 * time.Second
)

// analysis gathers what the queries of one statement did, for EXPLAIN ANALYZE.
type analysis struct {
	timing bool
	runs   []*analyzedRun
	more   int // further queries, not kept
}

// add keeps a query that came to its end.
func (a *analysis) add(r *analyzedRun) {
	if len(a.runs) == maxAnalyzed {
		a.more++
		return
	}
	a.runs = append(a.runs, r)
}

// restart forgets what an attempt that is repeated did.
func (a *analysis) restart() {
	if a != nil {
		a.runs, a.more = nil, 0
	}
}

// analyzedRun is one query: its plan, where it ran and what it did.
type analyzedRun struct {
	root    planner.Node
	plan    *planner.Plan
	address []string // per fragment, "" for the gateway
	stats   map[planner.FragmentID]*planner.FragmentStats
	silent  []string // workers that did not report
	rows    uint64   // of the result
	began   time.Time
	time    time.Duration // from the start of fragments to the last row
}

// profiles are the measured fragments of the gateway.
type profiles struct {
	mu        sync.Mutex
	fragments map[planner.FragmentID]*exec.Profile
}

// profile measures a coordinator fragment if the query is analyzed.
func (r *run) profile(f *planner.Fragment) *exec.Profile {
	if r.analysis == nil {
		return nil
	}
	p := exec.NewProfile(r.analysis.timing)
	r.profiles.mu.Lock()
	defer r.profiles.mu.Unlock()
	if r.profiles.fragments == nil {
		r.profiles.fragments = make(map[planner.FragmentID]*exec.Profile)
	}
	r.profiles.fragments[f.ID] = p
	return p
}

// collect gathers what all fragments did once the root, now closed, came to its
// end. Workers that do not answer are named in the result: the statement itself
// has succeeded.
func (r *run) collect(ctx context.Context, root planner.Node, rows uint64, began time.Time) *analyzedRun {
	out := &analyzedRun{
		root: root, plan: r.plan, address: r.placed.address, rows: rows, began: began, time: time.Since(began),
		stats: make(map[planner.FragmentID]*planner.FragmentStats),
	}
	for id, p := range r.profiles.fragments {
		out.stats[id] = &planner.FragmentStats{Fragment: id, Time: out.time, Memory: p.Memory(), Operators: p.Operators()}
	}
	var mu sync.Mutex
	var group errgroup.Group
	for _, addr := range r.placed.workers {
		group.Go(func() error {
			fragments, err := r.fetchReport(ctx, addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.gw.log.Warn("a worker did not report on a measured query", "query_id", r.id, "worker", addr, "err", err)
				out.silent = append(out.silent, addr)
			}
			for i := range fragments {
				out.stats[fragments[i].Fragment] = &fragments[i]
			}
			return nil
		})
	}
	_ = group.Wait() // errors are in the result
	r.reported.Store(true)
	return out
}

func (r *run) fetchReport(ctx context.Context, addr string) ([]planner.FragmentStats, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	conn, err := r.gw.workers.conn(addr)
	if err != nil {
		return nil, err
	}
	fragments, err := conn.Report(ctx, r.id, r.authorization)
	if err != nil {
		return nil, err
	}
	for _, f := range fragments {
		if int(f.Fragment) >= len(r.placed.address) || r.placed.address[f.Fragment] != addr {
			return nil, fmt.Errorf("worker %s reports on fragment %d, which it does not run", addr, f.Fragment)
		}
	}
	return fragments, nil
}
