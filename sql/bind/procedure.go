package bind

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// Call runs a procedure. Its arguments are literals once parameters have values.
type Call struct {
	Procedure Procedure
	Args      []planner.Expr // of the procedure's types
}

func (*Call) statement() {}

// Procedure names what a CALL can run.
type Procedure string

// The procedures.
const (
	// CancelQuery cancels the statement whose query id is its argument.
	CancelQuery Procedure = "skein.cancel_query"
	// RotateKey has the cluster sign with a new key.
	RotateKey Procedure = "skein.rotate_key"
)

// arguments are the types of a procedure's arguments.
func (p Procedure) arguments() ([]arrow.DataType, bool) {
	switch p {
	case CancelQuery:
		return []arrow.DataType{catalog.Text}, true
	case RotateKey:
		return nil, true
	}
	return nil, false
}

func (b *binder) callProcedure(stmt *pgquery.CallStmt) (*Call, error) {
	f := stmt.Funccall
	if err := b.onlyFields(stmt, "funccall"); err != nil {
		return nil, err
	}
	if err := b.onlyFields(f, "funcname", "args", "funcformat"); err != nil {
		return nil, err
	}
	name := strings.Join(stringsOf(f.Funcname), ".")
	types, known := Procedure(name).arguments()
	if !known || len(types) != len(f.Args) {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "procedure %s with %d arguments does not exist", name, len(f.Args)).
			WithHint("There are %s(query_id TEXT) and %s().", CancelQuery, RotateKey)
	}
	out := &Call{Procedure: Procedure(name), Args: make([]planner.Expr, len(types))}
	for i, n := range f.Args {
		e, err := b.constantExpr(n, types[i], "an argument of "+name)
		if err != nil {
			return nil, err
		}
		if _, open := e.(*planner.Param); !open {
			if n.GetParamRef() != nil {
				return nil, b.unsupported(locationOf(n), "a parameter of type %s as an argument of %s", catalog.TypeName(e.Type()), name)
			}
			if e, err = evaluate(e); err != nil {
				return nil, b.place(err, locationOf(n))
			}
		}
		out.Args[i] = e
	}
	return out, nil
}
