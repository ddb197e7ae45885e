package auth

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"

	"skein/sqlstate"
)

// HashPrefix begins what Hash returns.
const HashPrefix = "$argon2id$"

// maxPassword bounds a password in bytes.
const maxPassword = 1024

// cost is what one hash takes: the parameters of Argon2id, RFC 9106.
type cost struct {
	memory uint32 // KiB
	passes uint32
	lanes  uint8
}

// newCost is that of new hashes: of the settings that OWASP holds to be equally
// strong, the one with the least memory that needs few passes.
var newCost = cost{memory: 19 << 10, passes: 2, lanes: 1}

// Bounds of hashes that were made elsewhere: what checking one may take, and how
// weak it may be.
const (
	maxMemory = 64 << 10 // KiB
	maxPasses = 8
	maxLanes  = 4
	minMemory = 8 << 10
	minWork   = 36 << 10 // KiB times passes
)

const (
	saltBytes = 16
	keyBytes  = 32
)

// hash is a password's hash, taken apart.
type hash struct {
	cost
	salt, key []byte
}

// Hash makes what is kept of a password: Argon2id with a random salt, in the PHC
// string format. It takes some 20 MiB of memory while it runs. SQLSTATE 22023 says
// that the password is too long or has none of its bytes.
func Hash(password string) (string, error) {
	if password == "" || len(password) > maxPassword {
		return "", sqlstate.New(sqlstate.InvalidParameter, "a password has 1 to %d bytes, this one has %d", maxPassword, len(password))
	}
	h := hash{cost: newCost, salt: make([]byte, saltBytes)}
	rand.Read(h.salt) // never fails: it aborts the process when the system has no randomness
	h.key = h.derive(password)
	return h.String(), nil
}

// CheckHash says whether a hash that was made elsewhere may be kept: SQLSTATE
// 22023 if it is not one, too weak or too costly to check.
func CheckHash(encoded string) error {
	h, err := parseHash(encoded)
	if err != nil {
		return err
	}
	if h.memory < minMemory || uint64(h.memory)*uint64(h.passes) < minWork {
		return sqlstate.New(sqlstate.InvalidParameter, "the hash of the password is too weak: m=%d and t=%d", h.memory, h.passes).
			WithHint("Give at least m=%d,t=%d, or the password itself.", newCost.memory, newCost.passes)
	}
	return nil
}

func (h *hash) derive(password string) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, h.lanes, uint32(max(len(h.key), keyBytes)))
}

// matches compares in a time that does not depend on what is different.
func (h *hash) matches(password string) bool {
	key := argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, h.lanes, uint32(len(h.key)))
	return subtle.ConstantTimeCompare(key, h.key) == 1
}

// String is the PHC string format.
func (h *hash) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("%sv=%d$m=%d,t=%d,p=%d$%s$%s", HashPrefix, argon2.Version, h.memory, h.passes, h.lanes, b64(h.salt), b64(h.key))
}

func parseHash(encoded string) (*hash, error) {
	bad := func(what string) (*hash, error) {
		return nil, sqlstate.New(sqlstate.InvalidParameter, "the hash of the password %s", what)
	}
	parts := strings.Split(strings.TrimPrefix(encoded, HashPrefix), "$")
	if !strings.HasPrefix(encoded, HashPrefix) || len(parts) != 4 {
		return bad("is not of the form " + HashPrefix + "v=19$m=...,t=...,p=...$SALT$KEY")
	}
	if parts[0] != fmt.Sprintf("v=%d", argon2.Version) {
		return bad("is of another version of Argon2 than 19")
	}
	var h hash
	n, err := fmt.Sscanf(parts[1], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.lanes)
	if err != nil || n != 3 || parts[1] != fmt.Sprintf("m=%d,t=%d,p=%d", h.memory, h.passes, h.lanes) {
		return bad("has parameters that cannot be read")
	}
	if h.passes < 1 || h.passes > maxPasses || h.lanes < 1 || h.lanes > maxLanes || h.memory < 8*uint32(h.lanes) || h.memory > maxMemory {
		return bad(fmt.Sprintf("takes too much: at most m=%d,t=%d,p=%d are possible", maxMemory, maxPasses, maxLanes))
	}
	if h.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[2]); err != nil || len(h.salt) < 8 || len(h.salt) > 64 {
		return bad("has a salt that is not 8 to 64 bytes in base64")
	}
	if h.key, err = base64.RawStdEncoding.Strict().DecodeString(parts[3]); err != nil || len(h.key) < 16 || len(h.key) > 64 {
		return bad("has a key that is not 16 to 64 bytes in base64")
	}
	return &h, nil
}
