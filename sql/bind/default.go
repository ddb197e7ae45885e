package bind

import (
	"context"

	"skein/catalog"
	"skein/planner"
)

// Default is the constant that a stored column takes when a write leaves it
// out: its DEFAULT, or NULL. The expression has exactly the column's type.
func Default(ctx context.Context, c *catalog.Column) (planner.Expr, error) {
	if c.Default == "" {
		return &planner.Literal{DataType: c.Type}, nil
	}
	b := &binder{ctx: ctx, loc: make(map[planner.Expr]int32)}
	return b.storedDefault(c)
}
