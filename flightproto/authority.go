package flightproto

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// An authorization envelope is
//
//	format, 1 byte | key id, 8 bytes little-endian | HMAC-SHA256 of the rest, 32 bytes | Claims
//
// The HMAC covers format and key id, too.
const (
	envelopeFormat = 1
	envelopePrefix = 1 + 8
	envelopeHeader = envelopePrefix + sha256.Size
)

// Subjects of envelopes that are about no query or transaction.
const (
	SubjectMeta   = "meta"
	SubjectStatus = "status"
)

// RoleSuperuser is the role, in envelopes, of users who may end what others run.
const RoleSuperuser = "superuser"

// clusterKeyID names the key that is made from the cluster's secret.
const clusterKeyID = 0

// skew is by how much the clocks of a cluster's machines may differ.
const skew = 10 * time.Second

// Claims are what an envelope vouches for.
type Claims struct {
	User    string
	Roles   []string
	Subject string // id of a query or transaction, or one of the Subjects
	Expires time.Time
	// Pull is the one exchange that a client may pull with it, and that is all;
	// empty in what nodes hold.
	Pull string
}

// UnknownKeyError refuses an envelope of a key that this node does not know,
// perhaps not yet.
type UnknownKeyError struct{ ID uint64 }

// Error names the key.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the authorization is signed with key %d, which this node does not know", e.ID)
}

// Authority signs and checks envelopes with a cluster's keys. It is safe for
// concurrent use.
type Authority struct {
	keys    func() []catalog.SigningKey
	cluster []byte // key made from the cluster's secret; nil for none
	now     func() time.Time

	mu    sync.Mutex
	ready []*readyKey // in the order of their first use, at most maxReady
}

// readyKey keeps the HMACs of one secret, which are quicker to reset than to make.
type readyKey struct {
	secret []byte
	hashes sync.Pool
}

// maxReady bounds them; a cluster has fewer keys at a time.
const maxReady = 8

// keyed returns what is ready for a secret.
func (a *Authority) keyed(secret []byte) *readyKey {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.ready {
		if bytes.Equal(k.secret, secret) {
			return k
		}
	}
	k := &readyKey{secret: secret, hashes: sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
	if len(a.ready) == maxReady {
		a.ready = a.ready[1:]
	}
	a.ready = append(a.ready, k)
	return k
}

// mac appends the HMAC of an envelope to out.
func (k *readyKey) mac(out, envelope []byte) []byte {
	h := k.hashes.Get().(hash.Hash)
	h.Reset()
	h.Write(envelope[:envelopePrefix])
	h.Write(envelope[envelopeHeader:])
	out = h.Sum(out)
	k.hashes.Put(h)
	return out
}

// NewAuthority returns an authority that takes its keys from a function, the
// newest last. Secret is what the operator gave all nodes to know each other by;
// "" is none. Now is the wall clock.
func NewAuthority(keys func() []catalog.SigningKey, secret string, now func() time.Time) *Authority {
	a := &Authority{keys: keys, now: now}
	if secret != "" {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte("skein cluster key"))
		a.cluster = h.Sum(nil)
	}
	return a
}

// Closed reports whether metadata, which holds the keys, is for those only who
// know the cluster's secret.
func (a *Authority) Closed() bool { return a.cluster != nil }

// Sign makes an envelope with the newest key, or with the cluster's secret
// before there is one.
func (a *Authority) Sign(c Claims) ([]byte, error) {
	keys := a.keys()
	if len(keys) == 0 && a.cluster == nil {
		return nil, WithReason(Unavailable, sqlstate.New(sqlstate.CannotConnectNow, "the cluster's signing key is not known yet").
			WithHint("Retry when the cluster has started."))
	}
	if len(keys) == 0 {
		return a.sign(catalog.SigningKey{ID: clusterKeyID, Secret: a.cluster}, c)
	}
	return a.sign(keys[len(keys)-1], c)
}

// SignMeta makes the envelope of a request to the meta group, which is how a
// node gets the keys: nil where it has none and no secret.
func (a *Authority) SignMeta(user string) ([]byte, error) {
	c := Claims{User: user, Subject: SubjectMeta, Expires: a.now().Add(time.Minute)}
	if a.cluster != nil {
		return a.sign(catalog.SigningKey{ID: clusterKeyID, Secret: a.cluster}, c)
	}
	if len(a.keys()) == 0 {
		return nil, nil
	}
	return a.Sign(c)
}

