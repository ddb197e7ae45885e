package consensus

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/google/uuid"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"skein/catalog"
)

// addressBook tells the Raft transport where nodes listen. Group memberships,
// which live in logs and snapshots for ever, name nodes by an identifier made
// of the cluster's name and the node's id; only this book knows addresses, so a
// node may come back at another address without any change of membership.
type addressBook struct {
	cluster string

	mu       sync.RWMutex
	nodes    map[string]nodeAddress     // by target
	replicas map[raftio.NodeInfo]string // (shard, replica) -> target
	targets  map[catalog.NodeID]string  // for logs and lookups
	ids      map[string]catalog.NodeID  // reverse of targets
	followed map[catalog.NodeID]string  // addresses in the metadata that were seen
	expelled map[catalog.NodeID]bool    // nodes that were removed
}

// nodeAddress is an address and the connection keys derived from it: groups are
// spread over a few connections so that one tablet's bulk load does not sit in
// front of another's heartbeats.
type nodeAddress struct {
	address string
	keys    [streamsPerPeer]string
}

const streamsPerPeer = 4

// newAddressBook makes a book for the cluster whose name space is given, see
// Identity.
func newAddressBook(cluster string) *addressBook {
	return &addressBook{
		cluster:  cluster,
		nodes:    map[string]nodeAddress{},
		replicas: map[raftio.NodeInfo]string{},
		targets:  map[catalog.NodeID]string{},
		ids:      map[string]catalog.NodeID{},
		followed: map[catalog.NodeID]string{},
		expelled: map[catalog.NodeID]bool{},
	}
}

// target is the membership name of a node.
func (b *addressBook) target(node catalog.NodeID) string {
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], uint64(node))
	space := uuid.NewSHA1(uuid.NameSpaceOID, []byte("skein:"+b.cluster))
	return uuid.NewSHA1(space, id[:]).String()
}

// deploymentID separates clusters on the wire: messages of another are dropped.
func deploymentID(cluster string) uint64 {
	h := fnv.New64a()
	h.Write([]byte("skein:" + cluster))
	return h.Sum64() | 1
}

// set records where a node listens.
func (b *addressBook) set(node catalog.NodeID, address string) {
	target := b.target(node)
	entry := nodeAddress{address: address}
	for i := range entry.keys {
		entry.keys[i] = fmt.Sprintf("%s#%d", address, i)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[target] = entry
	b.targets[node] = target
	b.ids[target] = node
}

// follow takes over the addresses that nodes have registered but own's, and but
// those that were told at the start, until they change.
func (b *addressBook) follow(nodes []NodeInfo, own catalog.NodeID, told map[catalog.NodeID]string) {
	for _, n := range nodes {
		if n.State == NodeRemoved {
			b.mu.Lock()
			b.expelled[n.ID] = true
			b.mu.Unlock()
		}
		b.mu.RLock()
		last, seen := b.followed[n.ID]
		b.mu.RUnlock()
		if last == n.RaftAddress || n.ID == own {
			continue
		}
		b.mu.Lock()
		b.followed[n.ID] = n.RaftAddress
		b.mu.Unlock()
		if _, configured := told[n.ID]; seen || !configured {
			b.set(n.ID, n.RaftAddress)
		}
	}
}

// isExpelled reports whether a node was removed from the cluster.
func (b *addressBook) isExpelled(node catalog.NodeID) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.expelled[node]
}

// nodesAt are the nodes that are thought to listen at an address.
func (b *addressBook) nodesAt(address string) []catalog.NodeID {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var found []catalog.NodeID
	for target, entry := range b.nodes {
		if entry.address == address {
			found = append(found, b.ids[target])
		}
	}
	return found
}

// known reports whether the node's address has been set.
func (b *addressBook) known(node catalog.NodeID) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	_, ok := b.targets[node]
	return ok
}

// Create implements config.NodeRegistryFactory.
func (b *addressBook) Create(string, uint64, config.TargetValidator) (raftio.INodeRegistry, error) {
	return b, nil
}

// Close implements raftio.INodeRegistry.
func (b *addressBook) Close() error { return nil }

// Add implements raftio.INodeRegistry. The transport also calls it for every
// message received, so the common case takes only the read lock.
func (b *addressBook) Add(shard, replica uint64, target string) {
	key := raftio.GetNodeInfo(shard, replica)
	b.mu.RLock()
	have := b.replicas[key]
	b.mu.RUnlock()
	if have != "" {
		// A replica never moves to another node, so the first word stands.
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.replicas[key] == "" {
		b.replicas[key] = target
	}
}

// Remove implements raftio.INodeRegistry.
func (b *addressBook) Remove(shard, replica uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.replicas, raftio.GetNodeInfo(shard, replica))
}

// RemoveShard implements raftio.INodeRegistry.
func (b *addressBook) RemoveShard(shard uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.replicas {
		if key.ShardID == shard {
			delete(b.replicas, key)
		}
	}
}

// Resolve implements raftio.INodeRegistry: the address of a replica and the key
// of the connection to use.
func (b *addressBook) Resolve(shard, replica uint64) (string, string, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	target, ok := b.replicas[raftio.GetNodeInfo(shard, replica)]
	if !ok {
		return "", "", fmt.Errorf("group %d has no known replica %d", shard, replica)
	}
	entry, ok := b.nodes[target]
	if !ok {
		return "", "", fmt.Errorf("the address of replica %d of group %d is unknown", replica, shard)
	}
	return entry.address, entry.keys[shard%streamsPerPeer], nil
}
