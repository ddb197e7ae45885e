package planner

// inlineCommons merges common tables into what reads them where that costs
// nothing: those that are read once, and those that merely read a table. What
// nobody reads is dropped. A common table that the statement wants computed on
// its own stays, and so does one with a volatile function that is read more than
// once.
func inlineCommons(root Node) Node {
	w, ok := root.(*With)
	if !ok {
		return root
	}
	counts := make(map[CommonID]int)
	references(w.Main, counts)
	// A later one may read an earlier one, so the last comes first.
	kept := make([]*Common, 0, len(w.Commons))
	inlined := make(map[CommonID]Node)
	for i := len(w.Commons) - 1; i >= 0; i-- {
		c := w.Commons[i]
		n := counts[c.ID]
		if n == 0 {
			continue
		}
		if !c.Keep && (n == 1 || cheap(c.Input)) {
			inlined[c.ID] = c.Input
			each := make(map[CommonID]int)
			references(c.Input, each)
			for id, more := range each {
				counts[id] += n * more
			}
			continue
		}
		references(c.Input, counts)
		kept = append(kept, c)
	}
	var expand func(n Node) Node
	expand = func(n Node) Node {
		return mapNodes(n, func(n Node) Node {
			scan, ok := n.(*CommonScan)
			if !ok || inlined[scan.ID] == nil {
				return n
			}
			return selectedAs(expand(inlined[scan.ID]), scan)
		})
	}
	out := &With{Main: w.Main}
	if len(inlined) > 0 {
		out.Main = expand(w.Main)
	}
	for i := len(kept) - 1; i >= 0; i-- {
		c := *kept[i]
		if len(inlined) > 0 {
			c.Input = expand(c.Input)
		}
		out.Commons = append(out.Commons, &c)
	}
	if len(out.Commons) == 0 {
		return out.Main
	}
	return out
}

// selectedAs is a common table's node in place of a scan of it.
func selectedAs(n Node, scan *CommonScan) Node {
	return withNullability(selectColumns(n, scan.Columns), scan.fields())
}

// cheap reports whether computing a subtree twice costs as little as reading it
// twice: it filters and picks columns of one table, or is a few constant rows.
func cheap(n Node) bool {
	switch n := n.(type) {
	case *Scan:
		return n.Filter == nil || !isVolatile(n.Filter)
	case *Values:
		return len(n.Rows) <= 1 && !volatileNode(n)
	case *Filter:
		return !isVolatile(n.Predicate) && cheap(n.Input)
	case *Project:
		return onlyColumns(n.Exprs) && cheap(n.Input)
	case *CommonScan:
		return true
	}
	return false
}

// IsVolatileNode reports whether a subtree may have other rows each time.
func IsVolatileNode(n Node) bool { return volatileNode(n) }

// volatileNode reports whether a subtree may have other rows each time.
func volatileNode(n Node) bool {
	for _, e := range nodeExprs(n) {
		if isVolatile(e) {
			return true
		}
	}
	for _, in := range n.Inputs() {
		if volatileNode(in) {
			return true
		}
	}
	return false
}

// nodeExprs are the scalar expressions of a node itself.
func nodeExprs(n Node) []Expr {
	switch n := n.(type) {
	case *Scan:
		if n.Filter != nil {
			return []Expr{n.Filter}
		}
	case *Filter:
		return []Expr{n.Predicate}
	case *Project:
		return n.Exprs
	case *Join:
		if n.Residual != nil {
			return []Expr{n.Residual}
		}
	case *Values:
		var out []Expr
		for _, row := range n.Rows {
			out = append(out, row...)
		}
		return out
	}
	return nil
}

// addCommons estimates the common tables of a tree, for the scans of them.
func (s *estimator) addCommons(root Node) error {
	w, ok := root.(*With)
	if !ok {
		return nil
	}
	for _, c := range w.Commons {
		est, err := s.node(c.Input)
		if err != nil {
			return err
		}
		s.commons[c.ID] = est
	}
	return nil
}

// throughWith pushes conditions into Main, and into a common table what each of
// its readers asks for: a row that none of them wants need not be kept.
func (p *pushdown) throughWith(n *With, conds []Expr) (Node, error) {
	main, err := p.push(n.Main, conds)
	if err != nil {
		return nil, err
	}
	out := &With{Main: main}
	wanted := make(map[CommonID]*wantedRows)
	collectWanted(main, nil, wanted)
	out.Commons = make([]*Common, len(n.Commons))
	for i := len(n.Commons) - 1; i >= 0; i-- {
		c := *n.Commons[i]
		if c.Input, err = p.push(c.Input, wanted[c.ID].conds(&c)); err != nil {
			return nil, err
		}
		collectWanted(c.Input, nil, wanted)
		out.Commons[i] = &c
	}
	if err := p.estimator.addCommons(out); err != nil {
		return nil, err
	}
	return out, nil
}

