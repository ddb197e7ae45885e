package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/cmd/skein/internal/config"
	"skein/consensus"
	"skein/flightproto"
	"skein/sqlstate"
)

// askPatience bounds one question to a worker by a tool or before the start.
const askPatience = 5 * time.Second

// operator is the user in whose name tools ask.
const operator = "operator"

// Found provisions a worker's data directory as that of one of the founders of a
// cluster: the members of the settings, or the worker alone. clusterID may be "".
func Found(c config.Worker, clusterID string) (consensus.Identity, error) {
	members := peers(c.Members)
	node := catalog.NodeID(cmp.Or(c.NodeID, 1))
	if len(members) == 0 {
		self, _ := c.Self()
		if self.Raft == "" || self.Flight == "" {
			return consensus.Identity{}, errors.New("give the worker's addresses with --raft and --flight, or all founders with --members")
		}
		members = map[catalog.NodeID]consensus.Peer{node: {RaftAddress: self.Raft, FlightAddress: self.Flight}}
	}
	id, err := consensus.Founder(cmp.Or(c.Cluster, config.DefaultCluster), clusterID, node, members)
	if err != nil {
		return id, err
	}
	for i := range id.Nodes {
		if id.Nodes[i].ID == node {
			id.Nodes[i].Zone = c.Zone
		}
	}
	if err := consensus.Provision(c.Data, id); err != nil {
		return id, err
	}
	return consensus.ReadIdentity(c.Data)
}

func peers(members []config.Member) map[catalog.NodeID]consensus.Peer {
	list := make(map[catalog.NodeID]consensus.Peer, len(members))
	for _, m := range members {
		list[catalog.NodeID(m.ID)] = consensus.Peer{RaftAddress: m.Raft, FlightAddress: m.Flight}
	}
	return list
}

// NewToken asks the worker at an address for a join token.
func NewToken(ctx context.Context, tools config.NodeTools, worker string, life time.Duration, uses int, logger *slog.Logger) (consensus.NewTokenReply, error) {
	var reply consensus.NewTokenReply
	a, err := newAsker(tools.NodeTLS, 0, tools.ClusterSecret, logger)
	if err != nil {
		return reply, err
	}
	request := consensus.NewTokenRequest{LifeMillis: life.Milliseconds(), Uses: uses}
	return reply, a.ask(ctx, worker, consensus.MetaNewToken, request, &reply)
}

// ChangeUsers has the worker at an address run a command about users, which is how
// the first one is made.
func ChangeUsers(ctx context.Context, tools config.NodeTools, worker, command string, request any, logger *slog.Logger) error {
	a, err := newAsker(tools.NodeTLS, 0, tools.ClusterSecret, logger)
	if err != nil {
		return err
	}
	return a.ask(ctx, worker, command, request, &consensus.TableReply{})
}

// Join has a worker admitted to the cluster of a token and provisions its data
// directory. Repeating it after a failure is safe.
func Join(ctx context.Context, c config.Worker, token string, logger *slog.Logger) (consensus.Identity, error) {
	claims, err := consensus.ParseToken(token)
	if err != nil {
		return consensus.Identity{}, err
	}
	id, err := consensus.ReadIdentity(c.Data)
	if err == nil {
		return id, fmt.Errorf("%s is that of %s already", c.Data, id)
	} else if !errors.Is(err, consensus.ErrNotProvisioned) {
		return id, err
	}
	self, _ := c.Self()
	if self.Raft == "" || self.Flight == "" {
		return id, errors.New("give the worker's addresses, as the others reach them, with --raft and --flight or --advertise")
	}
	if err := c.CheckPlaintext(self.Raft, self.Flight); err != nil {
		return id, err
	}
	a, err := newAsker(c.NodeTLS, c.NodeID, c.ClusterSecret, logger)
	if err != nil {
		return id, err
	}
	// The same request however often it is made, for the token may be used up when
	// the answer is lost.
	request := uuid.NewSHA1(uuid.NameSpaceOID, []byte(token+"\n"+self.Raft+"\n"+self.Flight+"\n"+c.Zone)).String()
	var reply consensus.JoinReply
	err = errors.New("the token names no worker")
	for _, address := range claims.Workers {
		err = a.ask(ctx, address, consensus.MetaJoin, consensus.JoinRequest{RequestID: request, Token: token, Node: consensus.NodeInfo{
			ID: catalog.NodeID(c.NodeID), RaftAddress: self.Raft, FlightAddress: self.Flight, Zone: c.Zone, Incarnation: uuid.NewString(),
		}}, &reply)
		if rejection := (*sqlstate.Error)(nil); err == nil || errors.As(err, &rejection) && flightproto.ReasonOf(err) != flightproto.Unavailable {
			break
		}
	}
	if err != nil {
		return id, fmt.Errorf("joining cluster %q: %w", claims.Cluster, err)
	}
	id = reply.Identity()
	return id, consensus.Provision(c.Data, id)
}

