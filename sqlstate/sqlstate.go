// Package sqlstate is the error type that reaches users: a SQLSTATE code of
// PostgreSQL's list, what happened, where, and what to do about it.
//
// It sits at the bottom of the import order and imports nothing of Skein.
// Package flightproto carries these errors over gRPC.
package sqlstate

import (
	"errors"
	"fmt"
)

// Code is a five-character SQLSTATE.
type Code string

// The codes that Skein raises, with PostgreSQL's meaning.
const (
	FeatureNotSupported    Code = "0A000"
	ConnectionMissing      Code = "08003"
	ConnectionFailure      Code = "08006"
	ProtocolViolation      Code = "08P01"
	CardinalityViolation   Code = "21000"
	StringTooLong          Code = "22001"
	NumericOutOfRange      Code = "22003"
	InvalidDatetime        Code = "22007"
	DatetimeOverflow       Code = "22008"
	DivisionByZero         Code = "22012"
	InvalidEscape          Code = "22025"
	InvalidParameter       Code = "22023"
	InvalidNtileArgument   Code = "22014"
	InvalidNthArgument     Code = "22016"
	InvalidLogArgument     Code = "2201E"
	InvalidPowerArgument   Code = "2201F"
	InvalidLimit           Code = "2201W"
	InvalidOffset          Code = "2201X"
	InvalidText            Code = "22P02"
	InvalidByteSequence    Code = "22021"
	NotNullViolation       Code = "23502"
	UniqueViolation        Code = "23505"
	InvalidAuthorization   Code = "28000"
	InvalidPassword        Code = "28P01"
	DependentObjects       Code = "2BP01"
	SerializationFailure   Code = "40001"
	UnknownTxnOutcome      Code = "40003"
	InsufficientPrivilege  Code = "42501"
	SyntaxError            Code = "42601"
	InvalidColumnReference Code = "42P10"
	InvalidRecursion       Code = "42P19"
	AmbiguousColumn        Code = "42702"
	UndefinedColumn        Code = "42703"
	UndefinedFunction      Code = "42883"
	UndefinedTable         Code = "42P01"
	UndefinedParameter     Code = "42P02"
	UndefinedObject        Code = "42704"
	DuplicateObject        Code = "42710"
	InvalidSchemaName      Code = "3F000"
	DuplicateSchema        Code = "42P06"
	DuplicateTable         Code = "42P07"
	DuplicateColumn        Code = "42701"
	DuplicateAlias         Code = "42712"
	AmbiguousAlias         Code = "42P09"
	GroupingError          Code = "42803"
	WindowingError         Code = "42P20"
	DatatypeMismatch       Code = "42804"
	CannotCoerce           Code = "42846"
	InvalidTableDefinition Code = "42P16"
	NameTooLong            Code = "42622"
	WrongObjectType        Code = "42809"
	ReservedName           Code = "42939"
	AmbiguousFunction      Code = "42725"
	DiskFull               Code = "53100"
	OutOfMemory            Code = "53200"
	TooManyRequests        Code = "53400"
	ProgramLimitExceeded   Code = "54000"
	ObjectNotInState       Code = "55000"
	ObjectInUse            Code = "55006"
	CannotChangeSetting    Code = "55P02"
	QueryCanceled          Code = "57014"
	CannotConnectNow       Code = "57P03"
	SessionExpired         Code = "57P05"
	IOError                Code = "58030"
	InternalError          Code = "XX000"
	DataCorrupted          Code = "XX001"
)

// Error is an error with a SQLSTATE.
type Error struct {
	Code    Code
	Message string // one line: what happened, naming the object
	Detail  string // where or why, optional
	Hint    string // what to do, optional
	// Position is the 1-based character in the statement text, 0 if unknown.
	Position int
	cause    error
}

// New returns an error with a formatted message. As with fmt.Errorf, a %w verb
// makes its operand the cause.
func New(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: wrapped.Error(), cause: errors.Unwrap(wrapped)}
}

// WithHint returns a copy with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// WithDetail returns a copy with a detail.
func (e *Error) WithDetail(format string, args ...any) *Error {
	c := *e
	c.Detail = fmt.Sprintf(format, args...)
	return &c
}

// At returns a copy with a 1-based position in the statement text.
func (e *Error) At(position int) *Error {
	c := *e
	c.Position = position
	return &c
}

// Error formats everything but the code's meaning on one line.
func (e *Error) Error() string {
	s := e.Message + " (SQLSTATE " + string(e.Code)
	if e.Position > 0 {
		s += fmt.Sprintf(", at character %d", e.Position)
	}
	s += ")"
	if e.Detail != "" {
		s += ". " + e.Detail
	}
	if e.Hint != "" {
		s += ". Hint: " + e.Hint
	}
	return s
}

// Unwrap returns the cause, if any.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the first Error in err's chain, InternalError for
// other errors and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return InternalError
}
