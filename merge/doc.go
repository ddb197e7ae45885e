// Package merge holds the coordinator's pure functions for combining what
// tablets return: at present the exact distributed top-k.
//
// Each tablet first sends a bounded batch of its best rows and a bound on the
// scores it still withholds; the coordinator ranks what it has and asks only
// those tablets for more whose unseen rows could still win. Streams are merged
// and aggregates combined by the operators of package exec.
//
// It may import catalog, columnar and sqlstate, and packages below them in the
// import order. It must never know of the network: how a refill travels is its
// caller's business.
package merge
