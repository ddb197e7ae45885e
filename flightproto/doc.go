// Package flightproto is the wire between gateway and workers: the frame that
// wraps every message, the encoding of plan fragments and expressions, record
// batches over Flight, errors over gRPC statuses, and the client side of a
// worker's Flight service.
//
// Decoders fail closed: an unknown protocol version, an oversized message, a
// wrong checksum, trailing bytes and fields that this build does not know are
// all refused with typed errors, because a message half understood is a query
// half executed.
//
// It may import planner, exec, columnar, catalog and sqlstate. It must never
// know of how fragments are executed, of the store or of Raft; packages gateway
// and worker meet here and nowhere else.
package flightproto

//go:generate ./generate.sh
