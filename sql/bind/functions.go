package bind

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
	"skein/sqlstate"
)

// fold evaluates the constant parts of an expression. What fails stays as it
// is, to fail when and if a row gets there.
func (b *binder) fold(e planner.Expr) (planner.Expr, error) {
	folded, err := exec.Fold(e)
	if err != nil {
		return nil, b.place(err, b.where(e))
	}
	if folded != e {
		b.at(folded, b.where(e))
	}
	return folded, nil
}

// evaluate computes a constant expression and returns its error if it has no
// value.
func evaluate(e planner.Expr) (*planner.Literal, error) {
	if volatile(e) {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "a random value where a constant is needed is not supported")
	}
	return exec.EvalConst(e)
}

// volatile reports whether an expression has another value each time.
func volatile(e planner.Expr) bool {
	call, ok := e.(*planner.Call)
	found := ok && planner.Volatile(call.Func)
	if !found {
		_, _ = rebuild(e, func(a planner.Expr) (planner.Expr, error) { // for the walk
			found = found || volatile(a)
			return a, nil
		})
	}
	return found
}

// repeatable refuses an expression that is going to be evaluated several times
// where SQL means once, if that makes a difference.
func (b *binder) repeatable(e planner.Expr, location int32, what string) error {
	if !volatile(e) {
		return nil
	}
	return b.unsupported(location, "a random value as %s", what).WithHint("Compute it in a subquery in FROM.")
}

// call applies a registry function. Arguments must have a type or be untyped
// constants and parameters, which take the type that the chosen signature wants.
func (b *binder) call(name string, args []planner.Expr, location int32) (planner.Expr, error) {
	types := make([]arrow.DataType, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	signature, err := exec.ResolveScalar(name, types)
	if err != nil {
		return nil, b.place(err, location)
	}
	converted := make([]planner.Expr, len(args))
	constant := true
	for i, a := range args {
		if converted[i], err = b.convert(a, signature.Args[i]); err != nil {
			return nil, err
		}
		_, literal := converted[i].(*planner.Literal)
		constant = constant && literal
	}
	if e, ok, err := b.inZone(signature, converted, location); ok || err != nil {
		return e, err
	}
	e := b.at(&planner.Call{
		Func: signature.Name, Args: converted, DataType: signature.Result,
		Null: callNullable(signature, converted),
	}, location)
	if constant && signature.Volatility == exec.Immutable {
		return b.fold(e)
	}
	return e, nil
}

// callNullable says whether a call may yield NULL, from its signature.
func callNullable(s exec.Signature, args []planner.Expr) bool {
	some, all := false, true
	for _, a := range args {
		some = some || a.Nullable()
		all = all && a.Nullable()
	}
	switch {
	case s.NeverNull:
		return false
	case s.Name == "coalesce" || s.Name == "greatest" || s.Name == "least":
		return all
	case s.Strict || s.Name == "and" || s.Name == "or":
		return some
	}
	return true
}

// predicate builds a boolean call that needs no overload resolution.
func (b *binder) predicate(name string, location int32, null bool, args ...planner.Expr) (planner.Expr, error) {
	e := b.at(&planner.Call{Func: name, Args: args, DataType: catalog.Boolean, Null: null}, location)
	for _, a := range args {
		if _, ok := a.(*planner.Literal); !ok {
			return e, nil
		}
	}
	return b.fold(e)
}

// maxChain is the longest left-deep chain of ANDs or ORs; longer ones are
// balanced so that no layer below recurses deeply.
const maxChain = 32

// connect joins conditions with "and" or "or".
func (b *binder) connect(op string, conds []planner.Expr, location int32) planner.Expr {
	if len(conds) == 1 {
		return conds[0]
	}
	cut := len(conds) - 1
	if len(conds) > maxChain {
		cut = len(conds) / 2
	}
	left, right := b.connect(op, conds[:cut], location), b.connect(op, conds[cut:], location)
	return b.at(&planner.Call{
		Func: op, Args: []planner.Expr{left, right}, DataType: catalog.Boolean,
		Null: left.Nullable() || right.Nullable(),
	}, location)
}
