// Package consensus makes changes durable and ordered on a quorum of nodes. It
// owns the Raft host of a worker, the meta group that describes the cluster
// (tables, tablets, placement, nodes), the state machines that apply replicated
// commands to package storage, and the hybrid logical clock.
//
// It may import storage, catalog, columnar and sqlstate. It must never know of
// SQL text, plans, gRPC or Flight: the worker translates requests into the
// calls of this package and its errors into statuses.
//
// # The layers
//
//	Node      one process's identity, store, host, meta group and reconciler
//	Host      the Raft library's node host plus every tablet replica on it
//	Meta      commands and reads of the meta group
//	tabletSM  applies one tablet's log to storage.Tablet
//	metaSM    applies the meta log to storage.Records
//
// # Durability
//
// The Raft log is the only place that is synced per write. State machines write
// the applied index together with the effect and without syncing; after a crash
// they report what survived and the log is replayed from there. The log is only
// cut after the state machine was synced past the cut. Everything a state
// machine does is therefore a pure function of the log: no clocks, no random
// numbers, no iteration over maps.
//
// # Failure
//
// A state machine that meets an I/O error or a log entry it cannot understand
// stops its replica at that entry and says so in the log; it never skips an
// entry, and no snapshot taken afterwards covers the gap. The replica stays
// stopped until the process restarts, because a write retried after a failure
// may silently miss data. A failed sync of the store, which all replicas of the
// node share, and errors of the Raft log's own store end the process.
package consensus
