package bind

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/sqlstate"
)

// Explain shows the plan of a statement, and with Analyze runs it.
type Explain struct {
	Statement Statement
	Analyze   bool
	Verbose   bool
	Costs     bool // estimates
	Timing    bool // with Analyze: how long operators take
	Summary   bool // how long planning and execution take
	JSON      bool // instead of text
}

func (*Explain) statement() {}

// explainUnsupported are options of PostgreSQL's that ask for what is not kept.
var explainUnsupported = map[string]bool{
	"buffers": true, "wal": true, "settings": true, "generic_plan": true, "memory": true, "serialize": true,
}

// explain binds EXPLAIN. As in PostgreSQL the last of an option given twice
// counts, and SUMMARY goes with ANALYZE unless said otherwise.
func (b *binder) explain(s *pgquery.ExplainStmt) (*Explain, error) {
	if err := b.onlyFields(s, "query", "options"); err != nil {
		return nil, err
	}
	e := &Explain{Costs: true, Timing: true}
	var timing, summary *pgquery.DefElem
	for _, o := range s.Options {
		def := o.GetDefElem()
		if err := b.explainOption(e, def); err != nil {
			return nil, err
		}
		switch def.Defname {
		case "timing":
			timing = def
		case "summary":
			summary = def
		}
	}
	if timing != nil && e.Timing && !e.Analyze {
		return nil, b.errorAt(sqlstate.InvalidParameter, timing.Location, "EXPLAIN option TIMING requires ANALYZE")
	}
	if summary == nil {
		e.Summary = e.Analyze
	}
	inner, err := b.statement(s.Query)
	if err != nil {
		return nil, err
	}
	switch inner.(type) {
	case *Query, *Insert, *Update, *Delete:
		e.Statement = inner
		return e, nil
	}
	return nil, b.unsupported(-1, "EXPLAIN of this statement")
}

func (b *binder) explainOption(e *Explain, def *pgquery.DefElem) error {
	set := map[string]*bool{
		"analyze": &e.Analyze, "verbose": &e.Verbose, "costs": &e.Costs, "timing": &e.Timing, "summary": &e.Summary,
	}[def.Defname]
	switch {
	case set != nil:
		on, err := b.boolOption(def)
		*set = on
		return err
	case def.Defname == "format":
		return b.explainFormat(e, def)
	case explainUnsupported[def.Defname]:
		return b.unsupported(def.Location, "EXPLAIN option %s", strings.ToUpper(def.Defname))
	}
	err := b.errorAt(sqlstate.SyntaxError, def.Location, "unrecognized EXPLAIN option %q", def.Defname)
	return err.WithHint("The options are ANALYZE, VERBOSE, COSTS, TIMING, SUMMARY and FORMAT.")
}

func (b *binder) explainFormat(e *Explain, def *pgquery.DefElem) error {
	switch name := strings.ToLower(def.GetArg().GetString_().GetSval()); name {
	case "text":
		e.JSON = false
	case "json":
		e.JSON = true
	case "xml", "yaml":
		return b.unsupported(def.Location, "EXPLAIN format %s", strings.ToUpper(name))
	default:
		return b.errorAt(sqlstate.InvalidParameter, def.Location, "unrecognized value for EXPLAIN option \"format\": %q", name).
			WithHint("The formats are TEXT and JSON.")
	}
	return nil
}
