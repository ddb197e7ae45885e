package consensus

import (
	"crypto/rand"
	"slices"
	"time"

	"skein/catalog"
	"skein/sqlstate"
)

const (
	// MinSecretBytes is the least length of a signing key's secret.
	MinSecretBytes = 32
	// maxKeys bounds how many keys are valid at a time.
	maxKeys = 8
)

// NewSecret makes the secret of a new signing key.
func NewSecret() []byte {
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
	// A new slice: snapshots share the old one.
	keys := slices.DeleteFunc(slices.Clone(s.keys), func(k catalog.SigningKey) bool { return !k.ValidAt(time.UnixMilli(r.Unix)) })
	if n := len(keys); n > 0 {
		next.ID, keys[n-1].ValidUntil = keys[n-1].ID+1, r.Unix+r.Keep
	}
	if len(keys) == maxKeys {
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "%d signing keys are valid, which is the most there may be", maxKeys).
			WithHint("Rotate the key again after %s, when the oldest of them has run out.", time.UnixMilli(keys[0].ValidUntil).UTC().Format(time.DateTime)))
	}
	s.keys = append(keys, next)
	s.counters.Version++
	s.write(recordKeyring, 0, s.keys)
	return s.accepted(nil)
}
