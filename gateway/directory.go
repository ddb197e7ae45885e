package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
	"skein/sqlstate"
)

const (
	watchWait     = 20 * time.Second // one long poll of the metadata version
	watchBackoff  = 200 * time.Millisecond
	statusEvery   = 2 * time.Second // how often sizes and leaders are read
	metaTimeout   = 10 * time.Second
	statusTimeout = 2 * time.Second
	// quorumTimeout bounds asking the quorum where any replica's answer may do.
	quorumTimeout = 2 * time.Second
	// recoverBase is the first wait before a repeated attempt; it doubles.
	recoverBase = 50 * time.Millisecond
)

// directory follows the meta group and the workers: it holds the latest
// snapshot of tables, nodes, leaders and sizes, replaced as a whole whenever
// one of them changes. Readers take a snapshot once per attempt and so see one
// metadata version throughout.
type directory struct {
	workers   *workers
	seeds     []string
	log       *slog.Logger
	observe   func(clock uint64)
	leases    *leases
	authority *flightproto.Authority

	current atomic.Pointer[snapshot]

	mu      sync.Mutex // serialises updates of current
	stop    context.CancelFunc
	running sync.WaitGroup
	kick    chan struct{} // asks for a status round now
}

func newDirectory(w *workers, seeds []string, log *slog.Logger, observe func(uint64), secret string, leases *leases) *directory {
	ctx, stop := context.WithCancel(context.Background())
	d := &directory{workers: w, seeds: slices.Clone(seeds), log: log, observe: observe, leases: leases, stop: stop, kick: make(chan struct{}, 1)}
	d.current.Store(newSnapshot(&consensus.MetaSnapshot{}, nil))
	d.authority = flightproto.NewAuthority(func() []catalog.SigningKey { return d.Current().meta.Keys }, secret, time.Now)
	d.running.Go(func() { d.watch(ctx) })
	d.running.Go(func() { d.poll(ctx) })
	return d
}

// Close stops following and waits for it.
func (d *directory) Close() {
	d.stop()
	d.running.Wait()
}

// Current is the latest snapshot; it may be empty before the first contact.
func (d *directory) Current() *snapshot { return d.current.Load() }

// Ready reports whether metadata is known and a worker answers.
func (d *directory) Ready() error {
	snap := d.Current()
	if len(snap.meta.Nodes) == 0 {
		return fmt.Errorf("no worker of %v has told the cluster's metadata yet", d.seeds)
	}
	for _, n := range snap.meta.InUse() {
		if !d.workers.isDown(n.FlightAddress) {
			return nil
		}
	}
	return fmt.Errorf("none of the %d workers can be reached", len(snap.meta.Nodes))
}

// addresses lists the workers to ask: known ones and seeds, likely ones first.
func (d *directory) addresses() []string {
	var list []string
	for _, n := range d.Current().meta.InUse() {
		list = append(list, n.FlightAddress)
	}
	for _, s := range d.seeds {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return d.workers.order(list)
}

// meta asks the meta group through one worker after the other until one
// answers. Requests carry ids, so asking twice is harmless.
func (d *directory) meta(ctx context.Context, command string, request, reply any) error {
	return d.metaAt(ctx, d.addresses(), command, request, reply)
}

// metaAt is meta for commands that only some workers can carry out.
func (d *directory) metaAt(ctx context.Context, addresses []string, command string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", command, err)
	}
	envelope, err := d.authority.SignMeta(gatewayUser)
	if err != nil {
		return err
	}
	last := error(sqlstate.New(sqlstate.CannotConnectNow, "no worker is known"))
	for _, addr := range addresses {
		conn, err := d.workers.conn(addr)
		if err != nil {
			last = err
			continue
		}
		resp, err := conn.Meta(ctx, command, body, envelope)
		if err == nil {
			d.observe(resp.GetClock())
			if err := json.Unmarshal(resp.GetBody(), reply); err != nil {
				return fmt.Errorf("decoding the reply to %s: %w", command, err)
			}
			return nil
		}
		last = err
		if ctx.Err() != nil || flightproto.ReasonOf(err) != flightproto.Unavailable {
			break
		}
		d.workers.failed(addr, err)
		d.Kick() // others lead what it led
	}
	return fmt.Errorf("asking the meta group to %s: %w", command, last)
}

