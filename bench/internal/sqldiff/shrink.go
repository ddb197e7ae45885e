package sqldiff

// shrink returns the smallest query it finds that still fails, trying at most
// budget candidates.
func shrink(q *Query, budget int, fails func(*Query) bool) *Query {
	changed := false
	for at := 0; budget > 0; {
		c := q.Clone()
		r := &reducer{target: at}
		r.query(c, true)
		switch {
		case !r.done && !changed:
			return q
		case !r.done: // what failed before may succeed by now
			at, changed = 0, false
			continue
		}
		budget--
		if fails(c) {
			q, changed = c, true // what was number at is gone: another is in its place
		} else {
			at++
		}
	}
	return q
}

// reducer applies one of all possible reductions of a query: that with the
// number target, in the order in which it meets them.
type reducer struct {
	target, next int
	done         bool
}

func (r *reducer) try(apply func()) {
	if r.done {
		return
	}
	if r.next == r.target {
		apply()
		r.done = true
	}
	r.next++
}

func (r *reducer) query(q *Query, top bool) {
	if q == nil || r.done {
		return
	}
	for i := range q.With {
		r.try(func() { q.With = append(q.With[:i:i], q.With[i+1:]...) })
		if r.done {
			return
		}
		if q.With[i].Materialized != "" {
			r.try(func() { q.With[i].Materialized = "" })
		}
		r.query(q.With[i].Query, false)
	}
	if q.Set != nil {
		r.try(func() { replace(q, q.Set.Left) })
		if r.done {
			return
		}
		r.try(func() { replace(q, q.Set.Right) })
		if r.done {
			return
		}
		r.query(q.Set.Left, false)
		r.query(q.Set.Right, false)
	}
	if q.Prepared {
		r.try(func() { q.Prepared = false })
	}
	if q.Ties {
		r.try(func() { q.Limit, q.Ties = -1, false })
	} else if q.Limit >= 0 {
		r.try(func() { q.Limit, q.Offset = -1, 0 })
	}
	if q.Offset > 0 {
		r.try(func() { q.Offset = 0 })
	}
	if len(q.Order) > 0 && q.Limit < 0 && q.Offset == 0 && (q.Select == nil || len(q.Select.DistinctOn) == 0) {
		r.try(func() { q.Order = nil })
	}
	if q.Select != nil && !r.done {
		r.items(q, top)
		r.selection(q.Select)
	}
}

// replace makes a query one of its parts; the order of the whole stays.
func replace(q, part *Query) {
	with := append(append([]CTE(nil), q.With...), part.With...)
	whole := *q
	*q = *part
	q.With, q.Order, q.Limit, q.Offset, q.Ties, q.Prepared = with, whole.Order, whole.Limit, whole.Offset, whole.Ties, whole.Prepared
}

// items drops output columns of the outermost query, whose number nothing else
// depends on.
func (r *reducer) items(q *Query, top bool) {
	s := q.Select
	if !top || len(s.Items) < 2 || len(s.DistinctOn) > 0 {
		return
	}
	for i := range s.Items {
		r.try(func() {
			s.Items = append(s.Items[:i:i], s.Items[i+1:]...)
			var order []Order
			for _, o := range q.Order {
				if o.Column > i+1 {
					o.Column--
				} else if o.Column == i+1 {
					continue
				}
				order = append(order, o)
			}
			q.Order = order
		})
		if r.done {
			return
		}
	}
}

func (r *reducer) selection(s *Select) {
	if s.Where != nil {
		r.try(func() { s.Where = nil })
	}
	if s.Having != nil {
		r.try(func() { s.Having = nil })
	}
	if s.Distinct {
		r.try(func() { s.Distinct = false })
	}
	if s.Grouping != "" {
		r.try(func() { s.Grouping = "" })
	}
	for i := range s.Group {
		r.try(func() { s.Group = append(s.Group[:i:i], s.Group[i+1:]...) })
		if r.done {
			return
		}
	}
	if r.done {
		return
	}
	s.From = r.from(s.From)
	r.list(s.Items)
	if s.Where != nil {
		s.Where = r.expr(s.Where)
	}
	if s.Having != nil {
		s.Having = r.expr(s.Having)
	}
}

func (r *reducer) from(f *From) *From {
	if f == nil || r.done {
		return f
	}
	if f.Join != "" {
		out := f
		r.try(func() { out = f.Left })
		r.try(func() { out = f.Right })
		if f.Join != "JOIN" && f.Join != "CROSS JOIN" {
			r.try(func() { f.Join = "JOIN" })
		}
		if r.done {
			return out
		}
		f.Left, f.Right = r.from(f.Left), r.from(f.Right)
		if f.On != nil {
			f.On = r.expr(f.On)
		}
	}
	r.query(f.Query, false)
	return f
}

func (r *reducer) list(es []*Expr) {
	for i, e := range es {
		es[i] = r.expr(e)
	}
}

// expr replaces an expression by an argument of its type or by a constant.
func (r *reducer) expr(e *Expr) *Expr {
	if r.done {
		return e
	}
	if len(e.Args) == 0 && e.Sub == nil {
		return e
	}
	out := e
	if !e.Whole {
		for _, a := range e.Args {
			if a.Type == e.Type {
				r.try(func() { out = a })
			}
		}
		r.try(func() { out = nullOf(e.Type) })
		if e.Type == Bool {
			r.try(func() { out = &Expr{Type: Bool, Skein: "TRUE"} })
		}
	}
	if r.done {
		return out
	}
	r.list(e.Args)
	r.query(e.Sub, false)
	return e
}

// shrinkRows leaves out rows while the failure stays: halves, then quarters,
// down to single rows.
func shrinkRows(rows [][]Literal, budget int, fails func([][]Literal) bool) [][]Literal {
	for size := (len(rows) + 1) / 2; size > 0 && len(rows) > 0; {
		dropped := false
		for from := 0; from < len(rows) && budget > 0; {
			budget--
			fewer := append(append([][]Literal(nil), rows[:from]...), rows[min(from+size, len(rows)):]...)
			if fails(fewer) {
				rows, dropped = fewer, true
			} else {
				from += size
			}
		}
		switch {
		case budget <= 0:
			return rows
		case size > 1:
			size = size / 2
		case !dropped:
			return rows
		}
	}
	return rows
}
