package catalog

import (
	"fmt"
	"log/slog"
	"time"
)

// SigningKey is a secret that the nodes of a cluster share. Its text form does
// not show the secret; its JSON form, for the nodes, does.
type SigningKey struct {
	ID     uint64 `json:"id"` // never reused
	Secret []byte `json:"secret"`
	// ValidUntil is when the last envelope expires that was signed with a key that
	// is replaced, in milliseconds of the Unix epoch; 0 is the key that signs.
	ValidUntil int64 `json:"valid_until_unix_ms,omitempty"`
}

// ValidAt reports whether envelopes may be signed with the key at a time.
func (k SigningKey) ValidAt(now time.Time) bool {
	return k.ValidUntil == 0 || now.UnixMilli() <= k.ValidUntil
}

// String names the key without its secret.
func (k SigningKey) String() string { return fmt.Sprintf("signing key %d", k.ID) }

// GoString is String.
func (k SigningKey) GoString() string { return k.String() }

// LogValue keeps the secret out of logs.
func (k SigningKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
