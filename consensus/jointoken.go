package consensus

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/sqlstate"
)

// A join token is
//
//	skein1.CLAIMS.SIGNATURE
//
// where claims are JSON and the signature is an HMAC-SHA256 by one of the
// cluster's signing keys, both in unpadded URL-safe base64. The metadata keeps a
// hash of the whole.
const tokenPrefix = "skein1"

// maxTokenText bounds a token's text.
const maxTokenText = 16 << 10

// TokenClaims are what a join token tells.
type TokenClaims struct {
	Cluster   string `json:"cluster"`
	ClusterID string `json:"cluster_id"`
	ID        uint64 `json:"id"`
	ExpiresMS int64  `json:"expires_unix_ms"`
	Key       uint64 `json:"key"` // that it is signed with
	// Workers are Flight addresses to ask.
	Workers []string `json:"workers"`
	Nonce   []byte   `json:"nonce"`
}

// NewTokenRequest asks for a join token.
type NewTokenRequest struct {
	LifeMillis int64 `json:"life_millis"`
	Uses       int   `json:"uses"`
}

// NewTokenReply has a join token, which is nowhere kept.
type NewTokenReply struct {
	Token         string `json:"token"`
	ExpiresUnixMS int64  `json:"expires_unix_ms"`
}

// JoinRequest asks to admit a node. It may be repeated with the same id.
type JoinRequest struct {
	RequestID string   `json:"request_id"`
	Token     string   `json:"token"`
	Node      NodeInfo `json:"node"`
}

// JoinReply is what a new node's identity is made from.
type JoinReply struct {
	Node      NodeInfo   `json:"node"`
	Cluster   string     `json:"cluster"`
	ClusterID string     `json:"cluster_id"`
	Nodes     []NodeInfo `json:"nodes"` // that were not removed, the new one included
}

// Identity is the new node's identity.
func (r JoinReply) Identity() Identity {
	id := Identity{Cluster: r.Cluster, ClusterID: r.ClusterID, Node: r.Node.ID, Incarnation: r.Node.Incarnation, Joined: true}
	for _, n := range r.Nodes {
		id.Nodes = append(id.Nodes, IdentityNode{n.ID, n.RaftAddress, n.FlightAddress, n.Zone})
	}
	return id
}

// ParseToken reads a token's claims without knowing whether they are true.
func ParseToken(text string) (TokenClaims, error) {
	claims, _, _, err := splitToken(text)
	return claims, err
}

func splitToken(text string) (claims TokenClaims, signed string, signature []byte, err error) {
	bad := func(why string) error {
		return sqlstate.New(sqlstate.InvalidAuthorization, "this is not a join token: %s", why).
			WithHint("Give the whole text that skein admin cluster token has printed.")
	}
	text = strings.TrimSpace(text)
	prefix, rest, ok := strings.Cut(text, ".")
	body, mac, ok2 := strings.Cut(rest, ".")
	if len(text) > maxTokenText || !ok || !ok2 || prefix != tokenPrefix {
		return claims, "", nil, bad("it has another form")
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || decodeStrict(raw, &claims) != nil {
		return claims, "", nil, bad("its claims cannot be read")
	}
	if signature, err = base64.RawURLEncoding.DecodeString(mac); err != nil || len(signature) != sha256.Size {
		return claims, "", nil, bad("its signature cannot be read")
	}
	return claims, prefix + "." + body, signature, nil
}

func signToken(secret []byte, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("skein join token\x00" + text))
	return h.Sum(nil)
}

func hashToken(text string) []byte {
	sum := sha256.Sum256([]byte(strings.TrimSpace(text)))
	return sum[:]
}

