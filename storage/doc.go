// Package storage is the tablet store of a worker: columnar segments, their
// versions and their keys, kept in one Badger database.
//
// A Store owns the database, the cache of decoded column chunks and the
// background work (compaction, reclaiming of space). A Tablet is one replica
// of one tablet: it applies replicated Commands in log order, keeps the applied
// index in the same Badger transaction as the effect, and serves Snapshots of
// what was committed at or before a timestamp. Records is a small ordered map
// for state machines that hold no table rows.
//
// # Determinism
//
// Every replica applies the same commands, so everything Apply decides is a
// function of the commands alone: no clock, no randomness, no map order, and
// nothing that depends on how rows happen to be cut into segments, since
// compaction is local to a replica.
//
// # Imports
//
// The package may import columnar, catalog, sqlstate, Badger and compression
// libraries. It must never know of the network, Raft, SQL text or plans;
// consensus drives it and the worker reads from it.
package storage
