package planner

// strictFuncs are the functions that are NULL when any argument is.
var strictFuncs = map[string]bool{
	"=": true, "<>": true, "!=": true, "<": true, "<=": true, ">": true, ">=": true,
	"+": true, "-": true, "*": true, "/": true, "%": true, "||": true, "not": true,
	"like": true, "ilike": true, "not like": true, "not ilike": true,
	"abs": true, "lower": true, "upper": true, "length": true, "substring": true, "round": true,
}

// strictOver reports whether e is NULL in a row whose columns in [low, high)
// are all NULL.
func strictOver(e Expr, low, high int) bool {
	switch e := e.(type) {
	case *Column:
		return e.Index >= low && e.Index < high
	case *Cast:
		return strictOver(e.Arg, low, high)
	case *InList:
		return strictOver(e.Arg, low, high)
	case *Call:
		if !strictFuncs[e.Func] {
			return false
		}
		for _, a := range e.Args {
			if strictOver(a, low, high) {
				return true
			}
		}
	}
	return false
}

// rejectsNulls reports whether a condition is not true in any row whose columns
// in [low, high) are all NULL, as those that an outer join fills in.
func rejectsNulls(e Expr, low, high int) bool {
	c, ok := e.(*Call)
	if !ok {
		return strictOver(e, low, high)
	}
	switch c.Func {
	case "and":
		return anyRejects(c.Args, low, high)
	case "or":
		for _, a := range c.Args {
			if !rejectsNulls(a, low, high) {
				return false
			}
		}
		return len(c.Args) > 0
	case "is not null", "is true", "is false":
		return len(c.Args) == 1 && strictOver(c.Args[0], low, high)
	}
	return strictOver(e, low, high)
}

func anyRejects(conds []Expr, low, high int) bool {
	for _, c := range conds {
		if rejectsNulls(c, low, high) {
			return true
		}
	}
	return false
}
