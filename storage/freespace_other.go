//go:build !(linux || darwin || freebsd)

package storage

import "math"

// freeBytes is unknown here: running out is noticed by Badger alone.
func freeBytes(string) (uint64, error) { return math.MaxUint64, nil }
