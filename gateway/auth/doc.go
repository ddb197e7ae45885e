// Package auth tells who makes a call to a gateway: passwords and their hashes,
// the tokens that clients get for them, and the interceptors that check both
// before a call reaches the service.
//
// It may import what gateway may, and must never know sessions, statements or the
// coordinator: who may do what is for the gateway to decide.
package auth
