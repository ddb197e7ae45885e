package consensus

import (
	"context"
	"slices"
	"sync"
	"time"
)

// vouchLife is how old the knowledge that other replicas are well may be when
// the members of a group are changed because of it.
const vouchLife = 5 * time.Second

// Vouching is the knowledge of which replicas of a tablet are well. It comes in
// rounds: the node of the group's leader opens one, and the nodes whose replicas
// are well and in touch with the group vouch for them.
type Vouching struct {
	Round uint64 `json:"round,omitempty"`
	// Vouched are the replicas, by Raft id, that were vouched for in this Round.
	Vouched []uint64 `json:"vouched,omitempty"`
}

// open returns the round after an earlier one, unless that is not the last.
func (v Vouching) open(after uint64) (Vouching, bool) {
	if v.Round != after {
		return v, false
	}
	return Vouching{Round: after + 1}, true
}

// with adds a replica to those vouched for in a round, unless that is over or the
// replica is there already.
func (v Vouching) with(round, replica uint64) (Vouching, bool) {
	if v.Round != round || slices.Contains(v.Vouched, replica) {
		return v, false
	}
	return Vouching{Round: round, Vouched: append(slices.Clone(v.Vouched), replica)}, true
}

// most reports whether a majority of the members was vouched for.
func (v Vouching) most(members []uint64) bool {
	well := 0
	for _, id := range members {
		if slices.Contains(v.Vouched, id) {
			well++
		}
	}
	return len(members) > 0 && well > len(members)/2
}

// vouchers remembers when a node has opened rounds of vouching, by the id of the
// replica that is to join. It is safe for concurrent use.
type vouchers struct {
	mu    sync.Mutex
	asked map[uint64]time.Time
}

func newVouchers() *vouchers { return &vouchers{asked: map[uint64]time.Time{}} }

// fresh opens a round with ask if there is none that this node has opened within
// vouchLife, and reports whether there was one.
func (v *vouchers) fresh(ctx context.Context, joins uint64, ask func(context.Context) error) (bool, error) {
	v.mu.Lock()
	asked, ok := v.asked[joins]
	if ok && time.Since(asked) < vouchLife {
		v.mu.Unlock()
		return true, nil
	}
	v.asked[joins] = time.Now()
	v.mu.Unlock()
	return false, ask(ctx)
}

func (v *vouchers) forget(joins uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.asked, joins)
}
