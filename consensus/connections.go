package consensus

import (
	"sync"

	"github.com/lni/dragonboat/v4/raftio"
)

// connections remembers which addresses the Raft transport could not reach when
// it last tried, for choices among peers that may be wrong.
type connections struct {
	mu   sync.Mutex
	down map[string]bool
}

var _ raftio.ISystemEventListener = (*connections)(nil)

func newConnections() *connections { return &connections{down: map[string]bool{}} }

// isDown reports whether an address was out of reach. One that was never tried
// is not.
func (c *connections) isDown(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down[address]
}

// ConnectionEstablished implements raftio.ISystemEventListener.
func (c *connections) ConnectionEstablished(info raftio.ConnectionInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.down, info.Address)
}

// ConnectionFailed implements raftio.ISystemEventListener.
func (c *connections) ConnectionFailed(info raftio.ConnectionInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[info.Address] = true
}

// The other events are of no interest.

func (*connections) NodeHostShuttingDown()                     {}
func (*connections) NodeUnloaded(raftio.NodeInfo)              {}
func (*connections) NodeDeleted(raftio.NodeInfo)               {}
func (*connections) NodeReady(raftio.NodeInfo)                 {}
func (*connections) MembershipChanged(raftio.NodeInfo)         {}
func (*connections) SendSnapshotStarted(raftio.SnapshotInfo)   {}
func (*connections) SendSnapshotCompleted(raftio.SnapshotInfo) {}
func (*connections) SendSnapshotAborted(raftio.SnapshotInfo)   {}
func (*connections) SnapshotReceived(raftio.SnapshotInfo)      {}
func (*connections) SnapshotRecovered(raftio.SnapshotInfo)     {}
func (*connections) SnapshotCreated(raftio.SnapshotInfo)       {}
func (*connections) SnapshotCompacted(raftio.SnapshotInfo)     {}
func (*connections) LogCompacted(raftio.EntryInfo)             {}
func (*connections) LogDBCompacted(raftio.EntryInfo)           {}
