// Package render prints Arrow batches for people and for scripts: as a table,
// CSV or JSON.
//
// It owns the text form of values and may import nothing of Skein. It must
// never know where the batches come from.
package render
