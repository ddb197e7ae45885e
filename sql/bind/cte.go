package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// cte is one query of a WITH clause. It is bound once, to a common table that is
// scanned wherever it is named, seeing the WITH queries before it and, in WITH
// RECURSIVE, all of its clause. It is bound anew at each place if the statement
// says NOT MATERIALIZED, or if it refers to the query around the clause.
type cte struct {
	name     string
	query    *pgquery.SelectStmt
	columns  []string // renames
	location int32
	mode     pgquery.CTEMaterialize
	outer    []*cte // that it sees
	frame    *frame // where it was defined

	recursive bool // it may name itself
	state     cteState
	common    *planner.Common // once bound, unless it is to be bound anew
	fields    []arrow.Field   // of common
	working   *workingTable   // while the recursive term is bound
}

type cteState int

const (
	cteUnbound cteState = iota
	cteBinding
	cteBound
)

// with makes the queries of a WITH clause visible until the returned function
// is called. Each is bound here, so that an unused one is checked too.
func (b *binder) with(w *pgquery.WithClause) (restore func(), err error) {
	outer := b.ctes
	restore = func() { b.ctes = outer }
	if w == nil {
		return restore, nil
	}
	if err := b.onlyFields(w, "ctes", "recursive"); err != nil {
		return restore, err
	}
	entries := make([]*cte, len(w.Ctes))
	for i, n := range w.Ctes {
		c := n.GetCommonTableExpr()
		if err := b.onlyFields(c, "ctename", "aliascolnames", "ctequery", "ctematerialized", "cterecursive", "cterefcount"); err != nil {
			return restore, err
		}
		if slices.ContainsFunc(entries[:i], func(e *cte) bool { return e.name == c.Ctename }) {
			return restore, b.errorAt(sqlstate.DuplicateAlias, c.Location, "the WITH query name %q is used more than once", c.Ctename)
		}
		sel := c.Ctequery.GetSelectStmt()
		if sel == nil {
			return restore, b.refuseNode(c.Ctequery, "WITH over ")
		}
		entries[i] = &cte{
			name: c.Ctename, query: sel, columns: stringsOf(c.Aliascolnames), location: c.Location,
			mode: c.Ctematerialized, frame: b.frame, recursive: w.Recursive,
		}
	}
	visible := append(outer[:len(outer):len(outer)], entries...)
	for i, e := range entries {
		e.outer = visible[: len(outer)+i : len(outer)+i]
		if w.Recursive {
			e.outer = visible
		}
	}
	for i, e := range entries {
		b.ctes = e.outer
		if err := b.bindCTE(e); err != nil {
			return restore, err
		}
		b.ctes = visible[: len(outer)+i+1 : len(outer)+i+1]
	}
	b.ctes = visible
	return restore, nil
}

// bindCTE binds a WITH query unless that has been done.
func (b *binder) bindCTE(c *cte) error {
	if c.state != cteUnbound {
		return nil
	}
	out, err := b.cteQuery(c)
	if err != nil {
		return err
	}
	c.state = cteBound
	_, recursive := out.node.(*planner.Recursive)
	if correlated(out.node) || c.mode == pgquery.CTEMaterialize_CTEMaterializeNever && !recursive {
		return nil
	}
	c.common = b.newCommon(c.name, firstColumns(out.node, len(out.fields)))
	c.common.Keep = c.mode == pgquery.CTEMaterialize_CTEMaterializeAlways
	c.fields = out.fields
	return nil
}

// newCommon makes a common table of a node that does not refer to any query
// around it.
func (b *binder) newCommon(name string, node planner.Node) *planner.Common {
	c := &planner.Common{ID: b.newCommonID(), Name: name, Input: node}
	b.commons = append(b.commons, c)
	return c
}

// commonInput is what a scan of a common table reads.
func (b *binder) commonInput(n *planner.CommonScan) planner.Node {
	at := slices.IndexFunc(b.commons, func(c *planner.Common) bool { return c.ID == n.ID })
	return b.commons[at].Input
}

func (b *binder) newCommonID() planner.CommonID {
	b.commonIDs++
	return b.commonIDs
}

// withCommons puts the statement's common tables around its plan.
func (b *binder) withCommons(node planner.Node) planner.Node {
	if len(b.commons) == 0 {
		return node
	}
	return &planner.With{Commons: b.commons, Main: node}
}

// cteQuery binds the text of a WITH query.
func (b *binder) cteQuery(c *cte) (*output, error) {
	visible, frame, state := b.ctes, b.frame, c.state
	b.ctes, b.frame, c.state = c.outer, c.frame, cteBinding
	defer func() { b.ctes, b.frame, c.state = visible, frame, state }()
	var out *output
	recursive, err := b.isRecursive(c)
	switch {
	case err != nil:
		return nil, err
	case recursive:
		out, err = b.recursion(c)
	default:
		out, err = b.selectStmt(c.query, nil)
	}
	if err != nil {
		return nil, err
	}
	return out, b.renameFields(c, out.fields)
}

// renameFields applies the column list of a WITH query.
func (b *binder) renameFields(c *cte, fields []arrow.Field) error {
	if len(c.columns) > len(fields) {
		return b.errorAt(sqlstate.InvalidColumnReference, c.location,
			"%q has %d columns, but %d names are given", c.name, len(fields), len(c.columns))
	}
	for i, name := range c.columns {
		fields[i].Name = name
	}
	return nil
}

// cteReference makes a WITH query a FROM entry.
func (b *binder) cteReference(c *cte, r *pgquery.RangeVar) (*source, error) {
	rel := &relation{alias: c.name, location: r.Location}
	if c.state == cteBinding {
		if c.working == nil {
			return nil, b.unsupported(r.Location, "mutual recursion between WITH queries")
		}
		return b.subquery(c.working.scan(), rel, r.Alias)
	}
	if err := b.bindCTE(c); err != nil {
		return nil, err
	}
	if c.common != nil {
		out := &output{node: c.common.Scan(), fields: append([]arrow.Field(nil), c.fields...)}
		return b.subquery(out, rel, r.Alias)
	}
	out, err := b.cteQuery(c)
	if err != nil {
		return nil, err
	}
	return b.subquery(out, rel, r.Alias)
}
