// Package adbc runs the validation suite of the ADBC project against a Skein
// process, with the Go driver for Flight SQL.
//
//	go test ./adbc -skein ../bin/skein
package adbc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	driver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/validation"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/suite"

	"skein/bench/internal/skeinproc"
)

var binary = flag.String("skein", "", "the server to test; without it one is built")

// inapplicable are the parts of the suite that cannot apply to Skein or to the
// driver, with the reason. All other tests must pass; none may skip itself.
var inapplicable = map[string]string{
	"ConnectionTests/TestAutocommitToggle":                                 "there are no transactions: autocommit cannot be switched off",
	"ConnectionTests/TestMetadataGetStatistics":                            "the driver has no statistics: the test is that it says so",
	"StatementTests/TestSqlIngestErrors/append_to_nonexistent_table":       "asks for SQLSTATE 42S02 in the error, while the driver fills in no SQLSTATE; the test here of that name checks the rest",
	"StatementTests/TestSqlIngestErrors/overwrite_and_incompatible_schema": "asks for an internal error where a table exists already, which the driver calls AlreadyExists; the test here of that name checks the rest",
}

// leaking are the tests whose bound batches the driver does not release: it
// makes a reader of each for an ingest and forgets it. In all others, everything
// allocated must be released.
var leaking = []string{"TestSqlIngestInts", "TestSqlIngestAppend", "TestSqlIngestReplace", "TestSqlIngestCreateAppend"}

// address is where the server under test listens.
var address string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(serve(m))
}

func serve(m *testing.M) int {
	dir, err := os.MkdirTemp("", "skein")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	absolute, err := executable(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err := skeinproc.Start(context.Background(), absolute, ":memory:")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	address = server.Address
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// executable is the server to test, built in dir if none was named.
func executable(dir string) (string, error) {
	if *binary != "" {
		return filepath.Abs(*binary)
	}
	built := filepath.Join(dir, "skein")
	build := exec.Command("go", "build", "-o", built, "./cmd/skein")
	build.Dir = filepath.Join("..", "..") // the module of the server
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, out)
	}
	return built, nil
}

func TestDatabase(t *testing.T) {
	suite.Run(t, &databaseTests{validation.DatabaseTests{Quirks: &quirks{}}})
}

func TestConnection(t *testing.T) {
	suite.Run(t, &connectionTests{validation.ConnectionTests{Quirks: &quirks{}}})
}

func TestStatement(t *testing.T) {
	suite.Run(t, &statementTests{validation.StatementTests{Quirks: &quirks{}}})
}

// The suites fail where a test skips itself.
type (
	databaseTests   struct{ validation.DatabaseTests }
	connectionTests struct{ validation.ConnectionTests }
	statementTests  struct{ validation.StatementTests }
)

func (s *databaseTests) AfterTest(_, _ string)   { complain(s.T()) }
func (s *connectionTests) AfterTest(_, _ string) { complain(s.T()) }
func (s *statementTests) AfterTest(_, _ string)  { complain(s.T()) }

func complain(t *testing.T) {
	if t.Skipped() {
		t.Error("the test skipped itself and is not among the inapplicable ones")
	}
}

// TestSqlIngestErrors takes the place of the suite's test of that name: see
// inapplicable.
func (s *statementTests) TestSqlIngestErrors() {
	ctx := context.Background()
	s.Require().NoError(s.Quirks.DropTable(s.Cnxn, "bulk_ingest"))
	statement, err := s.Cnxn.NewStatement()
	s.Require().NoError(err)
	defer validation.CheckedClose(s.T(), statement)
	s.Require().NoError(statement.SetOption(adbc.OptionKeyIngestTargetTable, "bulk_ingest"))

	ingest := func(mode string, json string, names ...string) (int64, error) {
		rows := s.rows(json, names...)
		defer rows.Release()
		s.Require().NoError(statement.SetOption(adbc.OptionKeyIngestMode, mode))
		s.Require().NoError(statement.BindStream(ctx, rows))
		return statement.ExecuteUpdate(ctx)
	}
	fails := func(err error, what string, want adbc.Status, sqlstate string) {
		var e adbc.Error
		s.Require().ErrorAs(err, &e, what)
		s.Equal(want, e.Code, "%s: %v", what, err)
		s.Contains(e.Msg, sqlstate, what)
	}
	_, err = statement.ExecuteUpdate(ctx)
	fails(err, "without rows", adbc.StatusInvalidState, "")
	_, err = ingest(adbc.OptionValueIngestModeAppend, `[{"int64s": 1}]`, "int64s")
	fails(err, "appending to a table that does not exist", adbc.StatusNotFound, "42P01")
	n, err := ingest(adbc.OptionValueIngestModeCreate, `[{"int64s": 1}]`, "int64s")
	s.Require().NoError(err)
	s.EqualValues(1, n)
	_, err = ingest(adbc.OptionValueIngestModeCreate, `[{"int64s": 1}]`, "int64s")
	fails(err, "creating a table that exists", adbc.StatusAlreadyExists, "42P07")
	_, err = ingest(adbc.OptionValueIngestModeAppend, `[{"int64s": 1, "more": 2}]`, "int64s", "more")
	fails(err, "appending a column that the table has not", adbc.StatusInvalidArgument, "42703")
}

