// Package sql is the front end: SQL text becomes bound statements whose
// queries are lite IR. It is the facade of its subpackages parse, which
// owns the text, and bind, which owns names and types.
//
// It may import planner, exec (for the function registry), catalog and
// sqlstate; it must never know of the network, of plans' fragments or of how
// tables are stored.
package sql
