// Package archtest holds the tests of the repository's shape: which package
// may import which, and that each says what it owns.
//
// It has no code of its own and is imported by nothing.
package archtest