// maxWantedTerms bounds the size of a condition that is made of the readers'
// ones.
const maxWantedTerms = 8

// wantedRows is what the scans of one common table keep of it.
type wantedRows struct {
	all   bool   // a scan keeps everything, or what is not simple
	terms []Expr // one per scan
}

// collectWanted notes the filters right above the scans in a subtree; filter is
// that above n.
func collectWanted(n Node, filter Expr, into map[CommonID]*wantedRows) {
	if scan, ok := n.(*CommonScan); ok {
		w := into[scan.ID]
		if w == nil {
			w = &wantedRows{}
			into[scan.ID] = w
		}
		if filter == nil || isVolatile(filter) {
			w.all = true
			return
		}
		w.terms = append(w.terms, transform(filter, func(c *Column) Expr { return columnOf(scan.Fields.Fields(), scan.Columns[c.Index]) }))
		return
	}
	if f, ok := n.(*Filter); ok {
		collectWanted(f.Input, f.Predicate, into)
		return
	}
	for _, in := range n.Inputs() {
		collectWanted(in, nil, into)
	}
}

// conds is the condition under which some scan keeps a row, none if there is no
// simple one.
func (w *wantedRows) conds(c *Common) []Expr {
	if w == nil || w.all || c.Keep || len(w.terms) == 0 || len(w.terms) > maxWantedTerms || volatileNode(c.Input) {
		return nil
	}
	return []Expr{Or(w.terms...)}
}

// aroundRecursive orders what is below a recursion. Conditions stay above it: a
// row that they reject may lead to others that they do not.
func (p *pushdown) aroundRecursive(n *Recursive, conds []Expr) (Node, error) {
	seed, err := p.push(n.Seed, nil)
	if err != nil {
		return nil, err
	}
	est, err := p.estimator.node(seed)
	if err != nil {
		return nil, err
	}
	p.estimator.commons[n.ID] = est.repeated(n.Fields)
	step, err := p.push(n.Step, nil)
	if err != nil {
		return nil, err
	}
	return filterBy(withInputs(n, []Node{seed, step}), conds), nil
}

// pruneCommons drops the columns of common tables that no scan reads.
func pruneCommons(w *With) Node {
	out := &With{Main: pruneColumns(w.Main), Commons: make([]*Common, len(w.Commons))}
	read := make(map[CommonID][]bool)
	markRead(out.Main, read)
	moved := make(map[CommonID][]int)
	for i := len(w.Commons) - 1; i >= 0; i-- {
		c := *w.Commons[i]
		fields := outputFields(c.Input)
		need := read[c.ID]
		if need == nil {
			need = make([]bool, len(fields))
		}
		if !anyOf(need) && len(need) > 0 {
			need[narrowest(fields)] = true
		}
		var columns []int
		for k, n := range need {
			if n {
				columns = append(columns, k)
			}
		}
		moved[c.ID] = densely(need)
		c.Input = pruneColumns(withNullability(selectColumns(c.Input, columns), picked(fields, columns)))
		markRead(c.Input, read)
		out.Commons[i] = &c
	}
	schemas := make(map[CommonID]*Common)
	for _, c := range out.Commons {
		schemas[c.ID] = c
	}
	narrow := func(n Node) Node {
		scan, ok := n.(*CommonScan)
		if !ok {
			return n
		}
		whole := schemas[scan.ID].Scan()
		whole.Name, whole.Columns = scan.Name, remapColumns(scan.Columns, moved[scan.ID])
		return whole
	}
	for _, c := range out.Commons {
		c.Input = mapNodes(c.Input, narrow)
	}
	out.Main = mapNodes(out.Main, narrow)
	return out
}

// markRead notes which columns of common tables a subtree reads.
func markRead(n Node, read map[CommonID][]bool) {
	if scan, ok := n.(*CommonScan); ok {
		if read[scan.ID] == nil {
			read[scan.ID] = make([]bool, scan.Fields.NumFields())
		}
		for _, c := range scan.Columns {
			read[scan.ID][c] = true
		}
	}
	for _, in := range n.Inputs() {
		markRead(in, read)
	}
}

func pruneCommonScan(n *CommonScan, need []bool) (Node, []int) {
	keep := append([]bool(nil), need...)
	if !anyOf(keep) && len(keep) > 0 {
		keep[narrowest(outputFields(n))] = true
	}
	out := &CommonScan{ID: n.ID, Name: n.Name, Fields: n.Fields}
	for i, k := range keep {
		if k {
			out.Columns = append(out.Columns, n.Columns[i])
		}
	}
	return out, densely(keep)
}
