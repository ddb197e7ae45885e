package planner

import (
	"fmt"

	"skein/sqlstate"
)

// UnknownTableError reports a table that the Locator or the Metadata does not
// know, usually because it was dropped after the query was bound.
type UnknownTableError struct {
	Table string
}

// Error names the table.
func (e *UnknownTableError) Error() string {
	return fmt.Sprintf("table %q does not exist", e.Table)
}

// Unwrap gives the error its SQLSTATE.
func (e *UnknownTableError) Unwrap() error {
	return sqlstate.New(sqlstate.UndefinedTable, "table %q does not exist", e.Table)
}

// EmptyLayoutError reports a table whose layout has no tablet to scan.
type EmptyLayoutError struct {
	Table string
}

// Error names the table.
func (e *EmptyLayoutError) Error() string {
	return fmt.Sprintf("table %q has no tablets in its layout", e.Table)
}

// Unwrap gives the error its SQLSTATE.
func (e *EmptyLayoutError) Unwrap() error {
	return sqlstate.New(sqlstate.CannotConnectNow, "table %q has no tablets yet", e.Table).
		WithHint("retry once the table's tablets have been placed")
}

// InvalidPlanError reports an input tree or a computed plan that is not
// well-formed: a defect of the caller or of this package, not of the user.
type InvalidPlanError struct {
	Reason string
}

// Error says what is wrong with the plan.
func (e *InvalidPlanError) Error() string { return "invalid plan: " + e.Reason }

// Unwrap gives the error its SQLSTATE.
func (e *InvalidPlanError) Unwrap() error {
	return sqlstate.New(sqlstate.InternalError, "invalid plan: %s", e.Reason)
}

func invalid(format string, args ...any) error {
	return &InvalidPlanError{Reason: fmt.Sprintf(format, args...)}
}
