// Package parse turns SQL text into PostgreSQL syntax trees.
//
// The grammar is PostgreSQL's own, from libpg_query: through cgo where there
// is a C compiler and through the same library compiled to WebAssembly where
// there is not. Both yield the same protobuf messages. The package adds what a
// server needs around it: `?` placeholders, positions counted in characters of
// the text the client sent, and limits on size and nesting, so that no
// text can exhaust a stack.
//
// It may import sqlstate; it must never know of tables, types or plans.
package parse
