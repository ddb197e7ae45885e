package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// joinSpec is what the parallel parts of one join have in common.
type joinSpec struct {
	kind        planner.JoinKind
	schema      *arrow.Schema // output
	buildLeft   bool
	buildKeys   []int
	probeKeys   []int
	strictBuild []int // the key columns in which a null matches nothing
	strictProbe []int
	keyTypes    []arrow.DataType
	residual    planner.Expr
	pairSchema  *arrow.Schema // left columns, then right ones: the residual's input
	usedBuild   []bool        // by column: whether the residual reads it
	usedProbe   []bool
	// nullable accepts the pairs for which a mark join's comparison is NULL,
	// among those with a null in a strict key; nil when flags are enough.
	nullable planner.Expr

	pairs     bool // matching pairs are emitted
	keepProbe bool // so are probe rows without a match
	keepBuild bool // and build rows without one
	markProbe bool // matches are remembered by probe row
	markBuild bool // matches are remembered by build row
	single    bool
}

// newJoinParts joins probe parts with the union of the build parts: the build
// side is read once, by whichever part comes first, and shared.
func newJoinParts(op *planner.HashJoin, left, right []Operator, env *Env) ([]Operator, error) {
	spec, err := newJoinSpec(op, left[0].Schema(), right[0].Schema())
	if err != nil {
		return nil, err
	}
	return spec.parts(left, right, env, 0)
}

// parts makes the probing operators; depth counts how often the inputs have
// been partitioned to fit in memory.
func (s *joinSpec) parts(left, right []Operator, env *Env, depth int) ([]Operator, error) {
	buildParts, probeParts := right, left
	if s.buildLeft {
		buildParts, probeParts = left, right
	}
	side := &buildSide{
		spec:    s,
		input:   env.Profile.union(buildParts),
		acct:    s.account(env, depth),
		env:     env,
		depth:   depth,
		users:   len(probeParts),
		probing: len(probeParts),
		seed:    newTableSeed(),
	}
	joins := make([]*joinOp, len(probeParts))
	parts := make([]Operator, len(probeParts))
	for i, probe := range probeParts {
		joins[i] = &joinOp{spec: s, build: side, probe: probe}
		if err := joins[i].prepare(); err != nil {
			return nil, err
		}
		parts[i] = joins[i]
	}
	if depth == 0 {
		side.attachFilters(joins)
	}
	return parts, nil
}

// account opens the account of the stored side. Where its rows cannot be
// partitioned any further they overflow to mapped files: without keys, when a
// mark join has to know of all of them, and when they are mostly of one key.
func (s *joinSpec) account(env *Env, depth int) *Account {
	switch {
	case len(s.buildKeys) == 0:
		return env.overflowAccount("join without keys")
	case s.kind == planner.MarkJoin, depth >= maxSpillDepth:
		return env.overflowAccount("hash join")
	}
	return env.spillingAccount("hash join")
}

func newJoinSpec(op *planner.HashJoin, left, right *arrow.Schema) (*joinSpec, error) {
	if op.Build != planner.BuildLeft && op.Build != planner.BuildRight {
		return nil, malformed("a join has the build side %q", op.Build)
	}
	s := &joinSpec{
		kind:       op.Kind,
		schema:     physicalSchema(op.Schema),
		buildLeft:  op.Build == planner.BuildLeft,
		residual:   op.Residual,
		pairSchema: arrow.NewSchema(append(left.Fields(), right.Fields()...), nil),
	}
	if err := s.setKind(); err != nil {
		return nil, err
	}
	for _, key := range op.On {
		if err := s.addKey(key, left, right); err != nil {
			return nil, err
		}
	}
	if err := s.checkSchema(left); err != nil {
		return nil, err
	}
	if s.kind == planner.MarkJoin && len(s.strictBuild) > 0 && (len(op.On) > 1 || op.Residual != nil) {
		s.nullable = nullComparison(op, left, right)
	}
	used := make([]bool, s.pairSchema.NumFields())
	readColumns(op.Residual, used)
	readColumns(s.nullable, used)
	s.usedProbe, s.usedBuild = used[:left.NumFields()], used[left.NumFields():]
	if s.buildLeft {
		s.usedProbe, s.usedBuild = s.usedBuild, s.usedProbe
	}
	return s, nil
}

// setKind derives what is emitted and remembered from the kind of join.
func (s *joinSpec) setKind() error {
	keepLeft, keepRight := false, false
	byLeft := false // the left rows are the output, chosen or marked by their matches
	switch s.kind {
	case planner.InnerJoin, planner.CrossJoin:
	case planner.LeftJoin:
		keepLeft = true
	case planner.RightJoin:
		keepRight = true
	case planner.FullJoin:
		keepLeft, keepRight = true, true
	case planner.SingleJoin:
		keepLeft, s.single = true, true
	case planner.SemiJoin, planner.AntiJoin, planner.MarkJoin:
		byLeft = true
	default:
		return sqlstate.New(sqlstate.FeatureNotSupported, "%s joins are not supported", s.kind)
	}
	s.pairs = !byLeft
	s.keepProbe, s.keepBuild = keepLeft, keepRight
	if s.buildLeft {
		s.keepProbe, s.keepBuild = s.keepBuild, s.keepProbe
	}
	s.markProbe = s.keepProbe || byLeft && !s.buildLeft
	s.markBuild = s.keepBuild || byLeft && s.buildLeft
	return nil
}

