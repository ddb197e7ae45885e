package sql_test

import (
	"github.com/apache/arrow-go/v18/arrow"
	"testing"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
	"skein/sql"
)

// checkContract checks what the layers below take for granted of a bound
// statement: the schema told to clients is the plan's, the plan is valid, and
// every expression has a kernel.
func checkContract(t *testing.T, text string, bound *sql.BoundStatement) {
	t.Helper()
	switch s := bound.Statement.(type) {
	case *sql.Query:
		checkSchema(t, text, s)
	case *sql.Insert:
		schema := s.Source.Schema()
		if schema.NumFields() != len(s.Table.Columns) {
			t.Errorf("%s: source has %d columns, table %d", text, schema.NumFields(), len(s.Table.Columns))
			return
		}
		for i, c := range s.Table.Columns {
			if f := schema.Field(i); !sameType(f.Type, c.Type) {
				t.Errorf("%s: column %s gets %s", text, c.Name, f.Type)
			}
		}
	default:
		return
	}
	if !bound.Timeless() {
		// The layers below see the statement with values only.
		given, err := bound.Substitute(make([]*planner.Literal, len(bound.Params)))
		if err != nil {
			t.Errorf("%s: parameters NULL: %v", text, err)
			return
		}
		checkPlan(t, text, given)
		return
	}
	checkPlan(t, text, bound)
}

func checkPlan(t *testing.T, text string, bound *sql.BoundStatement) {
	t.Helper()
	var node planner.Node
	switch s := bound.Statement.(type) {
	case *sql.Query:
		node = s.Node
	case *sql.Insert:
		node = s.Source
	}
	if err := planner.ValidateLite(node); err != nil {
		t.Errorf("%s: invalid plan: %v", text, err)
		return
	}
	checkKernels(t, text, node)
	optimized, err := planner.Optimize(node, emptyTables{})
	if err != nil {
		t.Errorf("%s: optimizing: %v", text, err)
		return
	}
	if !optimized.Schema().Equal(node.Schema()) {
		t.Errorf("%s: optimizing changed %s to %s", text, fieldsText(node.Schema()), fieldsText(optimized.Schema()))
	}
}

// emptyTables is planner.Metadata of tables without rows.
type emptyTables struct{}

func (emptyTables) Version() uint64 { return 1 }

func (emptyTables) TableStats(*catalog.Table) (planner.TableStats, error) {
	return planner.TableStats{}, nil
}

// checkKernels compiles every expression of a plan.
func checkKernels(t *testing.T, text string, n planner.Node) {
	t.Helper()
	var exprs []planner.Expr
	input := n.Schema()
	switch n := n.(type) {
	case *planner.Filter:
		exprs = []planner.Expr{n.Predicate}
	case *planner.Project:
		exprs, input = n.Exprs, n.Input.Schema()
	case *planner.Join:
		if n.Residual != nil {
			pair := append(append([]arrow.Field(nil), n.Left.Schema().Fields()...), n.Right.Schema().Fields()...)
			exprs, input = []planner.Expr{n.Residual}, arrow.NewSchema(pair, nil)
		}
	case *planner.Values:
		for _, row := range n.Rows {
			exprs = append(exprs, row...)
		}
	}
	for _, e := range exprs {
		if _, err := exec.Compile(e, input); err != nil {
			t.Errorf("%s: no kernel for %s: %v", text, e, err)
		}
	}
	for _, in := range n.Inputs() {
		checkKernels(t, text, in)
	}
}