// NewToken makes a join token, good for so long and for so many nodes. SQLSTATE
// 22023 refuses those, 0A000 a cluster that nobody can join.
func (m *Meta) NewToken(ctx context.Context, r NewTokenRequest) (NewTokenReply, error) {
	if m.founding.Standalone {
		return NewTokenReply{}, sqlstate.New(sqlstate.FeatureNotSupported, "joining the cluster of one that skein dev runs").
			WithHint("Found a cluster with skein admin cluster init.")
	}
	snapshot, err := m.Snapshot(ctx)
	if err != nil {
		return NewTokenReply{}, err
	}
	if len(snapshot.Keys) == 0 {
		return NewTokenReply{}, sqlstate.New(sqlstate.CannotConnectNow, "the cluster has no signing key yet").WithHint("Retry in a moment.")
	}
	key := snapshot.Keys[len(snapshot.Keys)-1]
	random := make([]byte, 8+sha256.Size)
	rand.Read(random) // never fails
	now := time.Now()
	claims := TokenClaims{
		Cluster: m.host.cfg.Cluster, ClusterID: snapshot.ClusterID, Key: key.ID,
		ID: binary.LittleEndian.Uint64(random)>>1 | 1, ExpiresMS: now.UnixMilli() + r.LifeMillis, Nonce: random[8:],
	}
	for _, n := range snapshot.Nodes {
		if s := n.Status(); (s == NodeActive || s == NodeDraining) && len(claims.Workers) < 16 {
			claims.Workers = append(claims.Workers, n.FlightAddress)
		}
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return NewTokenReply{}, fmt.Errorf("encoding a join token: %w", err)
	}
	signed := tokenPrefix + "." + base64.RawURLEncoding.EncodeToString(body)
	text := signed + "." + base64.RawURLEncoding.EncodeToString(signToken(key.Secret, signed))
	_, err = m.AddToken(ctx, AddToken{RequestID: uuid.NewString(), UnixMS: now.UnixMilli(), Token: JoinToken{
		ID: claims.ID, Hash: hashToken(text), ExpiresUnixMS: claims.ExpiresMS, Uses: r.Uses,
	}})
	if err != nil {
		return NewTokenReply{}, err
	}
	return NewTokenReply{Token: text, ExpiresUnixMS: claims.ExpiresMS}, nil
}

// Join admits a node that shows a token. SQLSTATE 28000 refuses the token, 55000
// the id or the addresses that the node asks for.
func (m *Meta) Join(ctx context.Context, r JoinRequest) (JoinReply, error) {
	claims, signed, signature, err := splitToken(r.Token)
	if err != nil {
		return JoinReply{}, err
	}
	snapshot := m.Local()
	if !slices.ContainsFunc(snapshot.Keys, func(k catalog.SigningKey) bool { return k.ID == claims.Key }) {
		if snapshot, err = m.Snapshot(ctx); err != nil { // the key may be new
			return JoinReply{}, err
		}
	}
	if claims.Cluster != m.host.cfg.Cluster || claims.ClusterID != snapshot.ClusterID {
		return JoinReply{}, badToken(fmt.Sprintf("is one of cluster %q, this is another one", claims.Cluster))
	}
	if !signedBy(snapshot.Keys, claims.Key, signed, signature) {
		return JoinReply{}, badToken("was not signed by this cluster")
	}
	reply, err := m.RedeemToken(ctx, RedeemToken{
		RequestID: r.RequestID, ID: claims.ID, Hash: hashToken(r.Token), UnixMS: time.Now().UnixMilli(), Node: r.Node,
	})
	if err != nil {
		return JoinReply{}, err
	}
	if n, ok := m.Local().Node(reply.Node.ID); !ok || n.State != NodeJoining {
		// The answer to a repeated request, which must not make a second directory.
		return JoinReply{}, sqlstate.New(sqlstate.ObjectNotInState, "this token has admitted node %d, which has run since", reply.Node.ID).
			WithHint("If its data directory is lost, remove the node and join another with a new token.")
	}
	out := JoinReply{Node: *reply.Node, Cluster: claims.Cluster, ClusterID: claims.ClusterID}
	for _, n := range m.Local().Nodes {
		if n.State != NodeRemoved {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out, nil
}

func signedBy(keys []catalog.SigningKey, id uint64, signed string, signature []byte) bool {
	for _, key := range keys {
		if key.ID == id {
			return hmac.Equal(signToken(key.Secret, signed), signature)
		}
	}
	return false
}
