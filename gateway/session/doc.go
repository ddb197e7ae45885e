// Package session holds what a gateway keeps for a client between calls: the
// settings of SET and of Flight's session options, and whether it has temporary
// tables. A session is found by the cookie that the client sends along; one that
// is idle for long is forgotten.
//
// It may import what gateway may, and must never know gRPC, statements or the
// coordinator: the gateway hands it cookies and is told of sessions that end.
package session
