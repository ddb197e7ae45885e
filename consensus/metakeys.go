package consensus

import (
	"crypto/rand"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

const (
	// MinSecretBytes is the least length of a signing key's secret.
	MinSecretBytes = 32
	// keptKeys is how many keys envelopes may be signed with: those before the
	// newest check what was signed before it was added.
	keptKeys = 3
)

// newSecret is the secret of a new signing key.
func newSecret() []byte {
	secret := make([]byte, MinSecretBytes)
	rand.Read(secret) // never fails: it aborts the process when the system has no randomness
	return secret
}

func (s *metaState) addKey(r *AddKey) metaAnswer {
	if len(r.Secret) < MinSecretBytes {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a signing key needs a secret of at least %d bytes", MinSecretBytes))
	}
	if r.First && len(s.keys) > 0 {
		return s.accepted(nil)
	}
	next := catalog.SigningKey{ID: 1, Secret: r.Secret}
	if n := len(s.keys); n > 0 {
		next.ID = s.keys[n-1].ID + 1
	}
	// A new slice: snapshots share the old one.
	keys := append(slices.Clone(s.keys), next)
	s.keys = keys[max(len(keys)-keptKeys, 0):]
	s.counters.Version++
	s.write(recordKeyring, 0, s.keys)
	return s.accepted(nil)
}
