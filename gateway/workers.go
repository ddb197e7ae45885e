package gateway

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"skein/catalog"
	"skein/flightproto"
	"skein/sqlstate"
)

// downFor is how long a worker that could not be reached is left alone while
// another replica can serve.
const downFor = 2 * time.Second

// workers knows the connections to workers and which of them failed lately.
type workers struct {
	pool *flightproto.Pool
	now  func() time.Time

	mu   sync.Mutex
	down map[string]time.Time // address -> when it may be tried first again
}

func newWorkers(pool *flightproto.Pool) *workers {
	return &workers{pool: pool, now: time.Now, down: make(map[string]time.Time)}
}

func (w *workers) conn(addr string) (*flightproto.Conn, error) { return w.pool.Conn(addr) }

// failed notes an error of a worker: only one that says the worker is away
// counts against it.
func (w *workers) failed(addr string, err error) {
	if flightproto.ReasonOf(err) != flightproto.Unavailable {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[addr] = w.now().Add(downFor)
}

// suspect leaves a worker alone for a while that gives no sign of life.
func (w *workers) suspect(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[addr] = w.now().Add(downFor)
}

func (w *workers) isDown(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, ok := w.down[addr]
	if ok && w.now().After(until) {
		delete(w.down, addr)
		return false
	}
	return ok
}

// place chooses the worker that serves tablets together: one that has a replica
// of each. It prefers the leader of the first when that is known and up, for it
// answers barriers without a hop; else a replica chosen by the tablet's hash, so
// that tablets spread; a replica thought down as last resort.
func (w *workers) place(snap *snapshot, tablets ...catalog.TabletID) (string, error) {
	replicas := snap.replicaAddresses(tablets...)
	if len(replicas) == 0 {
		return "", flightproto.WithReason(flightproto.StaleMetadata,
			sqlstate.New(sqlstate.CannotConnectNow, "no known worker has a replica of tablets %v", tablets))
	}
	leader, ok := snap.leaderAddress(tablets[0])
	if ok && slices.Contains(replicas, leader) && !w.isDown(leader) {
		return leader, nil
	}
	h := fnv.New32a()
	for shift := range 8 {
		h.Write([]byte{byte(tablets[0] >> (8 * shift))})
	}
	start := int(h.Sum32() % uint32(len(replicas)))
	for i := range replicas {
		if addr := replicas[(start+i)%len(replicas)]; !w.isDown(addr) {
			return addr, nil
		}
	}
	return replicas[start], nil
}

// order lists addresses with those thought down at the end.
func (w *workers) order(addresses []string) []string {
	up := make([]string, 0, len(addresses))
	var down []string
	for _, a := range addresses {
		if w.isDown(a) {
			down = append(down, a)
		} else {
			up = append(up, a)
		}
	}
	return append(up, down...)
}
