package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// converter turns record batches as a client sends them into batches of a
// table's columns: fields are matched by name, converted without loss, and
// columns that are not sent get their default. Texts and timestamps without a
// time zone that become instants are of a session's zone, "" for UTC. One goroutine at a time.
type converter struct {
	table    *catalog.Table
	incoming *arrow.Schema // what the client sends
	physical *arrow.Schema // the same, in physical types
	columns  []columnConverter
	// parameters: the columns are the parameters of a statement.
	parameters bool
}

type columnConverter struct {
	column *catalog.Column
	source int // field sent, -1 for a default
	eval   *exec.Evaluator
	lossy  *exec.Evaluator // true where the conversion lost something; nil if it cannot
}

func newConverter(ctx context.Context, t *catalog.Table, incoming *arrow.Schema, zone string) (*converter, error) {
	c := &converter{table: t, incoming: incoming}
	fields := make([]arrow.Field, incoming.NumFields())
	public := make([]arrow.DataType, len(fields))
	sources := make(map[string]int, len(fields))
	for i, f := range incoming.Fields() {
		dt, err := sqlTypeOf(f.Type)
		if err != nil {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "column %q cannot be stored: %w", f.Name, err)
		}
		if t.Column(f.Name) < 0 {
			return nil, sqlstate.New(sqlstate.UndefinedColumn, "column %q of relation %q does not exist", f.Name, t.Name).
				WithHint("the table has the columns %s", columnList(t))
		}
		if _, ok := sources[f.Name]; ok {
			return nil, sqlstate.New(sqlstate.DuplicateColumn, "column %q is sent more than once", f.Name)
		}
		sources[f.Name] = i
		public[i] = dt
		fields[i] = arrow.Field{Name: f.Name, Type: catalog.PhysicalType(dt), Nullable: true}
	}
	c.physical = arrow.NewSchema(fields, nil)
	for i := range t.Columns {
		col := &t.Columns[i]
		cc := columnConverter{column: col, source: -1}
		source, sent := sources[col.Name]
		var err error
		if sent {
			cc.source = source
			err = cc.compile(&planner.Column{Index: source, Name: col.Name, DataType: public[source], Null: true}, c.physical, zone)
		} else {
			var def planner.Expr
			if def, err = sql.Default(ctx, col); err == nil {
				cc.eval, err = exec.Compile(def, c.physical)
			}
		}
		if err != nil {
			return nil, err
		}
		c.columns = append(c.columns, cc)
	}
	return c, nil
}

func columnList(t *catalog.Table) string {
	s := ""
	for i, c := range t.Columns {
		if i > 0 {
			s += ", "
		}
		s += catalog.QuoteIdent(c.Name)
	}
	return s
}

// compile prepares the conversion of one field: a cast, and where that could
// round or cut, a check that casting back gives the value sent.
func (cc *columnConverter) compile(from *planner.Column, input *arrow.Schema, zone string) error {
	to := cc.column.Type
	var value planner.Expr = from
	if !arrow.TypeEqual(from.DataType, to) {
		if !exec.CanCast(from.DataType, to, true) {
			return sqlstate.New(sqlstate.DatatypeMismatch, "column %q is of type %s but the data sent is of type %s",
				cc.column.Name, catalog.TypeName(to), catalog.TypeName(from.DataType)).
				WithHint("convert the column before sending it")
		}
		value = sql.CastIn(zone, from, to)
		if from.DataType.ID() != arrow.STRING && exec.CanCast(to, from.DataType, true) { // parsing text loses nothing
			var err error
			cc.lossy, err = exec.Compile(&planner.Call{
				Func:     "is distinct from",
				Args:     []planner.Expr{from, sql.CastIn(zone, value, from.DataType)},
				DataType: catalog.Boolean,
			}, input)
			if err != nil {
				return fmt.Errorf("checking the conversion of column %q: %w", cc.column.Name, err)
			}
		}
	}
	var err error
	if cc.eval, err = exec.Compile(value, input); err != nil {
		return fmt.Errorf("converting column %q: %w", cc.column.Name, err)
	}
	return nil
}

// convert returns the rows as the table's physical columns. The batch is valid
// until the next call.
func (c *converter) convert(rec arrow.RecordBatch) (*columnar.Batch, error) {
	in := &columnar.Batch{Len: int(rec.NumRows()), Cols: make([]*columnar.Vector, rec.NumCols())}
	for i := range in.Cols {
		if err := columnar.Validate(rec.Column(i)); err != nil {
			return nil, c.in(c.physical.Field(i).Name, damaged(err))
		}
		v, err := columnar.FromArrow(rec.Column(i), c.physical.Field(i).Type)
		if err != nil {
			return nil, c.in(c.physical.Field(i).Name, err)
		}
		if err := checkValues(v); err != nil {
			return nil, c.in(c.physical.Field(i).Name, err)
		}
		in.Cols[i] = v
	}
	out := &columnar.Batch{Len: in.Len, Cols: make([]*columnar.Vector, len(c.columns))}
	for i := range c.columns {
		cc := &c.columns[i]
		v, err := cc.eval.Eval(in)
		if err != nil {
			return nil, c.in(cc.column.Name, err)
		}
		if cc.lossy != nil {
			rows, err := cc.lossy.Filter(in, nil)
			if err != nil {
				return nil, c.in(cc.column.Name, err)
			}
			if len(rows) > 0 {
				return nil, sqlstate.New(sqlstate.NumericOutOfRange, "value %s does not fit column %q of type %s without loss",
					rec.Column(cc.source).ValueStr(int(rows[0])), cc.column.Name, catalog.TypeName(cc.column.Type))
			}
		}
		out.Cols[i] = v
	}
	return out, nil
}

// damaged is what is wrong with an array that a client has sent. Texts inside
// other layouts are only found out there.
func damaged(err error) error {
	code := sqlstate.ProtocolViolation
	if strings.Contains(err.Error(), "utf8") {
		code = sqlstate.InvalidByteSequence
	}
	return sqlstate.New(code, "the data sent is damaged: %w", err)
}

// checkValues refuses what an Arrow array can hold and its SQL type cannot.
func checkValues(v *columnar.Vector) error {
	if v.Type.ID() == arrow.TIME64 {
		return columnar.CheckTime(v)
	}
	return columnar.CheckUTF8(v)
}

// in names a column, or a parameter, in an error about one of its values.
func (c *converter) in(name string, err error) error {
	what := fmt.Sprintf("column %q", name)
	if c.parameters {
		what = "parameter " + name
	}
	var user *sqlstate.Error
	if !errors.As(err, &user) {
		return fmt.Errorf("%s: %w", what, err)
	}
	named := *user
	named.Message = what + ": " + user.Message
	return &named
}
