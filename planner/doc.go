// Package planner holds the logical IR ("lite IR"), its expressions, the
// rewrites over it, the cost model, and Distribute, which lowers the IR to
// fragments over tablets connected by exchanges.
//
// A query passes through in three steps: the binder builds a Node tree,
// Optimize rewrites it without changing its output schema, and Distribute
// cuts it into a Plan. ValidateLite and ValidatePlan state what well-formed
// inputs and outputs look like; ExplainLite and Explain print them.
//
// It may import catalog, columnar and sqlstate; it must never know of gRPC,
// Badger, Raft or how an operator is executed. What it has to know of the
// cluster comes through Locator and Metadata. One rewrite lives in one file.
package planner
