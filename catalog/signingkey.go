package catalog

import (
	"fmt"
	"log/slog"
)

// SigningKey is a secret that the nodes of a cluster share. Its text form does
// not show the secret; its JSON form, for the nodes, does.
type SigningKey struct {
	ID     uint64 `json:"id"` // never reused
	Secret []byte `json:"secret"`
}

// String names the key without its secret.
func (k SigningKey) String() string { return fmt.Sprintf("signing key %d", k.ID) }

// GoString is String.
func (k SigningKey) GoString() string { return k.String() }

// LogValue keeps the secret out of logs.
func (k SigningKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