func (a *Authority) sign(key catalog.SigningKey, c Claims) ([]byte, error) {
	m := pb.Claims{User: c.User, Roles: c.Roles, Subject: c.Subject, ExpiresUnixMillis: c.Expires.UnixMilli(), Pull: c.Pull}
	out := make([]byte, envelopeHeader, envelopeHeader+proto.Size(&m))
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(out, &m)
	if err != nil {
		return nil, fmt.Errorf("encoding an authorization: %w", err)
	}
	if len(out) > MaxAuthorizationBytes {
		return nil, &SizeError{What: authorizationPart, Size: len(out), Limit: MaxAuthorizationBytes}
	}
	out[0] = envelopeFormat
	binary.LittleEndian.PutUint64(out[1:], key.ID)
	a.keyed(key.Secret).mac(out[envelopePrefix:envelopePrefix], out)
	return out, nil
}

// Verify checks an envelope for a subject and returns what it vouches for. Errors
// are *UnknownKeyError, *SizeError, or have SQLSTATE 28000 where the envelope is
// not one of this cluster and 42501 where it is one, but not for this. One that was
// made for a client is for no subject, see VerifyTicket.
func (a *Authority) Verify(subject string, envelope []byte) (*Claims, error) {
	return a.verify(subject, "", envelope)
}

func (a *Authority) verify(subject, pull string, envelope []byte) (*Claims, error) {
	switch n := len(envelope); {
	case n == 0:
		return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the request carries no authorization").
			WithHint("Only the cluster's own nodes may ask this; connect to a gateway.")
	case n > MaxAuthorizationBytes:
		return nil, &SizeError{What: authorizationPart, Size: n, Limit: MaxAuthorizationBytes}
	case n < envelopeHeader || envelope[0] != envelopeFormat:
		return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the request's authorization is not an envelope")
	}
	secret, err := a.secret(binary.LittleEndian.Uint64(envelope[1:]))
	if err != nil {
		return nil, err
	}
	var sum [sha256.Size]byte
	if !hmac.Equal(a.keyed(secret).mac(sum[:0], envelope), envelope[envelopePrefix:envelopeHeader]) {
		return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the request's authorization was not signed by this cluster")
	}
	m := &pb.Claims{}
	if err := proto.Unmarshal(envelope[envelopeHeader:], m); err != nil {
		return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the request's authorization cannot be read: %w", err)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the request's authorization claims what this release does not know")
	}
	c := &Claims{User: m.GetUser(), Roles: m.GetRoles(), Subject: m.GetSubject(), Expires: time.UnixMilli(m.GetExpiresUnixMillis()), Pull: m.GetPull()}
	if late := a.now().Sub(c.Expires); late > skew {
		return nil, sqlstate.New(sqlstate.InsufficientPrivilege, "the authorization of user %q for %s expired %s ago", c.User, c.Subject, late.Round(time.Second)).
			WithHint("Run the statement again.")
	}
	if c.Subject != subject {
		return nil, sqlstate.New(sqlstate.InsufficientPrivilege, "the authorization of user %q is for %s, not for %s", c.User, c.Subject, subject)
	}
	if c.Pull != pull {
		return nil, sqlstate.New(sqlstate.InsufficientPrivilege, "the authorization of user %q for %s is not for this: it is good for the exchange %q, where %q is needed",
			c.User, c.Subject, c.Pull, pull).WithHint("Fetch each endpoint with its own ticket.")
	}
	return c, nil
}

func (a *Authority) secret(id uint64) ([]byte, error) {
	if id == clusterKeyID {
		if a.cluster == nil {
			return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the authorization is signed with a cluster secret, and this node has none").
				WithHint("Give all nodes the same cluster_secret.")
		}
		return a.cluster, nil
	}
	for _, k := range a.keys() {
		if k.ID != id {
			continue
		}
		if !k.ValidAt(a.now().Add(-skew)) {
			return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the authorization is signed with key %d, which was replaced and has run out", id).
				WithHint("Run the statement again.")
		}
		return k.Secret, nil
	}
	return nil, &UnknownKeyError{ID: id}
}
