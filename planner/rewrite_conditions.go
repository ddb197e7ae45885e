package planner

import "slices"

// maxCompared bounds the conditions among which repetitions are looked for.
const maxCompared = 64

// simplify returns the conditions that a WHERE, HAVING or ON condition
// requires, where NULL counts as false: split at ANDs, with constants folded,
// repetitions dropped and factors common to all branches of an OR taken out.
// A condition that cannot hold comes back as the one literal FALSE.
func simplify(conds []Expr) []Expr {
	var out []Expr
	for _, c := range conds {
		for _, part := range conjuncts(c) {
			for _, s := range conjuncts(simplifyCondition(part)) {
				switch {
				case isConstant(s, true):
				case neverTrue([]Expr{s}):
					return []Expr{BoolLiteral(false)}
				case len(out) > maxCompared || isVolatile(s) || !slices.ContainsFunc(out, func(o Expr) bool { return equalExpr(o, s) }):
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// neverTrue reports whether a condition among conds is the constant FALSE or
// NULL.
func neverTrue(conds []Expr) bool {
	return slices.ContainsFunc(conds, func(e Expr) bool {
		l, ok := e.(*Literal)
		return ok && l.Value != true
	})
}

func isConstant(e Expr, value bool) bool {
	l, ok := e.(*Literal)
	return ok && l.Value == value
}

// simplifyCondition simplifies one condition for which NULL counts as false.
func simplifyCondition(e Expr) Expr {
	c, ok := e.(*Call)
	if !ok {
		return e
	}
	switch c.Func {
	case "and":
		parts := simplify(c.Args)
		if len(parts) == 0 {
			return BoolLiteral(true)
		}
		return And(parts...)
	case "or":
		return simplifyOr(c)
	case "not":
		// Below NOT, NULL and FALSE differ: only literals are folded.
		if l, ok := c.Args[0].(*Literal); ok {
			b, known := l.Value.(bool)
			return BoolLiteral(known && !b)
		}
	}
	return e
}

// simplifyOr turns (a and x) or (a and y) into a and (x or y).
func simplifyOr(e *Call) Expr {
	var branches [][]Expr
	for _, d := range disjuncts(e) {
		parts := simplify([]Expr{d})
		if len(parts) == 0 {
			return BoolLiteral(true)
		}
		if !neverTrue(parts) {
			branches = append(branches, parts)
		}
	}
	if len(branches) == 0 {
		return BoolLiteral(false)
	}
	var common []Expr
	for _, factor := range branches[0] {
		inAll := !isVolatile(factor)
		for _, b := range branches[1:] {
			inAll = inAll && slices.ContainsFunc(b, func(x Expr) bool { return equalExpr(x, factor) })
		}
		if inAll {
			common = append(common, factor)
		}
	}
	var alternatives []Expr
	for _, b := range branches {
		rest := slices.DeleteFunc(slices.Clone(b), func(x Expr) bool {
			return slices.ContainsFunc(common, func(f Expr) bool { return equalExpr(f, x) })
		})
		if len(rest) == 0 { // this branch adds nothing to the common factors
			return And(common...)
		}
		alternatives = append(alternatives, And(rest...))
	}
	return And(append(common, Or(alternatives...))...)
}
