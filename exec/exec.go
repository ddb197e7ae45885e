// Package exec is the vectorized engine: the function registry, expression
// kernels, and the operators that a fragment is built from.
//
// It works on columnar batches and reads tables and exchanges through the
// interfaces in this file, so it knows nothing of Badger, Raft or Flight. It
// may import planner, catalog, columnar and sqlstate.
package exec

import (
	"context"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// Operator is a pull-based stream of batches.
//
// Next returns nil, nil at the end and after an error must not be called
// again. The batch belongs to the operator and is valid until its next Next or
// Close. A call of Next honours ctx. Operators are used by one goroutine at a
// time. Close releases everything, inputs included, may be called at any
// time between Next calls, and once is enough.
type Operator interface {
	// Schema is the output with physical types (catalog.PhysicalType).
	Schema() *arrow.Schema
	Next(ctx context.Context) (*columnar.Batch, error)
	Close() error
}

// TableReader opens scans over tablets; the worker implements it.
type TableReader interface {
	// OpenScan pins the tablet at env.Snapshot and returns at least one and at
	// most parallelism operators that share its rows: each row comes out of
	// exactly one. The scan's filter may be used to skip data, but the rows
	// returned may still include ones that do not match.
	OpenScan(ctx context.Context, scan *planner.TabletScan, parallelism int) ([]Operator, error)
}

// ExchangeReader opens the consuming end of an exchange.
type ExchangeReader interface {
	OpenExchange(ctx context.Context, source *planner.ExchangeSource) (Operator, error)
}

// Env is what a fragment runs with.
type Env struct {
	Tables      TableReader
	Exchanges   ExchangeReader
	Parallelism int     // goroutines for one pipeline, at least 1
	Budget      *Budget // accounts the memory of hash tables and sorts
	// SpillDir is where operators that run out of Budget put rows aside, empty
	// to let them fail instead; MaxSpill bounds the bytes that one Build may have
	// there at once, 0 for no bound. The files are gone when the tree is closed,
	// and do not outlive the process.
	SpillDir string
	MaxSpill uint64
	// Spilled, if not nil, counts the bytes that operators put aside.
	Spilled *atomic.Int64
	// Profile, if not nil, measures the operators. It serves one Build.
	Profile *Profile

	spill  *spillSpace // made by Build
	stored []*rowLog   // what StoredSources read
}
