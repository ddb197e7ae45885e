// Package client is the Flight SQL client behind `skein sql`, `skein load` and
// the demo.
//
// It speaks only public Flight SQL, so it works with any server that does. It
// may import sqlstate and flightproto to restore errors, and must never know
// how the server is built.
package client
