package gateway

import (
	"context"
	"errors"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"skein/catalog"
	"skein/columnar"
	"skein/gateway/session"
	"skein/sql"
	"skein/sqlstate"
)

// set runs SET and RESET.
func (s *sqlService) set(ctx context.Context, b *sql.Set) error {
	what := "SET"
	if b.Reset {
		what = "RESET"
	}
	opened, err := s.openSession(ctx, what)
	if err != nil {
		return err
	}
	return opened.Change(func(to *session.Settings) error {
		if b.Reset {
			return to.Reset(b.Name, s.gw.sessions.Defaults())
		}
		return to.Set(b.Name, b.Values...)
	})
}

// checkSetting refuses a SHOW or SET of what is no setting while it is bound, when
// a client that prepares it can still be told.
func (s *sqlService) checkSetting(bound sql.Bound) error {
	name := ""
	switch b := bound.(type) {
	case *sql.Show:
		name = b.Name
	case *sql.Set:
		name = b.Name
	}
	if name == "" {
		return nil
	}
	_, err := s.gw.sessions.Defaults().Show(name)
	return err
}

// showSchema is the result of a SHOW.
func showSchema(b *sql.Show) *arrow.Schema {
	names := []string{"name", "setting", "description"}
	if b.Name != "" {
		var none session.Settings
		known, err := none.Show(b.Name)
		if err != nil {
			known.Name = b.Name // it was checked: see checkSetting
		}
		names = []string{known.Name}
	}
	fields := make([]arrow.Field, len(names))
	for i, name := range names {
		fields[i] = arrow.Field{Name: name, Type: catalog.Text}
	}
	return arrow.NewSchema(fields, nil)
}

// show makes the rows of a SHOW.
func (s *sqlService) show(ctx context.Context, b *sql.Show) (*columnar.Batch, error) {
	settings, err := s.settings(ctx)
	if err != nil {
		return nil, err
	}
	if b.Name != "" {
		one, err := settings.Show(b.Name)
		if err != nil {
			return nil, err
		}
		return textBatch([]string{one.Value})
	}
	columns := make([][]string, 3)
	for _, v := range settings.All() {
		for i, text := range []string{v.Name, v.Value, v.Doc} {
			columns[i] = append(columns[i], text)
		}
	}
	return textBatch(columns...)
}

// Names of session options that are no settings: Flight SQL's own.
const (
	catalogOption = "catalog"
	schemaOption  = "schema"
)

// SetSessionOptions changes settings, "catalog" and "schema" among them. It makes
// a session for a client that has none, whose cookie comes with the answer.
func (s *sqlService) SetSessionOptions(ctx context.Context, req *flight.SetSessionOptionsRequest) (*flight.SetSessionOptionsResult, error) {
	opened, err := s.session(ctx)
	if err == nil && (opened == nil || !opened.Kept()) {
		token, ok := incomingToken(ctx)
		if !ok {
			token = session.NewToken()
		}
		opened, err = s.keepSession(ctx, token)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	failed := make(map[string]*flight.SetSessionOptionsResultError)
	for name, value := range req.GetSessionOptions() {
		err := opened.Change(func(to *session.Settings) error { return s.setOption(to, name, value) })
		if err != nil {
			failed[name] = &flight.SetSessionOptionsResultError{Value: optionError(err)}
		}
	}
	return &flight.SetSessionOptionsResult{Errors: failed}, nil
}

func (s *sqlService) setOption(to *session.Settings, name string, value *flight.SessionOptionValue) error {
	values, err := optionTexts(value)
	if err != nil {
		return err
	}
	switch {
	case name == catalogOption:
		if len(values) > 0 && (len(values) > 1 || values[0] != catalogName) {
			return sqlstate.New(sqlstate.InvalidParameter, "the catalog is %q", catalogName)
		}
		return nil
	case name == schemaOption && len(values) > 0:
		if len(values) > 1 || !s.schemaExists(values[0]) {
			return sqlstate.New(sqlstate.InvalidParameter, "schema %q does not exist", values)
		}
		return to.Set("search_path", values...)
	case name == schemaOption:
		name = "search_path"
	}
	if values == nil {
		return to.Reset(name, s.gw.sessions.Defaults())
	}
	return to.Set(name, values...)
}

// optionTexts are the values of an option, nil for one that is to be reset.
func optionTexts(value *flight.SessionOptionValue) ([]string, error) {
	switch v := value.GetOptionValue().(type) {
	case nil:
		return nil, nil
	case *pb.SessionOptionValue_StringValue:
		return []string{v.StringValue}, nil
	case *pb.SessionOptionValue_BoolValue:
		return []string{strconv.FormatBool(v.BoolValue)}, nil
	case *pb.SessionOptionValue_Int64Value:
		return []string{strconv.FormatInt(v.Int64Value, 10)}, nil
	case *pb.SessionOptionValue_DoubleValue:
		return []string{strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)}, nil
	case *pb.SessionOptionValue_StringListValue_:
		return append([]string{}, v.StringListValue.GetValues()...), nil
	}
	return nil, sqlstate.New(sqlstate.InvalidParameter, "a session option cannot be a %T", value.GetOptionValue())
}

func optionError(err error) pb.SetSessionOptionsResult_ErrorValue {
	switch sqlstate.CodeOf(err) {
	case sqlstate.UndefinedObject:
		return flight.SetSessionOptionsResultErrorInvalidName
	case sqlstate.InvalidParameter:
		return flight.SetSessionOptionsResultErrorInvalidValue
	}
	return flight.SetSessionOptionsResultErrorError
}

// GetSessionOptions lists the settings, those of a client without a session too.
func (s *sqlService) GetSessionOptions(ctx context.Context, _ *flight.GetSessionOptionsRequest) (*flight.GetSessionOptionsResult, error) {
	scope, err := s.scope(ctx)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	settings, err := s.settings(ctx)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	current := scope.CreateIn
	if current == "" {
		current = catalog.DefaultSchema
	}
	values := map[string]any{catalogOption: catalogName, schemaOption: current}
	for _, v := range settings.All() {
		values[v.Name] = v.Value
	}
	values["search_path"] = settings.SearchPath
	values["skein.direct_endpoints"] = settings.Direct
	options, err := flight.NewSessionOptionValues(values)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &flight.GetSessionOptionsResult{SessionOptions: options}, nil
}

// CloseSession ends the session, its handles and temporary tables. A client
// without one has nothing to close.
func (s *sqlService) CloseSession(ctx context.Context, _ *flight.CloseSessionRequest) (*flight.CloseSessionResult, error) {
	found, err := s.session(ctx)
	var gone *sqlstate.Error
	if err != nil && !(errors.As(err, &gone) && gone.Code == sqlstate.SessionExpired) {
		return nil, s.fail(ctx, err)
	}
	s.gw.sessions.Close(found)
	s.setCookie(ctx, session.DropCookie())
	return &flight.CloseSessionResult{Status: flight.CloseSessionResultClosed}, nil
}
