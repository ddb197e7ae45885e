package consensus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"skein/sqlstate"
	"skein/storage"
)

const (
	// registerPatience bounds one attempt to register, here or through another node.
	registerPatience = 5 * time.Second
	// registerPause is between attempts.
	registerPause = time.Second
	// heartbeatEvery is how often a node says that it is there.
	heartbeatEvery = 5 * time.Second
	// missedBeats in a row make a node ask others whether it still belongs to them.
	missedBeats = 3
)

// register announces this node until it succeeds, then goes on saying that it is
// there and sweeping hidden tables now and then.
func (n *Node) register(ctx context.Context) {
	request := RegisterNode{RequestID: uuid.NewString(), Node: n.info(), ClusterID: n.identity.ClusterID}
	for {
		err := n.announce(ctx, request)
		if err == nil {
			break
		}
		if ctx.Err() != nil || n.refuse(err) {
			return
		}
		level := n.log.Warn
		if errors.Is(err, ErrNotReady) || errors.Is(err, ErrUnavailable) {
			level = n.log.Info // others are starting, too
		}
		level("registering this node failed, will retry", "error", err)
		if rejection := (*sqlstate.Error)(nil); errors.As(err, &rejection) {
			// The answer to a request never changes; the cluster's state may.
			request.RequestID = uuid.NewString()
		}
		if !wait(ctx, registerPause/2+rand.N(registerPause)) {
			return
		}
	}
	close(n.ready)
	if !n.cfg.Standalone {
		n.loops.Go(func() { n.beat(ctx) })
	}
	n.sweep(ctx)
}

// info is what the node tells about itself.
func (n *Node) info() NodeInfo {
	return NodeInfo{
		ID: n.identity.Node, RaftAddress: n.own.RaftAddress, FlightAddress: n.own.FlightAddress,
		Zone: cmp.Or(n.cfg.Zone, n.identity.Own().Zone), Version: n.cfg.Version, Capacity: storage.VolumeBytes(n.cfg.DataDir), Incarnation: n.identity.Incarnation,
	}
}

// refuse notes that the cluster does not want this node.
func (n *Node) refuse(err error) bool {
	if sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		return false
	}
	n.refusal = fmt.Errorf("%w: %w", ErrNodeRefused, err)
	n.log.Error("the cluster refuses this node", "error", err)
	close(n.refused)
	return true
}

// announce registers the node where the metadata has it otherwise, and adds the
// cluster's first signing key.
func (n *Node) announce(ctx context.Context, request RegisterNode) error {
	known, ok := n.meta.Local().Node(request.Node.ID)
	if moved := ok && known.RaftAddress != request.Node.RaftAddress; moved && n.askOthers(ctx, request) == nil {
		ok = false // now the others know where to answer
	}
	trying, cancel := context.WithTimeout(ctx, registerPatience)
	snapshot, err := n.meta.Snapshot(trying)
	cancel()
	if err != nil {
		if asked := n.askOthers(ctx, request); asked != nil {
			return errors.Join(err, asked)
		}
		return err // told, so that the next attempt should do
	}
	if known, ok = snapshot.Node(request.Node.ID); !ok || known.told() != request.Node || known.State == NodeJoining || snapshot.ClusterID == "" {
		if _, err := n.meta.RegisterNode(ctx, request); err != nil {
			return err
		}
	}
	if len(snapshot.Keys) > 0 {
		return nil
	}
	_, err = n.meta.AddKey(ctx, AddKey{RequestID: uuid.NewString(), Secret: NewSecret(), First: true, Unix: time.Now().UnixMilli()})
	return err
}

// errNobodyAsked says that no other node could be asked to register this one.
var errNobodyAsked = errors.New("no other node of the cluster could be asked")

// askOthers has another node register this one.
func (n *Node) askOthers(ctx context.Context, request RegisterNode) error {
	if n.cfg.Ask == nil {
		return errNobodyAsked
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a registration: %w", err)
	}
	addresses := map[string]bool{n.own.FlightAddress: true, "": true}
	last := errNobodyAsked
	ask := func(address string) bool {
		if addresses[address] {
			return false
		}
		addresses[address] = true
		asking, cancel := context.WithTimeout(ctx, registerPatience)
		defer cancel()
		_, last = n.cfg.Ask(asking, address, MetaRegisterNode, body)
		return last == nil || sqlstate.CodeOf(last) == sqlstate.ObjectNotInState
	}
	for _, peer := range n.cfg.Members {
		if ask(peer.FlightAddress) {
			return last
		}
	}
	for _, node := range n.meta.Local().Nodes {
		if node.State != NodeRemoved && ask(node.FlightAddress) {
			return last
		}
	}
	for _, peer := range n.identity.peers() {
		if ask(peer.FlightAddress) {
			return last
		}
	}
	return last
}

// beat says that the node is there until ctx ends or the cluster has removed it.
func (n *Node) beat(ctx context.Context) {
	missed := 0
	for wait(ctx, heartbeatEvery/2+rand.N(heartbeatEvery)) {
		trying, cancel := context.WithTimeout(ctx, registerPatience)
		err := n.meta.heartbeat(trying, Heartbeat{Node: n.identity.Node, UnixMS: time.Now().UnixMilli(), Applied: n.meta.Applied()})
		cancel()
		if err == nil {
			missed = 0
			continue
		}
		// A node that was removed is no member of the meta group and hears nothing.
		if missed++; missed >= missedBeats && ctx.Err() == nil {
			request := RegisterNode{RequestID: uuid.NewString(), Node: n.info(), ClusterID: n.identity.ClusterID}
			if asked := n.askOthers(ctx, request); asked != nil {
				err = asked
			}
		}
		if n.refuse(err) {
			return
		}
		n.log.Debug("a heartbeat was not taken", "error", err)
	}
}
