// Package columnar is Skein's in-memory column format: vectors whose buffers
// have Arrow's layout, so that decoded segment chunks, operator outputs and
// Flight record batches share memory instead of being copied between layers.
//
// It owns the vector and batch types and their conversion to and from Arrow.
// It may import Arrow and sqlstate only; it must never know of SQL, tables, the network or the store. Packages storage, exec and merge
// build on it.
//
// # Memory
//
// Vector buffers are ordinary garbage-collected Go memory. Operators reuse
// their output buffers, so unless a producer says otherwise a Batch and what
// its vectors point at may be overwritten by the producer's next call: copy
// what must outlive it (Vector.Clone, Append). Vectors that come out of the
// decoded-chunk cache are immutable and may be kept.
//
// A vector that is used as a dictionary (Vector.Dict) is immutable from the
// moment it is shared, and its entries are distinct. Consumers may therefore
// cache what they derive from one by its pointer; whoever needs other entries
// allocates another Dict.
//
// Values of null rows and of rows that Batch.Sel leaves out are unspecified but
// well formed: Offsets ascend and Codes are inside Dict (unless Dict is empty).
package columnar
