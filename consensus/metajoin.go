package consensus

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands about join tokens. Each has a JSON request below and answers a
// TableReply; MetaJoin is what a node asks that wants to join.
const (
	MetaAddToken    = "add_token"    // AddToken
	MetaRedeemToken = "redeem_token" // RedeemToken, by workers only
	MetaJoin        = "join"         // JoinRequest -> JoinReply
	MetaNewToken    = "new_token"    // NewTokenRequest -> NewTokenReply
)

const (
	// maxTokens bounds the join tokens that are kept, used up and expired ones
	// included, which go first.
	maxTokens = 256
	// MaxTokenLife and MaxTokenUses bound one token.
	MaxTokenLife = 7 * 24 * time.Hour
	MaxTokenUses = 100
)

// JoinToken is a token as the metadata has it: not the token, but a hash.
type JoinToken struct {
	ID            uint64 `json:"id"`
	Hash          []byte `json:"hash"` // SHA-256 of the token's text
	ExpiresUnixMS int64  `json:"expires_unix_ms"`
	Uses          int    `json:"uses"` // that are left
}

// AddToken stores a token that was made up. The caller has taken the next id.
type AddToken struct {
	RequestID string    `json:"request_id"`
	Token     JoinToken `json:"token"`
	UnixMS    int64     `json:"unix_ms"` // the caller's clock
}

// RedeemToken uses a token up for a new node, which gets an id, or the one asked
// for if no node ever had it.
type RedeemToken struct {
	RequestID string   `json:"request_id"`
	ID        uint64   `json:"id"`
	Hash      []byte   `json:"hash"`
	UnixMS    int64    `json:"unix_ms"` // clock of the worker that was asked
	Node      NodeInfo `json:"node"`
}

// AddToken stores a join token.
func (m *Meta) AddToken(ctx context.Context, r AddToken) (TableReply, error) {
	return m.command(ctx, MetaAddToken, r)
}

// RedeemToken admits a node. SQLSTATE 28000 refuses the token.
func (m *Meta) RedeemToken(ctx context.Context, r RedeemToken) (TableReply, error) {
	return m.command(ctx, MetaRedeemToken, r)
}

func (s *metaState) addToken(r *AddToken) metaAnswer {
	t := r.Token
	life := time.Duration(t.ExpiresUnixMS-r.UnixMS) * time.Millisecond
	switch {
	case len(t.Hash) != sha256.Size || t.ID == 0:
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a join token needs an id and a hash of %d bytes", sha256.Size))
	case life <= 0 || life > MaxTokenLife:
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a join token is good for at most %v", MaxTokenLife))
	case t.Uses < 1 || t.Uses > MaxTokenUses:
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a join token is good for 1 to %d nodes", MaxTokenUses))
	case slices.ContainsFunc(s.tokens, func(known JoinToken) bool { return known.ID == t.ID }):
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "join token %d exists", t.ID))
	}
	// A new slice: snapshots share the old one.
	kept := slices.DeleteFunc(slices.Clone(s.tokens), func(known JoinToken) bool {
		return known.ExpiresUnixMS < r.UnixMS || known.Uses == 0
	})
	if len(kept) >= maxTokens {
		return rejected(sqlstate.New(sqlstate.TooManyRequests, "%d join tokens are open", len(kept)).WithHint("Use them, or wait until they expire."))
	}
	s.putTokens(append(kept, t))
	return s.accepted(nil)
}

func (s *metaState) putTokens(tokens []JoinToken) {
	s.tokens = tokens
	s.counters.Version++
	s.write(recordTokens, 0, s.tokens)
}

func (s *metaState) redeemToken(r *RedeemToken) metaAnswer {
	at := slices.IndexFunc(s.tokens, func(t JoinToken) bool { return t.ID == r.ID && bytes.Equal(t.Hash, r.Hash) })
	switch {
	case at < 0:
		return rejected(badToken("is not one of this cluster, or is no longer kept"))
	case s.tokens[at].ExpiresUnixMS < r.UnixMS:
		return rejected(badToken("has expired"))
	case s.tokens[at].Uses == 0:
		return rejected(badToken("was used up"))
	}
	n := r.Node.told()
	if n.RaftAddress == "" || n.FlightAddress == "" || n.Incarnation == "" {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a node that joins needs a Raft address, a Flight address and an incarnation"))
	}
	if known, taken := s.nodes[n.ID]; taken && n.ID != 0 {
		if known.State == NodeRemoved {
			return rejected(nodeRemoved(n.ID))
		}
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "there is a node %d already", n.ID).WithHint("Leave the id out to have one assigned."))
	}
	if taken, by := s.addressOwner(n); taken != "" {
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "the address %s is that of node %d", taken, by))
	}
	n.ID, n.State = cmp.Or(n.ID, s.nextNode()), NodeJoining
	tokens := slices.Clone(s.tokens)
	tokens[at].Uses--
	s.putTokens(tokens)
	s.putNode(n)
	answer := s.accepted(nil)
	answer.Node = &n
	return answer
}

// nextNode is an id that no node ever had.
func (s *metaState) nextNode() catalog.NodeID {
	next := max(s.counters.NextNode, 1)
	for id := range s.nodes { // records of earlier releases did not count
		next = max(next, id+1)
	}
	return next
}

func badToken(why string) *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidAuthorization, "the join token %s", why).
		WithHint("Make a new one with skein admin cluster token.")
}
