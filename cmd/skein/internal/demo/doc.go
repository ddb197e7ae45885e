// Package demo loads the sample tables of `skein dev --demo`: made-up tracks
// of tagged geese on their way north.
//
// It goes through the ordinary Flight SQL client, package client, and must
// never know what serves it.
package demo
