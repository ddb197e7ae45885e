package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"
	"unicode/utf8"

	"skein/flightproto"
	"skein/gateway/session"
	"skein/sqlstate"
)

// loggedText is how many bytes of a statement the log shows.
const loggedText = 2000

// statement runs f as one registered statement: cancellable, timed, counted.
// rows, which f sets, is what it returned or changed, for the log.
func (s *sqlService) statement(ctx context.Context, id, kind, text string, rows *int64, f func(ctx context.Context) error) error {
	began := time.Now()
	in, err := s.session(ctx)
	if err == nil {
		err = s.inSession(ctx, in, id, text, f)
	}
	s.ended(ctx, id, kind, text, *rows, time.Since(began), err)
	if serverFault(err) {
		return &failedStatement{id: id, err: err}
	}
	return err
}

// inSession runs f as one registered statement of a session, nil for none.
func (s *sqlService) inSession(ctx context.Context, in *session.Session, id, text string, f func(ctx context.Context) error) error {
	settings := s.gw.sessions.Defaults()
	if in != nil {
		settings = in.Settings()
		defer s.gw.sessions.Begin(in)()
	}
	ctx, end, err := s.gw.queries.start(ctx, id, s.gw.cfg.Identify(ctx).User, text, settings)
	if err != nil {
		return err
	}
	defer end()
	return causeOf(ctx, f(ctx))
}

// ended counts a statement and logs it: at level debug, one that took long as
// a warning. The keys are what operators search for; they stay as they are.
func (s *sqlService) ended(ctx context.Context, id, kind, text string, rows int64, took time.Duration, err error) {
	code := sqlstate.CodeOf(err)
	if err == nil {
		code = "00000"
	}
	s.gw.metrics.ended(kind, string(code), took)
	level, message := slog.LevelDebug, "statement ended"
	if limit := s.gw.cfg.SlowStatement; limit > 0 && took >= limit {
		s.gw.metrics.slow.WithLabelValues(kind).Inc()
		level, message = slog.LevelWarn, "slow statement"
	}
	if !s.gw.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("query_id", id), slog.String("kind", kind), slog.Float64("duration_seconds", took.Seconds()),
		slog.Int64("rows", rows), slog.String("sqlstate", string(code)), slog.String("statement", clipped(text, loggedText)),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	s.gw.log.LogAttrs(ctx, level, message, attrs...)
}

// clipped cuts a text to at most limit bytes, between characters.
func clipped(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "..."
}

// failedStatement remembers which statement failed, for the log.
type failedStatement struct {
	id  string
	err error
}

func (e *failedStatement) Error() string { return e.err.Error() }
func (e *failedStatement) Unwrap() error { return e.err }

// serverFault reports whether an error is not the client's doing.
func serverFault(err error) bool {
	switch sqlstate.CodeOf(err) {
	case sqlstate.InternalError, sqlstate.DataCorrupted, sqlstate.IOError, sqlstate.DiskFull:
		return err != nil
	}
	return false
}

// fail makes the gRPC error of a failed call and logs what is the server's
// fault.
func (s *sqlService) fail(ctx context.Context, err error) error {
	err = causeOf(ctx, err)
	if serverFault(err) {
		attrs := []slog.Attr{slog.Any("err", err)}
		var failed *failedStatement
		if errors.As(err, &failed) {
			attrs = append(attrs, slog.String("query_id", failed.id))
		}
		s.gw.log.LogAttrs(ctx, slog.LevelError, "statement failed", attrs...)
	}
	return flightproto.ToStatus(err)
}
