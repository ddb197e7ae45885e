// Package bind gives parsed SQL its meaning: it resolves names against the
// catalog, types and coerces expressions by PostgreSQL's rules, and builds the
// lite IR of queries and the descriptions of data definition statements.
//
// Nothing in a statement is silently ignored: what the language does not have
// is refused with FeatureNotSupported and the name of the construct.
//
// It may import parse, exec (for the function registry and constant folding),
// planner, catalog and sqlstate; it must never know of the network or of how
// tables are stored.
package bind
