// Package faultproxy stands between gRPC peers in tests and spoils what passes:
// it loses, holds up, cuts and repeats chosen messages, or breaks a stream off.
// It knows nothing of the messages but their bytes. No program links it.
package faultproxy
