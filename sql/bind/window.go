package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// windowFuncs are the functions that only a window can compute.
var windowFuncs = map[string]planner.WindowFunc{
	"row_number": planner.RowNumber, "rank": planner.Rank, "dense_rank": planner.DenseRank,
	"percent_rank": planner.PercentRank, "cume_dist": planner.CumeDist, "ntile": planner.Ntile,
	"lag": planner.Lag, "lead": planner.Lead, "first_value": planner.FirstValue,
	"last_value": planner.LastValue, "nth_value": planner.NthValue,
}

// windowRef stands for a window function's result until the window is planned.
type windowRef struct {
	fn        planner.WindowFunc
	args      []planner.Expr
	partition []planner.Expr
	order     []aggregateOrder
	frame     planner.Frame
	dt        arrow.DataType
}

// Type is the function's result type.
func (w *windowRef) Type() arrow.DataType { return w.dt }

// Nullable is false for the functions that count rows.
func (w *windowRef) Nullable() bool {
	switch w.fn {
	case planner.RowNumber, planner.Rank, planner.DenseRank, planner.PercentRank, planner.CumeDist, planner.WindowFunc(planner.Count):
		return false
	}
	return true
}

// String is the function's name.
func (w *windowRef) String() string { return string(w.fn) }

func (w *windowRef) rebuild(replace func(planner.Expr) (planner.Expr, error)) (planner.Expr, error) {
	out := *w
	var err error
	if out.args, err = rebuildList(w.args, replace); err != nil {
		return nil, err
	}
	if out.partition, err = rebuildList(w.partition, replace); err != nil {
		return nil, err
	}
	out.order = slices.Clone(w.order)
	for i := range out.order {
		if out.order[i].expr, err = replace(w.order[i].expr); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

func (w *windowRef) equal(v *windowRef) bool {
	return w.fn == v.fn && slices.EqualFunc(w.args, v.args, equal) && w.sameWindow(v) && equalFrames(w.frame, v.frame)
}

// sameWindow reports whether two functions see the same partitions in the same
// order.
func (w *windowRef) sameWindow(v *windowRef) bool {
	return slices.EqualFunc(w.partition, v.partition, equal) &&
		slices.EqualFunc(w.order, v.order, func(x, y aggregateOrder) bool { return x.key == y.key && equal(x.expr, y.expr) })
}

func equalFrames(f, g planner.Frame) bool {
	bound := func(x, y planner.FrameBound) bool {
		return x.Kind == y.Kind && (x.Offset == nil) == (y.Offset == nil) && (x.Offset == nil || equal(x.Offset, y.Offset))
	}
	return f.Mode == g.Mode && f.Exclude == g.Exclude && bound(f.Start, g.Start) && bound(f.End, g.End)
}

// windowCall binds a function with OVER.
func (b *binder) windowCall(name string, f *pgquery.FuncCall, c *exprContext) (planner.Expr, error) {
	if !c.windows {
		code := sqlstate.WindowingError
		if c.clause == aggregateArgument {
			code = sqlstate.GroupingError
		}
		return nil, b.errorAt(code, f.Location, "window functions are not allowed in %s", c.clause)
	}
	inner := *c
	inner.windows = false
	w := &windowRef{}
	if fn, ok := aggregateFunc(name); ok {
		switch {
		case f.AggDistinct:
			return nil, b.unsupported(f.Location, "DISTINCT in a window function")
		case len(f.AggOrder) > 0 || fn == planner.PercentileCont || fn == planner.ArrayAgg || fn == planner.StringAgg:
			return nil, b.unsupported(f.Location, "%s over a window", fn)
		}
		call, err := b.aggregateCallIn(fn, f, &inner)
		if err != nil {
			return nil, err
		}
		w.fn, w.args, w.dt = planner.WindowFunc(fn), call.args, call.dt
	} else {
		fn := windowFuncs[name]
		if fn == "" {
			return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "OVER is given, but %s is neither a window function nor an aggregate", name)
		}
		if err := b.onlyFields(f, "funcname", "args", "over"); err != nil {
			return nil, err
		}
		if err := b.windowArguments(w, fn, f, &inner); err != nil {
			return nil, err
		}
	}
	if err := b.windowDefinition(w, f.Over, &inner); err != nil {
		return nil, err
	}
	return b.at(w, f.Location), nil
}

// aggregateCallIn binds an aggregate's call over a window: unlike that of a
// grouped aggregate, its argument may hold aggregates.
func (b *binder) aggregateCallIn(fn planner.AggFunc, f *pgquery.FuncCall, c *exprContext) (*aggregateCall, error) {
	context := *c
	context.inWindow = true
	return b.aggregateCall(fn, f, &context)
}

// windowArguments binds the arguments of a function of windows' own; those that
// are left out get their defaults.
func (b *binder) windowArguments(w *windowRef, fn planner.WindowFunc, f *pgquery.FuncCall, c *exprContext) error {
	low, high := 0, 0
	w.fn, w.dt = fn, catalog.BigInt
	switch fn {
	case planner.PercentRank, planner.CumeDist:
		w.dt = catalog.Double
	case planner.Ntile:
		low, high, w.dt = 1, 1, catalog.Integer
	case planner.Lag, planner.Lead:
		low, high = 1, 3
	case planner.FirstValue, planner.LastValue:
		low, high = 1, 1
	case planner.NthValue:
		low, high = 2, 2
	}
	if len(f.Args) < low || len(f.Args) > high {
		return b.errorAt(sqlstate.UndefinedFunction, f.Location, "window function %s does not take %d arguments", fn, len(f.Args))
	}
	args, err := b.exprs(f.Args, c)
	if err != nil {
		return err
	}
	count := func(i int) error {
		if !isUntyped(args[i]) && !isInteger(args[i].Type()) {
			return b.errorAt(sqlstate.UndefinedFunction, f.Location, "window function %s takes an integer, not %s", fn, catalog.TypeName(args[i].Type()))
		}
		args[i], err = b.convert(args[i], catalog.BigInt)
		return err
	}
	switch fn {
	case planner.Ntile:
		w.args = args
		return count(0)
	case planner.Lag, planner.Lead:
		return b.shiftArguments(w, args, count)
	case planner.FirstValue, planner.LastValue, planner.NthValue:
		if args[0], err = b.settled(args[0]); err != nil {
			return err
		}
		w.args, w.dt = args, args[0].Type()
		if fn == planner.NthValue {
			return count(1)
		}
	}
	return nil
}

func (b *binder) shiftArguments(w *windowRef, args []planner.Expr, count func(int) error) error {
	if len(args) > 1 {
		if err := count(1); err != nil {
			return err
		}
	} else {
		args = append(args, &planner.Literal{Value: int64(1), DataType: catalog.BigInt})
	}
	if len(args) < 3 {
		settled, err := b.settled(args[0])
		if err != nil {
			return err
		}
		w.args, w.dt = []planner.Expr{settled, args[1], &planner.Literal{DataType: settled.Type()}}, settled.Type()
		return nil
	}
	both, dt, err := b.unify("LAG/LEAD", []planner.Expr{args[0], args[2]})
	if err != nil {
		return err
	}
	w.args, w.dt = []planner.Expr{both[0], args[1], both[1]}, dt
	return nil
}

// namedWindow is what a window definition says, together with the one that it
// builds on: `OVER name` is that, `OVER (name ...)` copies its partitions and the
// order that it does not give itself. named are the definitions it may build on.
func (b *binder) namedWindow(def *pgquery.WindowDef, named []*pgquery.WindowDef, over bool) (*pgquery.WindowDef, error) {
	name := def.Refname
	if over && def.Name != "" {
		name = def.Name
	}
	if name == "" {
		return def, nil
	}
	at := slices.IndexFunc(named, func(d *pgquery.WindowDef) bool { return d.Name == name })
	if at < 0 {
		return nil, b.errorAt(sqlstate.UndefinedObject, def.Location, "window %q does not exist", name)
	}
	base, err := b.namedWindow(named[at], named[:at], false)
	if err != nil {
		return nil, err
	}
	if over && def.Name != "" {
		return base, nil
	}
	switch {
	case len(def.PartitionClause) > 0:
		return nil, b.errorAt(sqlstate.WindowingError, def.Location, "the PARTITION BY clause of window %q cannot be overridden", name)
	case len(def.OrderClause) > 0 && len(base.OrderClause) > 0:
		return nil, b.errorAt(sqlstate.WindowingError, def.Location, "the ORDER BY clause of window %q cannot be overridden", name)
	case base.FrameOptions&1 != 0:
		return nil, b.errorAt(sqlstate.WindowingError, def.Location, "window %q has a frame and cannot be copied", name)
	}
	merged := &pgquery.WindowDef{
		PartitionClause: base.PartitionClause, OrderClause: base.OrderClause, FrameOptions: def.FrameOptions,
		StartOffset: def.StartOffset, EndOffset: def.EndOffset, Location: def.Location,
	}
	if len(def.OrderClause) > 0 {
		merged.OrderClause = def.OrderClause
	}
	return merged, nil
}

// windowDefinition binds OVER (...) or OVER name.
func (b *binder) windowDefinition(w *windowRef, def *pgquery.WindowDef, c *exprContext) error {
	whole, err := b.namedWindow(def, c.named, true)
	if err != nil {
		return err
	}
	for _, n := range whole.PartitionClause {
		e, err := b.expr(n, c)
		if err != nil {
			return err
		}
		if e, err = b.settled(e); err != nil {
			return err
		}
		w.partition = append(w.partition, e)
	}
	for _, n := range whole.OrderClause {
		by := n.GetSortBy()
		key, err := b.sortKey(by)
		if err != nil {
			return err
		}
		e, err := b.expr(by.Node, c)
		if err != nil {
			return err
		}
		if e, err = b.settled(e); err != nil {
			return err
		}
		w.order = append(w.order, aggregateOrder{e, key})
	}
	return b.windowFrame(w, whole)
}

// The bits of a window's frame options, as the grammar sets them.
const (
	frameRange           = 0x2
	frameRows            = 0x4
	frameGroups          = 0x8
	startUnbounded       = 0x20
	endUnboundedPrevious = 0x40
	startUnboundedNext   = 0x80
	endUnbounded         = 0x100
	startCurrent         = 0x200
	endCurrent           = 0x400
	startPreceding       = 0x800
	endPreceding         = 0x1000
	startFollowing       = 0x2000
	endFollowing         = 0x4000
	excludeCurrent       = 0x8000
	excludeGroup         = 0x10000
	excludeTies          = 0x20000
)

func (b *binder) windowFrame(w *windowRef, def *pgquery.WindowDef) error {
	options := def.FrameOptions
	f := planner.DefaultFrame()
	switch {
	case options&frameRows != 0:
		f.Mode = planner.RowsFrame
	case options&frameGroups != 0:
		f.Mode = planner.GroupsFrame
		if len(w.order) == 0 {
			return b.errorAt(sqlstate.WindowingError, def.Location, "GROUPS mode needs an ORDER BY clause in the window")
		}
	}
	pick := func(bits ...int32) planner.BoundKind {
		kinds := []planner.BoundKind{
			planner.UnboundedPreceding, planner.Preceding, planner.CurrentRow, planner.Following, planner.UnboundedFollowing,
		}
		for i, bit := range bits {
			if options&bit != 0 {
				return kinds[i]
			}
		}
		return ""
	}
	if kind := pick(startUnbounded, startPreceding, startCurrent, startFollowing, startUnboundedNext); kind != "" {
		f.Start.Kind = kind
	}
	if kind := pick(endUnboundedPrevious, endPreceding, endCurrent, endFollowing, endUnbounded); kind != "" {
		f.End.Kind = kind
	}
	switch {
	case options&excludeCurrent != 0:
		f.Exclude = planner.ExcludeCurrent
	case options&excludeGroup != 0:
		f.Exclude = planner.ExcludeGroup
	case options&excludeTies != 0:
		f.Exclude = planner.ExcludeTies
	}
	var err error
	if f.Start.Offset, err = b.frameOffset(w, f.Mode, f.Start.Kind, def.StartOffset, def.Location); err != nil {
		return err
	}
	if f.End.Offset, err = b.frameOffset(w, f.Mode, f.End.Kind, def.EndOffset, def.Location); err != nil {
		return err
	}
	w.frame = f
	return nil
}

func (b *binder) frameOffset(w *windowRef, mode planner.FrameMode, kind planner.BoundKind, n *pgquery.Node, location int32) (*planner.Literal, error) {
	if kind != planner.Preceding && kind != planner.Following || n == nil {
		return nil, nil
	}
	dt := catalog.BigInt
	if mode == planner.RangeFrame {
		if len(w.order) != 1 {
			return nil, b.errorAt(sqlstate.WindowingError, location, "RANGE with an offset needs exactly one ORDER BY column in the window")
		}
		dt = w.order[0].expr.Type()
		switch dt.ID() {
		case arrow.DATE32, arrow.TIME64, arrow.TIMESTAMP:
			dt = catalog.Interval
		}
	}
	e, err := b.constantExpr(n, dt, "a frame offset")
	if err != nil {
		return nil, err
	}
	if hasParam(e) {
		return nil, b.unsupported(location, "a parameter as a frame offset")
	}
	l, err := evaluate(e)
	if err != nil {
		return nil, b.place(err, locationOf(n))
	}
	if l.Value == nil {
		return nil, b.errorAt(sqlstate.InvalidParameter, location, "a frame offset must not be NULL")
	}
	if v, ok := l.Value.(int64); ok && v < 0 {
		return nil, b.errorAt(sqlstate.InvalidParameter, location, "a frame offset must not be negative")
	}
	if v, ok := l.Value.(float64); ok && !(v >= 0) {
		return nil, b.errorAt(sqlstate.InvalidParameter, location, "a frame offset must not be negative")
	}
	return l, nil
}

// planWindows computes the window functions of the targets: what they read
// becomes columns, and each different window one node.
func (s *selection) planWindows() error {
	var refs []*windowRef
	for _, t := range s.targets {
		contains(t.expr, func(e planner.Expr) bool {
			if w, ok := e.(*windowRef); ok && !slices.ContainsFunc(refs, w.equal) {
				refs = append(refs, w)
			}
			return false
		})
	}
	if len(refs) == 0 {
		return nil
	}
	input := identity(s.node)
	column := func(e planner.Expr) int {
		for i, known := range input.Exprs {
			if equal(known, e) {
				return i
			}
		}
		input.Exprs, input.Names = append(input.Exprs, e), append(input.Names, "window_input")
		return len(input.Exprs) - 1
	}
	var windows []*planner.Window
	var heads []*windowRef
	at := make(map[*windowRef][2]int) // window, call
	for _, r := range refs {
		i := slices.IndexFunc(heads, r.sameWindow)
		if i < 0 {
			i = len(heads)
			heads = append(heads, r)
			w := &planner.Window{}
			for _, e := range r.partition {
				w.PartitionBy = append(w.PartitionBy, column(e))
			}
			for _, o := range r.order {
				key := o.key
				key.Column = column(o.expr)
				w.OrderBy = append(w.OrderBy, key)
			}
			windows = append(windows, w)
		}
		call := planner.WindowCall{Func: r.fn, Frame: r.frame, DataType: r.dt, Name: string(r.fn)}
		for _, a := range r.args {
			call.Args = append(call.Args, column(a))
		}
		at[r] = [2]int{i, len(windows[i].Calls)}
		windows[i].Calls = append(windows[i].Calls, call)
	}
	s.node = input
	first := make([]int, len(windows))
	next := len(input.Exprs)
	for i, w := range windows {
		w.Input = s.node
		s.node = w
		first[i] = next
		next += len(w.Calls)
	}
	for i, t := range s.targets {
		s.targets[i].expr = replaceLeaves(t.expr, func(e planner.Expr) planner.Expr {
			w, ok := e.(*windowRef)
			if !ok {
				return nil
			}
			place := at[refs[slices.IndexFunc(refs, w.equal)]]
			return &planner.Column{
				Index: first[place[0]] + place[1], Name: string(w.fn), DataType: w.dt, Null: w.Nullable(),
			}
		})
	}
	return nil
}
