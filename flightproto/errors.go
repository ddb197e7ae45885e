package flightproto

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// Reason is what a gateway may do about an error of a worker.
type Reason string

// The reasons.
const (
	NoReason      Reason = ""
	StaleMetadata Reason = "stale_metadata" // plan again with newer metadata
	TabletMoved   Reason = "tablet_moved"   // its replica is elsewhere: try another one
	TabletSplit   Reason = "tablet_split"   // others hold its rows now: plan again with newer metadata
	NotStarted    Reason = "not_started"    // the worker knows nothing of it, it has restarted say: start again
	Reservation   Reason = "reservation"    // the worker is full: wait and retry
	Cancelled     Reason = "cancelled"      // somebody cancelled the query
	Unavailable   Reason = "unavailable"    // the peer or its quorum is away
	UnknownPlan   Reason = "unknown_plan"   // the worker has not kept it: send it along
)

// ReasonError is an error with a Reason. The sqlstate.Error is in its chain.
type ReasonError struct {
	Reason Reason
	Err    error
}

// Error is the text of the error inside.
func (e *ReasonError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *ReasonError) Unwrap() error { return e.Err }

// WithReason attaches a reason to a non-nil error.
func WithReason(reason Reason, err error) error {
	return &ReasonError{Reason: reason, Err: err}
}

// ReasonOf returns the reason attached to an error, NoReason without one.
func ReasonOf(err error) Reason {
	var e *ReasonError
	if errors.As(err, &e) {
		return e.Reason
	}
	return NoReason
}

// TabletReplaced is the error of work on a tablet that is not of its table any
// more: it was split or merged, and others hold its rows.
func TabletReplaced(table *catalog.Table, tablet catalog.TabletID) error {
	return WithReason(TabletSplit, sqlstate.New(sqlstate.SerializationFailure,
		"tablet %d is not of table %s any more: others hold its rows", tablet, table.QualifiedName()).
		WithHint("Run the statement again."))
}

// maxErrorText bounds each text of an error on the wire. Statuses travel in
// HTTP/2 trailers, whose total size clients limit.
const maxErrorText = 2048

// ToStatus turns an error into a gRPC status error: the code by SQLSTATE class,
// the message with the SQLSTATE in its text, and an ErrorDetail from which
// FromStatus restores the error. Nil stays nil; an error that already is a
// status stays as it is.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	var user *sqlstate.Error
	if !errors.As(err, &user) {
		if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
			return err
		}
		user = classify(err)
	}
	detail := &pb.ErrorDetail{
		Sqlstate: string(user.Code),
		Message:  clip(user.Message),
		Detail:   clip(user.Detail),
		Hint:     clip(user.Hint),
		Position: uint32(max(user.Position, 0)),
		Reason:   string(ReasonOf(err)),
	}
	code := grpcCode(user.Code)
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	shown := *user
	shown.Message, shown.Detail, shown.Hint = detail.Message, detail.Detail, detail.Hint
	st := status.New(code, shown.Error())
	detailed, detailErr := st.WithDetails(detail)
	if detailErr != nil {
		return st.Err()
	}
	return detailed.Err()
}

// classify gives errors that are not meant for users a SQLSTATE.
func classify(err error) *sqlstate.Error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return sqlstate.New(sqlstate.QueryCanceled, "canceled because its time was up: %w", err)
	case errors.Is(err, context.Canceled):
		return sqlstate.New(sqlstate.QueryCanceled, "canceled: %w", err)
	case isOversizedAuthorization(err):
		return sqlstate.New(sqlstate.InvalidAuthorization, "%w", err)
	case isUnknownKey(err):
		return sqlstate.New(sqlstate.InvalidAuthorization, "%w", err)
	case isProtocolError(err):
		return sqlstate.New(sqlstate.ProtocolViolation, "%w", err)
	}
	return sqlstate.New(sqlstate.InternalError, "%w", err)
}

func isOversizedAuthorization(err error) bool {
	var size *SizeError
	return errors.As(err, &size) && size.What == authorizationPart
}

func isUnknownKey(err error) bool {
	var key *UnknownKeyError
	return errors.As(err, &key)
}

func isProtocolError(err error) bool {
	var version *VersionError
	var size *SizeError
	var sum *ChecksumError
	var form *MalformedError
	return errors.As(err, &version) || errors.As(err, &size) || errors.As(err, &sum) || errors.As(err, &form)
}

