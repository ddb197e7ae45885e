// Package app runs Skein's processes: it opens their ports, starts their parts
// in order and stops them in reverse.
//
// It is the one place that knows both gateway and worker. It must never hold
// logic of either.
package app
