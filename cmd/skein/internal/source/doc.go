// Package source reads Parquet, CSV and Arrow files as streams of Arrow
// record batches for `skein load`.
//
// It owns file formats only: it may import nothing of Skein and must never
// know where the rows go.
package source