// grpcCode picks the gRPC code that says most about a SQLSTATE to a client
// that only understands gRPC.
func grpcCode(code sqlstate.Code) codes.Code {
	switch code {
	case sqlstate.InsufficientPrivilege:
		return codes.PermissionDenied
	case sqlstate.UndefinedTable:
		return codes.NotFound
	case sqlstate.UniqueViolation, sqlstate.DuplicateTable, sqlstate.DuplicateSchema:
		return codes.AlreadyExists
	case sqlstate.SerializationFailure, sqlstate.ObjectInUse:
		return codes.Aborted
	case sqlstate.UnknownTxnOutcome:
		return codes.Unknown
	case sqlstate.QueryCanceled:
		return codes.Canceled
	case sqlstate.CannotConnectNow:
		return codes.Unavailable
	case sqlstate.DataCorrupted:
		return codes.DataLoss
	case sqlstate.ConnectionMissing, sqlstate.SessionExpired, sqlstate.CannotChangeSetting, sqlstate.DependentObjects:
		return codes.FailedPrecondition
	}
	if len(code) != 5 {
		return codes.Internal
	}
	switch code[:2] {
	case "0A":
		return codes.Unimplemented
	case "08":
		if code == sqlstate.ProtocolViolation {
			return codes.InvalidArgument
		}
		return codes.Unavailable
	case "22", "23", "3F", "42":
		return codes.InvalidArgument
	case "53", "54":
		return codes.ResourceExhausted
	case "28":
		return codes.Unauthenticated
	}
	return codes.Internal
}

// FromStatus restores the error behind a gRPC status: a *sqlstate.Error, inside
// a *ReasonError when the sender gave a reason. A status without a detail, such
// as those of gRPC itself, is given the SQLSTATE that fits its code best. Nil,
// io.EOF and errors that are no status stay as they are.
func FromStatus(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, any := range st.Details() {
		if detail, ok := any.(*pb.ErrorDetail); ok && len(detail.GetSqlstate()) == 5 {
			return fromDetail(st, detail)
		}
	}
	text := st.Message()
	switch st.Code() {
	case codes.Canceled:
		return restored(Cancelled, remote(sqlstate.QueryCanceled, text, context.Canceled))
	case codes.DeadlineExceeded:
		return restored(Cancelled, remote(sqlstate.QueryCanceled, text, context.DeadlineExceeded))
	case codes.Unavailable:
		return restored(Unavailable, remote(sqlstate.ConnectionFailure, text, nil))
	case codes.ResourceExhausted:
		return restored(Reservation, remote(sqlstate.TooManyRequests, text, nil))
	case codes.Unimplemented:
		return remote(sqlstate.FeatureNotSupported, text, nil)
	case codes.InvalidArgument:
		return remote(sqlstate.InvalidParameter, text, nil)
	case codes.DataLoss:
		return remote(sqlstate.DataCorrupted, text, nil)
	}
	return remote(sqlstate.InternalError, fmt.Sprintf("%s (gRPC %s)", text, st.Code()), nil)
}

func fromDetail(st *status.Status, detail *pb.ErrorDetail) error {
	var cause error
	switch st.Code() {
	case codes.Canceled:
		cause = context.Canceled
	case codes.DeadlineExceeded:
		cause = context.DeadlineExceeded
	}
	e := remote(sqlstate.Code(detail.GetSqlstate()), detail.GetMessage(), cause)
	e.Detail, e.Hint, e.Position = detail.GetDetail(), detail.GetHint(), int(detail.GetPosition())
	return restored(Reason(detail.GetReason()), e)
}

// remote makes a sqlstate.Error with exactly this message; the cause, if any,
// only serves errors.Is.
func remote(code sqlstate.Code, message string, cause error) *sqlstate.Error {
	if cause == nil {
		return &sqlstate.Error{Code: code, Message: message}
	}
	e := sqlstate.New(code, "%w", cause)
	e.Message = message
	return e
}

func restored(reason Reason, e *sqlstate.Error) error {
	if reason == NoReason {
		return e
	}
	return &ReasonError{Reason: reason, Err: e}
}

// clip bounds a text and keeps it valid UTF-8, which protobuf insists on.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorText {
		return s
	}
	end := maxErrorText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
