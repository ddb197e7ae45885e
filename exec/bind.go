package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/planner"
	"skein/sqlstate"
)

// Binder returns what replaces the parameters of expressions by values, given by
// ordinal, and folds what has become constant. A value of another type than the
// parameter's is cast to it.
func Binder(values []*planner.Literal) planner.Binder {
	replace := func(p *planner.Param) (planner.Expr, error) {
		if p.Ordinal < 0 || p.Ordinal >= len(values) || values[p.Ordinal] == nil {
			return nil, sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", p.Ordinal)
		}
		v := values[p.Ordinal]
		if arrow.TypeEqual(v.DataType, p.DataType) {
			return v, nil
		}
		return EvalConst(&planner.Cast{Arg: v, DataType: p.DataType})
	}
	return func(e planner.Expr) (planner.Expr, error) {
		if !planner.HasParams(e) {
			return e, nil
		}
		bound, err := planner.ReplaceParams(e, replace)
		if err != nil {
			return nil, err
		}
		return Fold(bound)
	}
}
