package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/catalog"
	"skein/flightproto"
	"skein/gateway/system"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// statement is one bound statement.
type statement struct {
	text    string
	bound   *sql.BoundStatement
	version uint64 // metadata it was bound against
	scope   *scope // what its names mean

	opened atomic.Pointer[openPlan]     // of a query
	result atomic.Pointer[resultSchema] // encoded when first asked for
	// analysis is set on the private copy that EXPLAIN ANALYZE runs.
	analysis *analysis
}

// resultSchema is the encoding of a result's schema, as it stands in a
// FlightInfo and as a stream begins with it.
type resultSchema struct {
	info   []byte
	stream *flightproto.StreamSchema
}

// encodedSchema returns the encodings of the result's schema.
func (st *statement) encodedSchema() *resultSchema {
	if r := st.result.Load(); r != nil {
		return r
	}
	schema := st.described()
	r := &resultSchema{
		info:   flight.SerializeSchema(schema, memory.DefaultAllocator),
		stream: flightproto.NewStreamSchema(schema),
	}
	st.result.Store(r)
	return r
}

// planSchema is the result of EXPLAIN.
var planSchema = arrow.NewSchema([]arrow.Field{{Name: "plan", Type: arrow.BinaryTypes.String}}, nil)

// isQuery reports whether the statement is run when its result is fetched, as
// queries are; others are run at once, those with RETURNING too.
func (st *statement) isQuery() bool {
	switch st.bound.Statement.(type) {
	case *sql.Query, *sql.Explain, *sql.Show:
		return true
	}
	return false
}

// schema is the public schema of the result, without fields for statements
// that have none.
func (st *statement) schema() *arrow.Schema {
	switch b := st.bound.Statement.(type) {
	case *sql.Query:
		return b.Schema
	case *sql.Explain:
		return planSchema
	case *sql.Show:
		return showSchema(b)
	}
	if r := st.returning(); r != nil {
		return r.Schema
	}
	return emptySchema
}

// returning is the statement's RETURNING clause, nil for none.
func (st *statement) returning() *sql.Returning {
	switch b := st.bound.Statement.(type) {
	case *sql.Insert:
		return b.Returning
	case *sql.Update:
		return b.Returning
	case *sql.Delete:
		return b.Returning
	}
	return nil
}

// target is the table that the statement changes the rows of, nil for none.
func (st *statement) target() *catalog.Table {
	switch b := st.bound.Statement.(type) {
	case *sql.Insert:
		return b.Table
	case *sql.Update:
		return b.Table
	case *sql.Delete:
		return b.Table
	}
	return nil
}

func (st *statement) params() []arrow.DataType { return st.bound.Params }

