package gateway

import (
	"cmp"
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/gateway/session"
	"skein/sqlstate"
)

// ingestTarget is what an ingest writes to and what happens when it ends.
type ingestTarget struct {
	table   *catalog.Table
	created bool // hidden until published
	replace bool // publishing drops the table of that name
	// owner is the session of a temporary table that is created.
	owner *session.Session
	ingestSettings
}

// DoPutCommandStatementIngest loads record batches into a table: one
// statement, one transaction. A table that the ingest creates or replaces
// becomes visible with the rows, or not at all.
func (s *sqlService) DoPutCommandStatementIngest(ctx context.Context, cmd flightsql.StatementIngest, r flight.MessageReader) (int64, error) {
	var rows int64
	id := newID()
	err := s.statement(ctx, id, "ingest", "INGEST INTO "+cmd.GetTable(), &rows, func(ctx context.Context) error {
		settings, err := ingestOptions(cmd.GetOptions())
		if err != nil {
			return err
		}
		name, err := s.ingestName(ctx, cmd)
		if err != nil {
			return err
		}
		release, err := s.gw.creating.claim(ctx, tableKey{name.created.Schema, name.created.Name}, cmd.GetTableDefinitionOptions())
		if err != nil {
			return err
		}
		defer release()
		target, err := s.ingestTarget(ctx, name, cmd, r)
		if err != nil {
			return err
		}
		if !target.created {
			release()
		}
		target.ingestSettings = settings
		rows, err = s.ingest(ctx, target, r)
		return err
	})
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	return rows, nil
}

// ingestTarget checks the request and finds or creates its table.
func (s *sqlService) ingestTarget(ctx context.Context, name *ingestName, cmd flightsql.StatementIngest, r flight.MessageReader) (*ingestTarget, error) {
	exists, missing, err := ingestModes(cmd.GetTableDefinitionOptions())
	if err != nil {
		return nil, err
	}
	table, err := s.target(ctx, name.scope, name.schema, cmd.GetTable())
	switch {
	case err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedTable:
		return nil, err
	case err != nil && missing == flightsql.TableDefinitionOptionsTableNotExistOptionFail:
		return nil, err
	case err == nil && exists == flightsql.TableDefinitionOptionsTableExistsOptionFail:
		return nil, sqlstate.New(sqlstate.DuplicateTable, "relation %q already exists", cmd.GetTable()).
			WithHint("use the append, replace or create_append mode")
	case err == nil && exists == flightsql.TableDefinitionOptionsTableExistsOptionAppend:
		return &ingestTarget{table: table}, nil
	}
	replace := err == nil
	sent, err := sentSchema(r)
	if err != nil {
		return nil, err
	}
	definition := name.created
	if replace { // what is replaced stays where it is
		definition.Schema, definition.Temporary = table.Schema, table.Temporary
	}
	definition.Partitioning, definition.Tablets = catalog.Partitioning{Kind: catalog.Unpartitioned}, []catalog.Tablet{{}}
	if definition.Columns, err = ingestColumns(sent); err != nil {
		return nil, err
	}
	created, err := s.gw.createTable(ctx, definition, true)
	if err != nil {
		return nil, err
	}
	return &ingestTarget{table: created, created: true, replace: replace, owner: name.owner}, nil
}

// ingestName is what an ingest calls its table.
type ingestName struct {
	scope  *scope
	schema string // where to look for it, as for scope.find
	// created is the table to be made if there is none, without columns.
	created *catalog.Table
	owner   *session.Session // of a temporary one
}

func (s *sqlService) ingestName(ctx context.Context, cmd flightsql.StatementIngest) (*ingestName, error) {
	switch {
	case len(cmd.GetTransactionId()) > 0:
		return nil, errNoTransactions()
	case cmd.GetCatalog() != "" && cmd.GetCatalog() != catalogName:
		return nil, sqlstate.New(sqlstate.UndefinedObject, "catalog %q does not exist", cmd.GetCatalog()).WithHint("the catalog is %q", catalogName)
	case cmd.GetTable() == "":
		return nil, sqlstate.New(sqlstate.InvalidTableDefinition, "the ingest names no table")
	}
	temporary := cmd.GetTemporary() || cmd.GetSchema() == tempSchema
	if temporary && cmd.GetSchema() != "" && cmd.GetSchema() != tempSchema {
		return nil, sqlstate.New(sqlstate.InvalidTableDefinition, "cannot create a temporary table in schema %q", cmd.GetSchema())
	}
	out := &ingestName{schema: cmd.GetSchema(), created: &catalog.Table{Name: cmd.GetTable()}}
	var err error
	if out.owner, err = s.own(ctx, out.created, temporary); err != nil {
		return nil, err
	}
	if out.scope, err = s.scope(ctx); err != nil {
		return nil, err
	}
	if temporary {
		out.schema = tempSchema
	} else {
		out.created.Schema = cmp.Or(cmd.GetSchema(), out.scope.CreateIn, catalog.DefaultSchema)
	}
	return out, nil
}

