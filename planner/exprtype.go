package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// Type returns the column's SQL type.
func (e *Column) Type() arrow.DataType { return e.DataType }

// Nullable reports whether the column may hold NULL.
func (e *Column) Nullable() bool { return e.Null }

// Type returns the constant's SQL type.
func (e *Literal) Type() arrow.DataType { return e.DataType }

// Nullable reports whether the constant is NULL.
func (e *Literal) Nullable() bool { return e.Value == nil }

// Type returns the result type of the function's chosen signature.
func (e *Call) Type() arrow.DataType { return e.DataType }

// Nullable reports whether the call may yield NULL.
func (e *Call) Nullable() bool { return e.Null }

// Type returns the type converted to.
func (e *Cast) Type() arrow.DataType { return e.DataType }

// Nullable reports whether the argument may be NULL: a cast fails, it never
// makes a NULL.
func (e *Cast) Nullable() bool { return e.Arg.Nullable() }

// Type returns the common type of the branches.
func (e *Case) Type() arrow.DataType { return e.DataType }

// Nullable reports whether a branch may yield NULL.
func (e *Case) Nullable() bool {
	for _, w := range e.Whens {
		if w.Then.Nullable() {
			return true
		}
	}
	return e.Else.Nullable()
}

// Type is boolean.
func (e *InList) Type() arrow.DataType { return catalog.Boolean }

// Nullable reports whether the argument or a list element may be NULL.
func (e *InList) Nullable() bool {
	if e.Arg.Nullable() {
		return true
	}
	for _, l := range e.List {
		if l.Value == nil {
			return true
		}
	}
	return false
}

// Type returns the type inferred for the parameter.
func (e *Param) Type() arrow.DataType { return e.DataType }

// Nullable is true: any parameter may be bound to NULL.
func (e *Param) Nullable() bool { return true }

// ColumnOf is the expression that reads column i of a schema.
func ColumnOf(schema *arrow.Schema, i int) *Column {
	return columnOf(schema.Fields(), i)
}

func columnOf(fields []arrow.Field, i int) *Column {
	f := fields[i]
	return &Column{Index: i, Name: f.Name, DataType: f.Type, Null: f.Nullable}
}

// BoolLiteral is the constant TRUE or FALSE.
func BoolLiteral(v bool) *Literal {
	return &Literal{Value: v, DataType: catalog.Boolean}
}

// And joins conditions with AND: nil for none, the condition itself for one.
func And(conds ...Expr) Expr { return connect("and", conds) }

// Or joins conditions with OR: nil for none, the condition itself for one.
func Or(conds ...Expr) Expr { return connect("or", conds) }

// maxChain is the longest left-deep chain that connect builds; longer ones are
// balanced, so that nothing has to recurse as deep as a list is long.
const maxChain = 32

// connect builds a tree of a two-argument boolean connective, leaving out nil
// conditions.
func connect(op string, conds []Expr) Expr {
	conds = slices.DeleteFunc(slices.Clone(conds), func(e Expr) bool { return e == nil })
	return connected(op, conds)
}

func connected(op string, conds []Expr) Expr {
	switch len(conds) {
	case 0:
		return nil
	case 1:
		return conds[0]
	}
	cut := len(conds) - 1
	if len(conds) > maxChain {
		cut = len(conds) / 2
	}
	left, right := connected(op, conds[:cut]), connected(op, conds[cut:])
	return &Call{Func: op, Args: []Expr{left, right}, DataType: catalog.Boolean, Null: left.Nullable() || right.Nullable()}
}

// Equal is the comparison a = b of two expressions of one type.
func Equal(a, b Expr) *Call {
	return &Call{Func: "=", Args: []Expr{a, b}, DataType: catalog.Boolean, Null: a.Nullable() || b.Nullable()}
}