// asker asks workers for meta commands before there is a gateway or a worker.
type asker struct {
	tls       *nodeTLS
	secret    string
	authority *flightproto.Authority
}

func newAsker(c config.NodeTLS, node uint64, secret string, logger *slog.Logger) (*asker, error) {
	t, err := openNodeTLS(c, node, logger)
	if err != nil {
		return nil, err
	}
	none := func() []catalog.SigningKey { return nil }
	return &asker{t, secret, flightproto.NewAuthority(none, secret, time.Now)}, nil
}

// ask has the worker at an address run a meta command. Where the cluster has no
// secret, the key to sign with comes with its metadata.
func (a *asker) ask(ctx context.Context, address, command string, request, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	authority := a.authority
	if a.secret == "" && command != consensus.MetaReadSnapshot && command != consensus.MetaJoin {
		var snapshot consensus.MetaSnapshot
		if err := a.ask(ctx, address, consensus.MetaReadSnapshot, consensus.SnapshotRequest{Stale: true}, &snapshot); err != nil {
			return err
		}
		authority = flightproto.NewAuthority(func() []catalog.SigningKey { return snapshot.Keys }, "", time.Now)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", command, err)
	}
	answer, err := askMeta(ctx, a.tls, authority, address, command, body)
	if err != nil {
		return fmt.Errorf("asking the worker at %s: %w", address, err)
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return fmt.Errorf("decoding the reply to %s: %w", command, err)
	}
	return nil
}

// askMeta has the worker at an address run a meta command, over a connection of
// its own.
func askMeta(ctx context.Context, t *nodeTLS, authority *flightproto.Authority, address, command string, body []byte) (answer []byte, err error) {
	conn, err := flightproto.Dial(address, t.dialOptions(func(string) catalog.NodeID { return 0 })...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	envelope, err := authority.SignMeta(operator)
	if err != nil {
		return nil, err
	}
	response, err := conn.Meta(ctx, command, body, envelope)
	return response.GetBody(), err
}

// errKnownNode refuses to found a cluster that knows this node already.
var errKnownNode = errors.New("the cluster knows this node, whose data directory is empty")

// checkUnknown asks the other members whether they know this worker, whose
// directory is empty, from before: then it has lost what it had acknowledged.
func checkUnknown(ctx context.Context, c config.Worker, logger *slog.Logger) error {
	a, err := newAsker(c.NodeTLS, c.NodeID, c.ClusterSecret, logger)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience/2)
	defer cancel()
	known := make(chan bool, len(c.Members))
	others := 0
	for _, m := range c.Members {
		if m.ID == c.NodeID {
			continue
		}
		others++
		go func() {
			var snapshot consensus.MetaSnapshot
			err := a.ask(ctx, m.Flight, consensus.MetaReadSnapshot, consensus.SnapshotRequest{Stale: true}, &snapshot)
			_, ok := snapshot.Node(catalog.NodeID(c.NodeID))
			known <- err == nil && ok
		}()
	}
	for range others {
		if <-known { // bounded by ctx; the others end on their own
			return fmt.Errorf("%w: node %d of cluster %q; remove it, then join this machine under another id (skein admin cluster token and join)",
				errKnownNode, c.NodeID, cmp.Or(c.Cluster, config.DefaultCluster))
		}
	}
	return nil
}
