package flightproto_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skein/flightproto"
	"skein/sqlstate"
)

func TestErrorsSurviveTheWire(t *testing.T) {
	for _, c := range []struct {
		code sqlstate.Code
		want codes.Code
	}{
		{sqlstate.SyntaxError, codes.InvalidArgument},
		{sqlstate.UndefinedColumn, codes.InvalidArgument},
		{sqlstate.UndefinedTable, codes.NotFound},
		{sqlstate.DuplicateTable, codes.AlreadyExists},
		{sqlstate.UniqueViolation, codes.AlreadyExists},
		{sqlstate.NotNullViolation, codes.InvalidArgument},
		{sqlstate.NumericOutOfRange, codes.InvalidArgument},
		{sqlstate.DivisionByZero, codes.InvalidArgument},
		{sqlstate.FeatureNotSupported, codes.Unimplemented},
		{sqlstate.InvalidSchemaName, codes.InvalidArgument},
		{sqlstate.SerializationFailure, codes.Aborted},
		{sqlstate.UnknownTxnOutcome, codes.Unknown},
		{sqlstate.DiskFull, codes.ResourceExhausted},
		{sqlstate.OutOfMemory, codes.ResourceExhausted},
		{sqlstate.TooManyRequests, codes.ResourceExhausted},
		{sqlstate.ProgramLimitExceeded, codes.ResourceExhausted},
		{sqlstate.QueryCanceled, codes.Canceled},
		{sqlstate.ConnectionFailure, codes.Unavailable},
		{sqlstate.CannotConnectNow, codes.Unavailable},
		{sqlstate.ProtocolViolation, codes.InvalidArgument},
		{sqlstate.IOError, codes.Internal},
		{sqlstate.InternalError, codes.Internal},
		{sqlstate.DataCorrupted, codes.DataLoss},
	} {
		original := sqlstate.New(c.code, "relation %q is odd", "t").WithDetail("the detail").WithHint("the hint").At(17)
		wrapped := fmt.Errorf("running fragment 3: %w", original)
		st := flightproto.ToStatus(flightproto.WithReason(flightproto.TabletMoved, wrapped))
		if got := status.Code(st); got != c.want {
			t.Errorf("%s became %s, want %s", c.code, got, c.want)
		}
		if text := st.Error(); !strings.Contains(text, string(c.code)) || !strings.Contains(text, "is odd") {
			t.Errorf("%s: text is %q", c.code, text)
		}
		back := flightproto.FromStatus(st)
		var e *sqlstate.Error
		if !errors.As(back, &e) {
			t.Fatalf("%s came back as %T", c.code, back)
		}
		if e.Code != original.Code || e.Message != original.Message || e.Detail != original.Detail ||
			e.Hint != original.Hint || e.Position != original.Position || e.Error() != original.Error() {
			t.Errorf("%s came back as %+v", c.code, e)
		}
		if flightproto.ReasonOf(back) != flightproto.TabletMoved {
			t.Errorf("%s: reason is %q", c.code, flightproto.ReasonOf(back))
		}
		if again := flightproto.ToStatus(back); again.Error() != st.Error() {
			t.Errorf("%s was forwarded as %v, was %v", c.code, again, st)
		}
	}
}

func TestStatusOfOtherErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		code  codes.Code
		state sqlstate.Code
		is    error
	}{
		"cancelled":  {fmt.Errorf("reading: %w", context.Canceled), codes.Canceled, sqlstate.QueryCanceled, context.Canceled},
		"timeout":    {context.DeadlineExceeded, codes.DeadlineExceeded, sqlstate.QueryCanceled, context.DeadlineExceeded},
		"internal":   {errors.New("nil map"), codes.Internal, sqlstate.InternalError, nil},
		"oversize":   {&flightproto.SizeError{What: "x", Size: 2, Limit: 1}, codes.InvalidArgument, sqlstate.ProtocolViolation, nil},
		"bad utf-8":  {sqlstate.New(sqlstate.InvalidByteSequence, "bad \xff byte"), codes.InvalidArgument, sqlstate.InvalidByteSequence, nil},
		"long":       {sqlstate.New(sqlstate.InvalidText, "%s", strings.Repeat("é", 1<<20)), codes.InvalidArgument, sqlstate.InvalidText, nil},
		"bare grpc":  {status.Error(codes.Unavailable, "connection refused"), codes.Unavailable, sqlstate.ConnectionFailure, nil},
		"no handler": {status.Error(codes.Unimplemented, "method"), codes.Unimplemented, sqlstate.FeatureNotSupported, nil},
		"too large":  {status.Error(codes.ResourceExhausted, "message"), codes.ResourceExhausted, sqlstate.TooManyRequests, nil},
		"unknown":    {status.Error(codes.FailedPrecondition, "hm"), codes.FailedPrecondition, sqlstate.InternalError, nil},
	} {
		st := flightproto.ToStatus(c.err)
		back := flightproto.FromStatus(st)
		if status.Code(st) != c.code || sqlstate.CodeOf(back) != c.state || c.is != nil && !errors.Is(back, c.is) {
			t.Errorf("%s: status %s, came back as %v", name, status.Code(st), back)
		}
		if len(st.Error()) > 8<<10 {
			t.Errorf("%s: status is %d bytes", name, len(st.Error()))
		}
	}
	if flightproto.ToStatus(nil) != nil || flightproto.FromStatus(nil) != nil || flightproto.FromStatus(io.EOF) != io.EOF {
		t.Error("nil and the end of a stream are not errors of a peer")
	}
	if local := errors.New("local"); flightproto.FromStatus(local) != local {
		t.Error("local errors are not the peer's")
	}
	if got := flightproto.ReasonOf(flightproto.FromStatus(status.Error(codes.Unavailable, "gone"))); got != flightproto.Unavailable {
		t.Errorf("reason of a lost connection is %q", got)
	}
}
