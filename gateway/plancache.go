package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"skein/catalog"
	"skein/exec"
	"skein/flightproto"
	"skein/planner"
	"skein/sql"
)

// Bounds of what a gateway keeps of statements.
const (
	maxStatements = 4096
	// maxTemplates is larger: a statement has one for each set of tablets that its
	// parameters may lead to.
	maxTemplates = 8192
	// maxCachedText is the largest statement that is kept.
	maxCachedText = 16 << 10
	// treeFactor estimates the memory of a bound statement from its text.
	treeFactor    = 32
	statementBase = 4 << 10
	// growth is by what factor the rows of a table may change before its plans are
	// made anew.
	growth = 2
	// fewRows is a size below which growth changes no plan.
	fewRows = 1000
)

// planCache keeps bound statements by their text, and distributed plans by
// statement and tablets, both with their parameters open. What it holds is good
// for one metadata version. It is safe for concurrent use.
type planCache struct {
	statements *flightproto.Cache[string, *statement]
	templates  *flightproto.Cache[templateKey, *template]

	hits, misses, custom atomic.Uint64 // of executions that asked for a template
}

func newPlanCache(bytes int64) *planCache {
	return &planCache{
		statements: flightproto.NewCache[string, *statement](maxStatements, bytes/2),
		templates:  flightproto.NewCache[templateKey, *template](maxTemplates, bytes/2),
	}
}

// templateKey names a template: the plan of a statement over certain tablets.
type templateKey struct {
	open    *openPlan
	tablets string
}

// statementKey names a statement: its text and what names in it mean.
func statementKey(in *scope, text string) string {
	if in.key == "" {
		return text
	}
	return in.key + "\x01" + text
}

// statement returns the kept statement of a text in a scope, if it was bound
// against that metadata version.
func (c *planCache) statement(in *scope, text string, version uint64) (*statement, bool) {
	st, ok := c.statements.Get(statementKey(in, text))
	if !ok || st.version != version {
		return nil, false
	}
	return st, true
}

// keep stores a bound statement. Those that define tables are run once.
func (c *planCache) keep(st *statement) {
	switch st.bound.Statement.(type) {
	case *sql.Query, *sql.Insert, *sql.Update, *sql.Delete:
		if len(st.text) <= maxCachedText {
			c.statements.Put(statementKey(st.scope, st.text), st, statementBase+treeFactor*int64(len(st.text)))
		}
	}
}

// openPlan is a query's tree, optimized with its parameters open.
type openPlan struct {
	root   planner.Node
	steers bool // parameters decide what the best plan is
	sizes  []tableSize
	// fresh is the newest snapshot whose sizes were near enough to sizes.
	fresh atomic.Pointer[snapshot]
}

// tableSize is the number of rows that a table was thought to have.
type tableSize struct {
	table catalog.TableID
	rows  uint64
}

// open returns the tree of a query, optimized anew when tables have grown or
// shrunk much since it was.
func (s *sqlService) open(st *statement, q *sql.Query, snap *snapshot) (*openPlan, error) {
	if o := st.opened.Load(); o != nil && o.stillGood(snap) {
		return o, nil
	}
	root, err := planner.Optimize(q.Node, snap)
	if err != nil {
		return nil, fmt.Errorf("optimizing the plan: %w", err)
	}
	o := &openPlan{root: root, steers: planner.ParamsSteer(root)}
	for _, t := range scanned(root, nil) {
		o.sizes = append(o.sizes, tableSize{t.ID, snap.stats[t.ID].Rows})
	}
	o.fresh.Store(snap)
	st.opened.Store(o)
	return o, nil
}

func (o *openPlan) stillGood(snap *snapshot) bool {
	if o.fresh.Load() == snap {
		return true
	}
	for _, size := range o.sizes {
		rows := snap.stats[size.table].Rows
		if rows > growth*max(size.rows, fewRows) || size.rows > growth*max(rows, fewRows) {
			return false
		}
	}
	o.fresh.Store(snap)
	return true
}

// job is one query to run: a plan template with values for its parameters or,
// where there is none, a tree without parameters.
type job struct {
	root     planner.Node
	template *template
	values   []*planner.Literal // by ordinal, for a template
}

// bind gives a template's parameters their values; nil without a template.
func (j *job) bind() planner.Binder {
	if j.values == nil {
		return nil
	}
	return exec.Binder(j.values)
}

// job makes a query ready to run with one set of parameters.
func (s *sqlService) job(st *statement, q *sql.Query, set []*planner.Literal) (*job, error) {
	snap := s.gw.directory.Current()
	if st.version != snap.Version() || !st.bound.Templatable() {
		return s.customJob(st, set)
	}
	open, err := s.open(st, q, snap)
	if err != nil {
		return nil, err
	}
	if open.steers {
		return s.customJob(st, set)
	}
	j := &job{root: open.root}
	if j.values, err = st.bound.Arguments(set); err != nil {
		return nil, err
	}
	j.template, err = s.template(open, j, snap, st)
	return j, err
}

// customJob plans a query for these values only.
func (s *sqlService) customJob(st *statement, set []*planner.Literal) (*job, error) {
	s.plans.custom.Add(1)
	bound, err := st.with(set)
	if err != nil {
		return nil, err
	}
	root, err := s.optimize(bound.(*sql.Query).Node)
	return &job{root: root}, err
}

// template finds or makes the plan of a job.
func (s *sqlService) template(open *openPlan, j *job, snap *snapshot, st *statement) (*template, error) {
	bind := j.bind()
	tablets, err := planner.PrunedTablets(open.root, bind, snap)
	if err != nil {
		return nil, fmt.Errorf("choosing tablets: %w", err)
	}
	key := templateKey{open: open, tablets: tabletsKey(tablets)}
	if t, ok := s.plans.templates.Get(key); ok {
		s.plans.hits.Add(1)
		return t, nil
	}
	s.plans.misses.Add(1)
	t, err := s.gw.newTemplate(open.root, bind, snap, st.schema())
	if err != nil {
		return nil, err
	}
	if _, err := t.place(s.gw.workers, snap); err != nil {
		return nil, err
	}
	s.plans.templates.Put(key, t, t.bytes())
	return t, nil
}

func tabletsKey(list []catalog.TabletID) string {
	if len(list) == 0 {
		return ""
	}
	key := make([]byte, 0, 8*len(list))
	for _, id := range list {
		key = binary.LittleEndian.AppendUint64(key, uint64(id))
	}
	return string(key)
}

// compile parses and binds a request that must hold exactly one statement, or
// finds it among those kept.
func (s *sqlService) compile(ctx context.Context, text string) (*statement, error) {
	in, err := s.scope(ctx)
	if err != nil {
		return nil, err
	}
	return s.compileIn(ctx, in, text)
}

// compileIn is compile for what names mean in a scope.
func (s *sqlService) compileIn(ctx context.Context, in *scope, text string) (*statement, error) {
	version := s.gw.directory.Current().Version()
	if st, ok := s.plans.statement(in, text, version); ok {
		return st, nil
	}
	st, err := s.bind(ctx, in, text, version)
	if err == nil {
		s.plans.keep(st)
	}
	return st, err
}