func (s *joinSpec) addKey(key planner.JoinKey, left, right *arrow.Schema) error {
	if err := checkOrdinals("join key", []int{key.Left}, left); err != nil {
		return err
	}
	if err := checkOrdinals("join key", []int{key.Right}, right); err != nil {
		return err
	}
	l, r := left.Field(key.Left), right.Field(key.Right)
	if !arrow.TypeEqual(joinKeyType(l.Type), joinKeyType(r.Type)) {
		return malformed("the join key %s has type %s but %s has type %s", l.Name, l.Type, r.Name, r.Type)
	}
	s.keyTypes = append(s.keyTypes, l.Type)
	b, p := key.Right, key.Left
	if s.buildLeft {
		b, p = p, b
	}
	s.buildKeys, s.probeKeys = append(s.buildKeys, b), append(s.probeKeys, p)
	if !key.NullSafe {
		s.strictBuild, s.strictProbe = append(s.strictBuild, b), append(s.strictProbe, p)
	}
	return nil
}

// checkSchema compares the output schema with what will be emitted.
func (s *joinSpec) checkSchema(left *arrow.Schema) error {
	fields := s.pairSchema.Fields()
	if !s.pairs {
		fields = left.Fields()
	}
	if s.kind == planner.MarkJoin {
		fields = append(fields, arrow.Field{Name: planner.MarkColumn, Type: catalog.Boolean})
	}
	if s.schema.NumFields() != len(fields) {
		return malformed("a %s join of %d columns has an output schema of %d", s.kind, len(fields), s.schema.NumFields())
	}
	for i, f := range fields {
		if !arrow.TypeEqual(f.Type, s.schema.Field(i).Type) {
			return malformed("join output %s has type %s instead of %s", f.Name, s.schema.Field(i).Type, f.Type)
		}
	}
	return nil
}

// joinKeyType maps types whose values are compared alike to one of them:
// decimals of one scale that are stored in the same width.
func joinKeyType(dt arrow.DataType) arrow.DataType {
	switch t := dt.(type) {
	case *arrow.Decimal64Type:
		return &arrow.Decimal64Type{Precision: 18, Scale: t.Scale}
	case *arrow.Decimal128Type:
		return &arrow.Decimal128Type{Precision: 38, Scale: t.Scale}
	}
	return dt
}

// readColumns marks the columns that an expression reads.
func readColumns(e planner.Expr, used []bool) {
	switch e := e.(type) {
	case *planner.Column:
		if e.Index >= 0 && e.Index < len(used) {
			used[e.Index] = true
		}
	case *planner.Call:
		for _, a := range e.Args {
			readColumns(a, used)
		}
	case *planner.Cast:
		readColumns(e.Arg, used)
	case *planner.InList:
		readColumns(e.Arg, used)
	case *planner.Case:
		for _, w := range e.Whens {
			readColumns(w.Cond, used)
			readColumns(w.Then, used)
		}
		readColumns(e.Else, used)
	}
}

// nullComparison is true for the pairs that a mark join looks at and in which
// no strict key is known to differ.
func nullComparison(op *planner.HashJoin, left, right *arrow.Schema) planner.Expr {
	call := func(f string, args ...planner.Expr) planner.Expr {
		return &planner.Call{Func: f, Args: args, DataType: catalog.Boolean, Null: true}
	}
	column := func(i int, f arrow.Field) planner.Expr {
		return &planner.Column{Index: i, Name: f.Name, DataType: catalog.PublicType(f.Type), Null: true}
	}
	var all []planner.Expr
	for _, key := range op.On {
		l, r := column(key.Left, left.Field(key.Left)), column(left.NumFields()+key.Right, right.Field(key.Right))
		if key.NullSafe {
			all = append(all, call("is not distinct from", l, r))
			continue
		}
		all = append(all, call("or", call("is null", l), call("or", call("is null", r), call("=", l, r))))
	}
	if op.Residual != nil {
		all = append(all, op.Residual)
	}
	e := all[0]
	for _, more := range all[1:] {
		e = call("and", e, more)
	}
	return e
}

// constRow is row i of v, repeated n times.
func constRow(v *columnar.Vector, i, n int) *columnar.Vector {
	if v.Const {
		out := *v
		out.Len = n
		return &out
	}
	out := &columnar.Vector{Type: v.Type, Len: n, Const: true, Dict: v.Dict, Data: v.Data}
	if v.Valid != nil {
		out.Valid = []byte{1}
		if v.IsNull(i) {
			out.Valid[0] = 0
		}
	}
	width := columnar.Width(v.Type)
	switch {
	case v.Dict != nil:
		out.Codes = v.Codes[i : i+1]
	case width > 0:
		out.Data = v.Data[i*width : (i+1)*width]
	case v.Offsets != nil:
		out.Offsets, out.Children = v.Offsets[i:i+2], v.Children
	default:
		for _, c := range v.Children {
			out.Children = append(out.Children, c.Slice(i, i+1))
		}
	}
	return out
}
