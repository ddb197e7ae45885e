// Package worker is the Flight service of one node that hosts tablets: it runs
// the fragments of queries next to the data, receives rows and commits them,
// and passes metadata requests to the meta group.
//
// It owns the fragment registry, the fan-out of repartition and broadcast
// exchanges, the adapter from tablet snapshots to exec's table reader, the
// staging of writes and the resolution of transactions left in doubt. It may
// import flightproto, exec, planner, consensus and storage and everything
// below them. It must never know of SQL text, sessions or package gateway.
//
// # Life of a fragment
//
// skein.start registers fragments; each DoGet claims one output of one
// fragment. A fragment with a single consumer runs in that consumer's DoGet,
// so gRPC's flow control is its backpressure. A fragment with several
// consumers is started by the first of them and runs in a goroutine of its
// own, which feeds one bounded queue per consumer. It leaves the registry when
// it has ended for whatever reason: finished, failed, cancelled, abandoned by
// its consumers, or swept because its lease ran out.
//
// A consumer that goes away early only drops its own output: a LIMIT above it
// may simply have enough. Errors and cancellation end the whole query.
package worker