// parameterSchema names the parameters by position.
func (st *statement) parameterSchema() *arrow.Schema {
	fields := make([]arrow.Field, len(st.bound.Params))
	for i, dt := range st.bound.Params {
		fields[i] = arrow.Field{Name: fmt.Sprintf("$%d", i+1), Type: dt, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// bind parses and binds a request that must hold exactly one statement.
func (s *sqlService) bind(ctx context.Context, in *scope, text string, version uint64) (*statement, error) {
	statements, err := sql.Parse(text)
	if err != nil {
		return nil, withoutPassword(text, err)
	}
	switch len(statements) {
	case 1:
	case 0:
		return nil, sqlstate.New(sqlstate.SyntaxError, "the request holds no SQL statement")
	default:
		return nil, sqlstate.New(sqlstate.SyntaxError, "the request holds %d statements, one is allowed", len(statements)).
			WithHint("send them one by one")
	}
	bound, err := sql.BindIn(ctx, statements[0], in.Session, bindCatalog{s, in}, nil)
	if err == nil {
		err = s.checkSetting(bound.Statement)
	}
	if err != nil {
		return nil, err
	}
	return &statement{text: shownText(text, bound.Statement), bound: bound, version: version, scope: in}, nil
}

// with gives the parameters values; a statement without parameters is itself.
func (st *statement) with(args []*planner.Literal) (sql.Bound, error) {
	if len(args) != len(st.bound.Params) {
		return nil, sqlstate.New(sqlstate.UndefinedParameter, "the statement takes %d parameters, %d are bound", len(st.bound.Params), len(args))
	}
	if st.bound.Timeless() {
		return st.bound.Statement, nil
	}
	bound, err := st.bound.Substitute(args)
	if err != nil {
		return nil, err
	}
	return bound.Statement, nil
}

// argSets is what the statement is run with: once with nothing if it takes no
// parameters, else once for each set.
func (st *statement) argSets(args [][]*planner.Literal) [][]*planner.Literal {
	if len(st.bound.Params) == 0 || len(args) == 0 {
		return [][]*planner.Literal{nil}
	}
	return args
}

// plan makes a query ready to run.
func (s *sqlService) plan(ctx context.Context, st *statement, args [][]*planner.Literal) (*plannedQuery, error) {
	q := &plannedQuery{id: newID(), text: st.text, schema: st.encodedSchema(), stmt: st, args: args}
	for _, set := range st.argSets(args) {
		switch b := st.bound.Statement.(type) {
		case *sql.Explain:
			bound, err := st.with(set)
			if err != nil {
				return nil, err
			}
			explain := bound.(*sql.Explain)
			if explain.Analyze {
				q.analyze = append(q.analyze, explain)
				continue
			}
			lines, err := s.explain(explain)
			if err != nil {
				return nil, err
			}
			q.lines = append(q.lines, lines...)
		case *sql.Show:
			var err error
			if q.ready, err = s.show(ctx, b); err != nil {
				return nil, err
			}
		case *sql.Query:
			j, err := s.job(st, b, set)
			if err != nil {
				return nil, err
			}
			q.jobs = append(q.jobs, j)
		}
	}
	return q, ctx.Err()
}

func (s *sqlService) optimize(node planner.Node) (planner.Node, error) {
	root, err := planner.Optimize(node, s.gw.directory.Current())
	if err != nil {
		return nil, fmt.Errorf("optimizing the plan: %w", err)
	}
	return root, nil
}

// runUpdate runs a statement for its effect and returns what it changed.
func (s *sqlService) runUpdate(ctx context.Context, st *statement, args [][]*planner.Literal) (changed, error) {
	var done changed
	id := newID()
	err := s.statement(ctx, id, updateKind(st.bound.Statement), st.text, &done.rows, func(ctx context.Context) error {
		switch b := st.bound.Statement.(type) {
		case *sql.CreateTable:
			return s.createTable(ctx, b)
		case *sql.AlterTable:
			return s.alterTable(ctx, b)
		case *sql.DropTable:
			return s.dropTables(ctx, b)
		case *sql.CreateSchema:
			return s.createSchema(ctx, b)
		case *sql.DropSchema:
			return s.dropSchemas(ctx, b)
		case *sql.CreateUser:
			return s.createUser(ctx, b)
		case *sql.AlterUser:
			return s.alterUser(ctx, b)
		case *sql.DropUser:
			return s.dropUsers(ctx, b)
		case *sql.Set:
			return s.set(ctx, b)
		case *sql.Truncate:
			return s.truncate(ctx, b)
		case *sql.Insert, *sql.Update, *sql.Delete:
			var err error
			done, err = s.changeRows(ctx, id, st, st.argSets(args))
			return err
		case *sql.Call:
			var err error
			done.rows, err = s.call(ctx, st, st.argSets(args))
			return err
		case *sql.Query, *sql.Explain, *sql.Show:
			return sqlstate.New(sqlstate.FeatureNotSupported, "a query was sent as an update").
				WithHint("execute it as a query to get its rows")
		}
		return sqlstate.New(sqlstate.InternalError, "no way to run a %T", st.bound.Statement)
	})
	return done, err
}

func updateKind(b sql.Bound) string {
	switch b.(type) {
	case *sql.Insert:
		return "insert"
	case *sql.Update:
		return "update"
	case *sql.Delete:
		return "delete"
	case *sql.CreateTable, *sql.AlterTable, *sql.DropTable, *sql.Truncate, *sql.CreateSchema, *sql.DropSchema,
		*sql.CreateUser, *sql.AlterUser, *sql.DropUser:
		return "ddl"
	case *sql.Set:
		return "set"
	case *sql.Call:
		return "call"
	}
	return "query"
}

// mergeValues turns many VALUES lists of the same shape, as repeated execution
// with parameters makes them, into one.
func mergeValues(roots []planner.Node) []planner.Node {
	if len(roots) < 2 {
		return roots
	}
	first, ok := roots[0].(*planner.Values)
	if !ok {
		return roots
	}
	all := &planner.Values{Fields: first.Fields}
	for _, root := range roots {
		v, ok := root.(*planner.Values)
		if !ok {
			return roots
		}
		all.Rows = append(all.Rows, v.Rows...)
	}
	return []planner.Node{all}
}

// createTable runs CREATE TABLE.
func (s *sqlService) createTable(ctx context.Context, b *sql.CreateTable) error {
	definition := *b.Table
	tablets, err := tabletBounds(b)
	if err != nil {
		return err
	}
	definition.Tablets = tablets
	definition.Replicas = b.Replicas
	owner, err := s.own(ctx, &definition, b.Temporary)
	if err != nil {
		return err
	}
	_, err = s.gw.createTable(ctx, &definition, false)
	if b.IfNotExists && sqlstate.CodeOf(err) == sqlstate.DuplicateTable {
		return nil
	}
	if err == nil {
		err = s.outlived(owner)
	}
	return err
}

// tabletBounds cuts a new table into tablets.
func tabletBounds(b *sql.CreateTable) ([]catalog.Tablet, error) {
	tablets := make([]catalog.Tablet, max(1, b.Tablets))
	switch b.Table.Partitioning.Kind {
	case catalog.Hash, catalog.Tenant:
		ranges, err := catalog.BucketRanges(b.Buckets, len(tablets))
		if err != nil {
			return nil, err
		}
		for i, r := range ranges {
			tablets[i].BucketLow, tablets[i].BucketHigh = r.Low, r.High
		}
	case catalog.Range, catalog.TimeRange:
		column := b.Table.Columns[b.Table.Partitioning.Columns[0]]
		for i, split := range b.Splits {
			key, err := catalog.AppendKeyValue(nil, column.Type, split.Value)
			if err != nil {
				return nil, err
			}
			tablets[i].KeyHigh, tablets[i+1].KeyLow = key, key
		}
	}
	return tablets, nil
}

// dropTables runs DROP TABLE.
func (s *sqlService) dropTables(ctx context.Context, b *sql.DropTable) error {
	in, err := s.scope(ctx)
	if err != nil {
		return err
	}
	var tables []*catalog.Table
	for _, name := range b.Names {
		t, err := s.target(ctx, in, name.Schema, name.Name)
		if err != nil {
			if b.IfExists && sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
				continue
			}
			return err
		}
		tables = append(tables, t)
	}
	for _, t := range tables {
		err := s.gw.dropTable(ctx, t.ID)
		if sqlstate.CodeOf(err) == sqlstate.UndefinedTable { // somebody was quicker
			if b.IfExists {
				continue
			}
			return undefinedTable(t.Schema, t.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bindCatalog lets the binder see the directory's tables as a session does.
type bindCatalog struct {
	s  *sqlService
	in *scope
}

func (c bindCatalog) Table(ctx context.Context, schema, name string) (*catalog.Table, error) {
	return c.s.lookup(ctx, c.in, schema, name)
}

func (c bindCatalog) TableNames(_ context.Context, schema string) []string {
	schemas := c.in.schemas(schema)
	var names []string
	for _, t := range append(system.Tables(), c.s.gw.directory.Current().tables()...) {
		if slices.Contains(schemas, t.Schema) && c.in.sees(t) {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// lookup finds a table that a session sees. One that is not there may have been
// made through another gateway a moment ago, so the meta group is asked before
// the answer is no.
func (s *sqlService) lookup(ctx context.Context, in *scope, schema, name string) (*catalog.Table, error) {
	if t, ok := in.find(s.gw.directory.Current(), schema, name); ok {
		return t, nil
	}
	snap, err := s.gw.directory.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := in.find(snap, schema, name); ok {
		return t, nil
	}
	return nil, undefinedTable(schema, name)
}

// target is lookup for a table that is to be changed.
func (s *sqlService) target(ctx context.Context, in *scope, schema, name string) (*catalog.Table, error) {
	t, err := s.lookup(ctx, in, schema, name)
	if err == nil && t.System {
		return nil, sqlstate.New(sqlstate.WrongObjectType, "%s is a system table: it can only be read", t.QualifiedName())
	}
	return t, err
}

func undefinedTable(schema, name string) error {
	return sqlstate.New(sqlstate.UndefinedTable, "relation %q does not exist", displayName(schema, name))
}

// ifDropped replaces the error of a statement by a plain one when a table that
// it used has been dropped meanwhile: its tablets are gone then, which shows
// in the oddest ways.
func (s *sqlService) ifDropped(ctx context.Context, err error, tables ...*catalog.Table) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	switch code := sqlstate.CodeOf(err); code {
	case sqlstate.DataCorrupted, sqlstate.InternalError, sqlstate.CannotConnectNow, sqlstate.ConnectionFailure:
	default:
		if !s.gw.mayRetry(err) {
			return err
		}
	}
	snap, freshErr := s.gw.directory.Fresh(ctx)
	if freshErr != nil {
		return err
	}
	for _, t := range tables {
		if _, ok := snap.meta.Table(t.ID); !ok {
			return sqlstate.New(sqlstate.UndefinedTable, "relation %q was dropped while the statement used it", displayName(t.Schema, t.Name))
		}
	}
	return err
}

func displayName(schema, name string) string {
	if schema == "" || schema == catalog.DefaultSchema || strings.HasPrefix(schema, catalog.TempSchemaPrefix) {
		return name
	}
	return schema + "." + name
}
