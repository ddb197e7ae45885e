// Package gateway is the stateless front of a cluster: the Flight SQL service
// that clients talk to, and the coordinator behind it, which binds and plans
// statements, starts their fragments on workers, merges what they answer, and
// drives transactions over tablets.
//
// It may import everything below it (sql, merge, flightproto, exec, planner,
// consensus for clocks and metadata documents, catalog, columnar, sqlstate). It
// must never import package worker: it reaches workers only over the wire, in
// one process as in many.
package gateway