// ingestModes reads what to do with a table that exists and with one that does
// not; unspecified means append and fail.
func ingestModes(o *flightsql.TableDefinitionOptions) (flightsql.TableDefinitionOptionsTableExistsOption, flightsql.TableDefinitionOptionsTableNotExistOption, error) {
	exists, missing := o.GetIfExists(), o.GetIfNotExist()
	if exists == flightsql.TableDefinitionOptionsTableExistsOptionUnspecified {
		exists = flightsql.TableDefinitionOptionsTableExistsOptionAppend
	}
	if missing == flightsql.TableDefinitionOptionsTableNotExistOptionUnspecified {
		missing = flightsql.TableDefinitionOptionsTableNotExistOptionFail
	}
	switch exists {
	case flightsql.TableDefinitionOptionsTableExistsOptionAppend, flightsql.TableDefinitionOptionsTableExistsOptionFail, flightsql.TableDefinitionOptionsTableExistsOptionReplace:
	default:
		return 0, 0, sqlstate.New(sqlstate.InvalidParameter, "unknown if-exists option %d of the ingest", exists)
	}
	switch missing {
	case flightsql.TableDefinitionOptionsTableNotExistOptionCreate, flightsql.TableDefinitionOptionsTableNotExistOptionFail:
	default:
		return 0, 0, sqlstate.New(sqlstate.InvalidParameter, "unknown if-not-exist option %d of the ingest", missing)
	}
	return exists, missing, nil
}

// ingest moves the stream's rows into the target and makes them visible.
func (s *sqlService) ingest(ctx context.Context, target *ingestTarget, r flight.MessageReader) (int64, error) {
	rows, err := s.ingestRows(ctx, target, r)
	err = s.ifDropped(ctx, err, target.table)
	if err == nil && target.created {
		if err = s.gw.publishTable(ctx, target.table, target.replace); err == nil {
			err = s.outlived(target.owner)
		}
	}
	if err != nil {
		if target.created {
			s.gw.discardTable(target.table)
		}
		return 0, err
	}
	s.gw.metrics.rowsWrote.Add(float64(rows))
	s.gw.directory.Kick()
	return rows, nil
}

// sentSchema is the schema of a stream of rows. The library reads it when it is
// first asked for, and panics where it is damaged.
func sentSchema(r flight.MessageReader) (schema *arrow.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			schema, err = nil, sqlstate.New(sqlstate.ProtocolViolation, "the schema of the rows is damaged: %v", p)
		}
	}()
	if schema = r.Schema(); schema == nil {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "the stream of rows has no schema")
	}
	return schema, nil
}

func (s *sqlService) ingestRows(ctx context.Context, target *ingestTarget, r flight.MessageReader) (int64, error) {
	table := target.table
	sent, err := sentSchema(r)
	if err != nil {
		return 0, err
	}
	in, err := s.scope(ctx)
	if err != nil {
		return 0, err
	}
	convert, err := newConverter(ctx, table, sent, in.Zone)
	if err != nil {
		return 0, err
	}
	w, err := s.gw.newTableWriter(s.gw.directory.Current(), table)
	if err != nil {
		return 0, err
	}
	w.onConflict = target.onConflict
	if target.write != nil {
		if target.created {
			return 0, sqlstate.New(sqlstate.InvalidParameter, "an ingest that creates its table has no %s", ingestWriteID).
				WithHint("create the table first")
		}
		done, rows, err := target.write.earlier(ctx, s.gw, w.snap, table)
		if done || err != nil {
			return rows, err
		}
		w.txn = target.write.transaction(table, target.write.attempt)
	}
	if err := copyRows(ctx, convert, w, r); err != nil {
		w.Abort()
		return 0, err
	}
	rows, err := w.Commit(ctx)
	if err == nil && w.onConflict != pb.WriteHeader_ERROR {
		rows = w.stored()
	}
	return rows, err
}

func copyRows(ctx context.Context, convert *converter, w *tableWriter, r flight.MessageReader) error {
	for r.Next() {
		b, err := convert.convert(r.RecordBatch())
		if err != nil {
			return fmt.Errorf("row %d and following: %w", w.rows+1, err)
		}
		if err := w.Write(ctx, b); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return sqlstate.New(sqlstate.ConnectionFailure, "the stream of rows broke off after row %d, nothing was stored: %w", w.rows, err)
	}
	return nil
}

// plainPut appends rows sent to a descriptor path to an existing table.
func (s *sqlService) plainPut(stream flight.FlightService_DoPutServer, d *flight.FlightDescriptor) error {
	ctx := stream.Context()
	schema, name, err := tableOfPath(d.GetPath())
	if err != nil {
		return s.fail(ctx, err)
	}
	r, err := flight.NewRecordReader(stream, ipc.WithDelayReadSchema(true))
	if err != nil {
		return s.fail(ctx, sqlstate.New(sqlstate.ProtocolViolation, "the stream of rows cannot be read: %w", err))
	}
	defer r.Release()
	var rows int64
	err = s.statement(ctx, newID(), "ingest", "INGEST INTO "+quotedName(schema, name), &rows, func(ctx context.Context) error {
		in, err := s.scope(ctx)
		if err != nil {
			return err
		}
		table, err := s.target(ctx, in, schema, name)
		if err != nil {
			return err
		}
		rows, err = s.ingest(ctx, &ingestTarget{table: table}, r)
		return err
	})
	if err != nil {
		return s.fail(ctx, err)
	}
	return stream.Send(&flight.PutResult{AppMetadata: fmt.Appendf(nil, `{"rows":%d}`, rows)})
}

// emptySchema is the result of statements that return no rows.
var emptySchema = arrow.NewSchema(nil, nil)
