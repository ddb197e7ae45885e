package exec

import (
	"slices"
	"strings"
	"sync"

	"github.com/agnivade/levenshtein"
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

// Volatility says when a function may be evaluated ahead of execution.
type Volatility string

// Immutable functions always give the same result for the same arguments and
// are folded over constants; Stable ones give the same result within one
// statement; Volatile ones are evaluated for every row, see planner.Volatile.
const (
	Immutable Volatility = "immutable"
	Stable    Volatility = "stable"
	Volatile  Volatility = "volatile"
)

// Signature is one function or operator resolved for the types of its
// arguments. All types are public SQL types.
type Signature struct {
	// Name is the canonical name, to be used as planner.Call.Func.
	Name string
	// Args are the types the arguments must be cast to, one per argument. A
	// nil entry never occurs; an argument of any type keeps its own.
	Args []arrow.DataType
	// Result is the type of the result.
	Result arrow.DataType
	// Strict functions return NULL when, and only when, an argument is NULL.
	Strict bool
	// NeverNull functions do not return NULL whatever the arguments.
	NeverNull  bool
	Volatility Volatility
}

// Nullable reports whether the result may be NULL, given which arguments may.
func (s Signature) Nullable(args ...bool) bool {
	return !s.NeverNull && (!s.Strict || slices.Contains(args, true))
}

// FunctionDoc is one line of the function reference.
type FunctionDoc struct {
	Name       string   // canonical name or operator symbol
	Aliases    []string // other accepted names
	Signatures []string // e.g. "substring(text, integer, integer) -> text"
	Doc        string
}

// overload is one signature pattern of a function.
type overload struct {
	params []kind
	// variadic repeats the last parameter one or more times.
	variadic bool
	result   resultRule
	make     func(site *callSite) (kernel, error)
}

// function is one entry of the registry.
type function struct {
	name    string
	aliases []string
	doc     string
	// infix operators are documented with the symbol between the operands.
	infix      bool
	nonStrict  bool
	neverNull  bool
	volatility Volatility // "" is Immutable
	// total functions cannot fail, so they may be evaluated for values that no
	// selected row has: on every entry of a dictionary.
	total     bool
	overloads []overload
}

func (f *function) volatile() Volatility {
	if f.volatility == "" {
		return Immutable
	}
	return f.volatility
}

// functions is the registry: canonical names and aliases. It is built once and
// then only read.
var functions = sync.OnceValue(func() map[string]*function {
	all := make(map[string]*function)
	groups := [][]*function{
		arithmeticFunctions(), comparisonFunctions(), logicFunctions(), mathFunctions(),
		textFunctions(), matchFunctions(), conditionalFunctions(), datetimeFunctions(), extractFunctions(),
		regexFunctions(), charFunctions(), trigFunctions(), integerFunctions(), calendarFunctions(), formatFunctions(), randomFunctions(), zoneFunctions(),
	}
	for _, group := range groups {
		for _, f := range group {
			all[f.name] = f
			for _, a := range f.aliases {
				all[a] = f
			}
		}
	}
	return all
})

// ScalarNames lists the canonical names and the aliases, sorted.
func ScalarNames() []string {
	names := make([]string, 0, len(functions()))
	for n := range functions() {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// FunctionDocs describes every function, sorted by name, operators first.
func FunctionDocs() []FunctionDoc {
	var docs []FunctionDoc
	for name, f := range functions() {
		if name != f.name {
			continue
		}
		d := FunctionDoc{Name: f.name, Aliases: f.aliases, Doc: f.doc}
		for _, o := range f.overloads {
			d.Signatures = append(d.Signatures, f.spell(&o))
		}
		docs = append(docs, d)
	}
	slices.SortFunc(docs, func(a, b FunctionDoc) int { return strings.Compare(a.Name, b.Name) })
	return docs
}

// spell prints one overload as users read it.
func (f *function) spell(o *overload) string {
	names := make([]string, len(o.params))
	for i, p := range o.params {
		names[i] = p.String()
	}
	if o.variadic {
		names = append(names, "...")
	}
	head := f.name + "(" + strings.Join(names, ", ") + ")"
	if f.infix {
		switch len(names) {
		case 1:
			head = f.name + " " + names[0]
			if strings.HasPrefix(f.name, "is ") {
				head = names[0] + " " + f.name
			}
		case 2:
			head = names[0] + " " + f.name + " " + names[1]
		}
	}
	return head + " -> " + o.result.name
}

// ResolveScalar finds the overload of a function or operator for arguments of
// the given public types; catalog.Null stands for an untyped NULL or string
// literal and matches anything. As in PostgreSQL the overload with the most
// exact matches wins, then the one with the cheapest implicit casts.
//
// It fails with SQLSTATE 42883 when nothing fits (a similar name is hinted),
// with 42725 when untyped arguments leave the choice open, and with 0A000 or
// 22003 when the result type would be too wide.
func ResolveScalar(name string, args []arrow.DataType) (Signature, error) {
	f := functions()[name]
	if f == nil {
		return Signature{}, undefined(name, args).WithHint("%s", nameHint(name))
	}
	o, types, err := f.choose(args)
	if err != nil {
		return Signature{}, err
	}
	result, err := o.result.of(types)
	if err != nil {
		return Signature{}, err
	}
	return Signature{
		Name: f.name, Args: types, Result: result,
		Strict: !f.nonStrict, NeverNull: f.neverNull, Volatility: f.volatile(),
	}, nil
}

// choose picks the overload and the types its arguments take.
func (f *function) choose(args []arrow.DataType) (*overload, []arrow.DataType, error) {
	var best *overload
	var bestTypes []arrow.DataType
	bestScore := matchScore{exact: -1}
	tied := false
	arity := false
	for i := range f.overloads {
		o := &f.overloads[i]
		if !o.takes(len(args)) {
			continue
		}
		arity = true
		types, score, ok := o.match(args)
		if !ok {
			continue
		}
		switch score.compare(bestScore) {
		case 1:
			best, bestTypes, bestScore, tied = o, types, score, false
		case 0:
			tied = true
		}
	}
	switch {
	case best == nil && !arity:
		return nil, nil, undefined(f.name, args).WithHint("Accepted: %s.", f.forms())
	case best == nil:
		return nil, nil, undefined(f.name, args).WithHint("Accepted: %s. You might need to add explicit type casts.", f.forms())
	case tied && onlyUnknown(args):
		return nil, nil, sqlstate.New(sqlstate.AmbiguousFunction, "%s is not unique", callText(f.name, args)).
			WithHint("Add explicit type casts to choose one of: %s.", f.forms())
	}
	return best, bestTypes, nil
}

func onlyUnknown(args []arrow.DataType) bool {
	for _, a := range args {
		if a.ID() != arrow.NULL {
			return false
		}
	}
	return true
}

func (f *function) forms() string {
	forms := make([]string, len(f.overloads))
	for i := range f.overloads {
		forms[i] = f.spell(&f.overloads[i])
	}
	return strings.Join(forms, "; ")
}

func (o *overload) takes(n int) bool {
	if o.variadic {
		return n >= len(o.params)
	}
	return n == len(o.params)
}

func (o *overload) param(i int) kind {
	return o.params[min(i, len(o.params)-1)]
}

// matchScore ranks the ways of matching arguments.
type matchScore struct {
	exact int
	cost  int
}

func (s matchScore) compare(than matchScore) int {
	switch {
	case s.exact > than.exact, s.exact == than.exact && s.cost < than.cost:
		return 1
	case s == than:
		return 0
	}
	return -1
}

// match converts the argument types to what the overload takes.
func (o *overload) match(args []arrow.DataType) ([]arrow.DataType, matchScore, bool) {
	types := make([]arrow.DataType, len(args))
	var score matchScore
	var unified []int // arguments that share one type
	for i, a := range args {
		p := o.param(i)
		if p.unifies() {
			unified = append(unified, i)
			continue
		}
		t, cost, ok := p.accept(a)
		if !ok {
			return nil, score, false
		}
		types[i] = t
		if cost == 0 {
			score.exact++
		}
		score.cost += cost
	}
	if len(unified) == 0 {
		return types, score, true
	}
	group := make([]arrow.DataType, len(unified))
	for k, i := range unified {
		group[k] = args[i]
	}
	got, ok := o.param(unified[0]).unify(group)
	if !ok {
		return nil, score, false
	}
	for k, i := range unified {
		types[i] = got[k]
		if kindOf(got[k]) == kindOf(args[i]) {
			score.exact++
		} else {
			score.cost++
		}
	}
	return types, score, true
}

func undefined(name string, args []arrow.DataType) *sqlstate.Error {
	return sqlstate.New(sqlstate.UndefinedFunction, "%s does not exist", callText(name, args))
}

func callText(name string, args []arrow.DataType) string {
	names := make([]string, len(args))
	for i, a := range args {
		names[i] = catalog.TypeName(a)
	}
	if strings.ContainsAny(name, "+-*/%<>=|~!^") {
		if len(args) == 2 {
			return "operator " + names[0] + " " + name + " " + names[1]
		}
		return "operator " + name + " " + strings.Join(names, ", ")
	}
	return "function " + name + "(" + strings.Join(names, ", ") + ")"
}

// nameHint suggests the nearest function name.
func nameHint(name string) string {
	best, distance := "", 3
	for _, n := range ScalarNames() {
		if d := levenshtein.ComputeDistance(name, n); d < distance && d < len(name) {
			best, distance = n, d
		}
	}
	if best == "" {
		return "No function of this name is known."
	}
	return "Perhaps you meant the function \"" + best + "\"."
}