// Fresh reads the metadata through the meta group's quorum; when that cannot
// be had it falls back to the last known one, for reads of known tables go on
// without it. Without any metadata the error is returned.
func (d *directory) Fresh(ctx context.Context) (*snapshot, error) {
	asking, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	err := d.refresh(asking, false)
	snap := d.Current()
	if err != nil && len(snap.meta.Nodes) == 0 {
		return nil, err
	}
	if err != nil {
		d.log.Warn("metadata could not be refreshed, serving the last known", "version", snap.meta.Version, "err", err)
	}
	return snap, ctx.Err()
}

func (d *directory) refresh(ctx context.Context, stale bool) error {
	reply := &consensus.MetaSnapshot{}
	if err := d.meta(ctx, consensus.MetaReadSnapshot, consensus.SnapshotRequest{Stale: stale}, reply); err != nil {
		return err
	}
	d.update(func(old *snapshot) *snapshot {
		if reply.Version < old.meta.Version {
			return old // a slower answer than one already here
		}
		return newSnapshot(reply, old.status)
	})
	return nil
}

func (d *directory) update(change func(old *snapshot) *snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current.Store(change(d.current.Load()))
}

// watch keeps the snapshot's metadata at the newest version.
func (d *directory) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.watchOnce(ctx); err != nil && ctx.Err() == nil {
			d.log.Debug("following the metadata", "err", err)
			sleep(ctx, jitter(watchBackoff))
		}
	}
}

func (d *directory) watchOnce(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, watchWait+metaTimeout)
	defer cancel()
	known := d.Current().meta.Version
	if known == 0 {
		return d.refresh(asking, false)
	}
	var reply consensus.WatchReply
	err := d.meta(asking, consensus.MetaWatch, consensus.WatchRequest{After: known, WaitMillis: watchWait.Milliseconds()}, &reply)
	if err != nil || reply.Version <= known {
		return err
	}
	// Any replica that has the announced version will do.
	return d.refresh(asking, true)
}

// poll keeps leaders and sizes current.
func (d *directory) poll(ctx context.Context) {
	timer := time.NewTicker(statusEvery)
	defer timer.Stop()
	for {
		d.pollOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.kick:
		}
	}
}

// Kick asks for a round of status soon: a write has changed sizes.
func (d *directory) Kick() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

func (d *directory) pollOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	nodes := d.Current().meta.InUse()
	answers := make([]*flightproto.WorkerStatus, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() {
			conn, err := d.workers.conn(n.FlightAddress)
			if err != nil {
				return
			}
			envelope, err := d.authority.Sign(flightproto.Claims{User: gatewayUser, Subject: flightproto.SubjectStatus, Expires: time.Now().Add(time.Minute)})
			if err != nil {
				return // a snapshot without keys has no workers to ask for long
			}
			status, err := conn.Status(ctx, envelope)
			if err != nil {
				d.workers.failed(n.FlightAddress, err)
				return
			}
			d.observe(status.Clock)
			d.leases.renew(n.FlightAddress)
			answers[i] = status
		})
	}
	group.Wait()
	for _, addr := range d.leases.sweep() {
		d.log.Warn("a worker has not been heard of for long, its fragments are given up", "worker", addr)
		d.workers.suspect(addr)
	}
	answers = slices.DeleteFunc(answers, func(s *flightproto.WorkerStatus) bool { return s == nil })
	if len(answers) > 0 {
		d.update(func(old *snapshot) *snapshot { return newSnapshot(old.meta, answers) })
	}
}

// recover waits a little before what failed with cause is repeated and refreshes
// what may have been stale: from the quorum where a worker knows more than this
// node, for another worker may know no more. It fails only when ctx ends.
func (d *directory) recover(ctx context.Context, attempt int, cause error) error {
	sleep(ctx, jitter(recoverBase<<attempt))
	if err := ctx.Err(); err != nil {
		return causeOf(ctx, err)
	}
	refresh := func(stale bool, within time.Duration) error {
		asking, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return d.refresh(asking, stale)
	}
	if !outdated(cause) || refresh(false, quorumTimeout) != nil {
		if err := refresh(true, metaTimeout); err != nil {
			d.log.Debug("refreshing metadata before another attempt", "err", err)
		}
	}
	d.pollOnce(ctx)
	return nil
}

// jitter spreads a wait over half to one and a half times its length.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
