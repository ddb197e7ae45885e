package bind

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
)

// untyped is a constant or parameter whose type its surroundings decide: a
// string constant, NULL, or $n. It lives during binding only.
type untyped struct {
	text  string
	null  bool
	param int // 1-based, 0 for a constant
}

// Type is "unknown", which the function registry takes for any type.
func (u *untyped) Type() arrow.DataType { return catalog.Null }

// Nullable holds for NULL and for parameters.
func (u *untyped) Nullable() bool { return u.null || u.param > 0 }

// String prints the constant as SQL.
func (u *untyped) String() string {
	switch {
	case u.param > 0:
		return "$" + strconv.Itoa(u.param)
	case u.null:
		return "NULL"
	}
	return quoteText(u.text)
}

func isUntyped(e planner.Expr) bool {
	_, ok := e.(*untyped)
	return ok
}

// settle gives an untyped expression a type. A parameter keeps the first type
// it gets.
func (b *binder) settle(u *untyped, dt arrow.DataType) (planner.Expr, error) {
	location := b.where(u)
	switch {
	case u.param > 0:
		known := b.params[u.param-1]
		if known == nil {
			b.params[u.param-1] = dt
			known = dt
		}
		return b.at(&planner.Param{Ordinal: u.param, DataType: known}, location), nil
	case u.null:
		return b.at(&planner.Literal{DataType: dt}, location), nil
	}
	text := &planner.Literal{Value: u.text, DataType: catalog.Text}
	if arrow.TypeEqual(dt, catalog.Text) {
		return b.at(text, location), nil
	}
	literal, err := evaluate(CastIn(b.session.Zone, text, dt))
	if err != nil {
		return nil, b.place(err, location)
	}
	return b.at(literal, location), nil
}

// settled gives an expression that is still untyped the type text.
func (b *binder) settled(e planner.Expr) (planner.Expr, error) {
	if u, ok := e.(*untyped); ok {
		return b.settle(u, catalog.Text)
	}
	return e, nil
}