// rows makes a reader of one batch of integers.
func (s *statementTests) rows(json string, names ...string) array.RecordReader {
	fields := make([]arrow.Field, len(names))
	for i, name := range names {
		fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	}
	rec, _, err := array.RecordFromJSON(s.Quirks.Alloc(), arrow.NewSchema(fields, nil), strings.NewReader(json))
	s.Require().NoError(err)
	defer rec.Release()
	rows, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec})
	s.Require().NoError(err)
	return rows
}

// TestInapplicable checks that the list names tests that there are.
func TestInapplicable(t *testing.T) {
	for name := range inapplicable {
		parts := strings.Split(name, "/")
		known := map[string]any{"ConnectionTests": &validation.ConnectionTests{}, "StatementTests": &validation.StatementTests{}}
		if !reflect.ValueOf(known[parts[0]]).MethodByName(parts[1]).IsValid() {
			t.Errorf("the suite has no test %s", name)
		}
	}
}

// quirks describe Skein and its driver to the suite. Each test gets an
// allocator that must be empty at its end.
type quirks struct{ mem *memory.CheckedAllocator }

func (q *quirks) SetupDriver(*testing.T) adbc.Driver {
	q.mem = memory.NewCheckedAllocator(memory.DefaultAllocator)
	return driver.NewDriver(q.mem)
}

func (q *quirks) TearDownDriver(t *testing.T, _ adbc.Driver) {
	if !slices.Contains(leaking, path.Base(t.Name())) {
		q.mem.AssertSize(t, 0)
	}
}

func (q *quirks) DatabaseOptions() map[string]string {
	return map[string]string{adbc.OptionKeyURI: "grpc+tcp://" + address}
}

func (q *quirks) Alloc() memory.Allocator                     { return q.mem }
func (q *quirks) BindParameter(index int) string              { return fmt.Sprintf("$%d", index+1) }
func (q *quirks) SupportsBulkIngest(string) bool              { return true }
func (q *quirks) SupportsConcurrentStatements() bool          { return true }
func (q *quirks) SupportsCurrentCatalogSchema() bool          { return true }
func (q *quirks) SupportsGetSetOptions() bool                 { return true }
func (q *quirks) SupportsExecuteSchema() bool                 { return true }
func (q *quirks) SupportsPartitionedData() bool               { return true }
func (q *quirks) SupportsStatistics() bool                    { return false }
func (q *quirks) SupportsTransactions() bool                  { return false }
func (q *quirks) SupportsGetParameterSchema() bool            { return true }
func (q *quirks) SupportsDynamicParameterBinding() bool       { return true }
func (q *quirks) SupportsErrorIngestIncompatibleSchema() bool { return true }
func (q *quirks) Catalog() string                             { return "skein" }
func (q *quirks) DBSchema() string                            { return "public" }

// undeclared is the driver's version of itself in a test's binary, which has no
// record of its modules.
const undeclared = "(unknown or development build)"

func (q *quirks) GetMetadata(code adbc.InfoCode) any {
	switch code {
	case adbc.InfoDriverName:
		return "ADBC Flight SQL Driver - Go"
	case adbc.InfoDriverVersion:
		return undeclared
	case adbc.InfoDriverArrowVersion:
		return undeclared
	case adbc.InfoDriverADBCVersion:
		return adbc.AdbcVersion1_1_0
	case adbc.InfoVendorName:
		return "Skein"
	case adbc.InfoVendorVersion:
		return "devel"
	case adbc.InfoVendorArrowVersion:
		return arrow.PkgVersion
	case adbc.InfoVendorSql:
		return true
	case adbc.InfoVendorSubstrait:
		return false
	}
	return nil
}

func (q *quirks) SampleTableSchemaMetadata(table string, dt arrow.DataType) arrow.Metadata {
	md := flightsql.NewColumnMetadataBuilder().CatalogName("skein").SchemaName("public").TableName(table).
		IsAutoIncrement(false).IsReadOnly(false).IsSearchable(true)
	switch dt.ID() {
	case arrow.INT64:
		return md.TypeName("bigint").Precision(19).Scale(0).IsCaseSensitive(false).Metadata()
	case arrow.STRING:
		return md.TypeName("text").IsCaseSensitive(true).Metadata()
	}
	return md.Metadata()
}

func (q *quirks) CreateSampleTable(table string, rec arrow.RecordBatch) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := driver.NewDriver(q.mem).NewDatabase(q.DatabaseOptions())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	connection, err := db.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	statement, err := connection.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	if err := statement.SetOption(adbc.OptionKeyIngestTargetTable, table); err != nil {
		return err
	}
	if err := statement.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeReplace); err != nil {
		return err
	}
	rows, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec})
	if err != nil {
		return err
	}
	defer rows.Release()
	if err := statement.BindStream(ctx, rows); err != nil {
		return err
	}
	_, err = statement.ExecuteUpdate(ctx)
	return err
}

func (q *quirks) DropTable(connection adbc.Connection, table string) (err error) {
	statement, err := connection.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	if err := statement.SetSqlQuery(`DROP TABLE IF EXISTS "` + table + `"`); err != nil {
		return err
	}
	_, err = statement.ExecuteUpdate(context.Background())
	return err
}
