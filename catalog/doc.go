// Package catalog holds the plain data that describes tables: SQL types and
// their Arrow spelling, columns, keys, partitioning and the tablets that a
// table is cut into. It also owns the two pure functions every layer must
// agree on: the order-preserving key encoding and the routing of a key to a
// tablet.
//
// It sits at the bottom of the import order so that storage, planner, gateway
// and the meta group speak of the same things. It may import Arrow's type
// packages and package columnar; it must never know of SQL text, the network,
// Badger or Raft.
package catalog
