package planner

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// validator checks trees; params says whether parameters may still be unbound.
type validator struct {
	params  bool
	commons map[CommonID][]arrow.Field // those that may be read
	working map[CommonID][]arrow.Field // of the recursions around
}

func newValidator(params bool) validator {
	return validator{params: params, commons: make(map[CommonID][]arrow.Field), working: make(map[CommonID][]arrow.Field)}
}

func (v validator) with(n *With) ([]arrow.Field, error) {
	for _, c := range n.Commons {
		if _, taken := v.commons[c.ID]; taken {
			return nil, invalid("there are two common tables %d", c.ID)
		}
		fields, err := v.input(c.Input, "common table")
		if err != nil {
			return nil, err
		}
		v.commons[c.ID] = fields
	}
	return v.input(n.Main, "query with common tables")
}

func (v validator) commonScan(n *CommonScan) ([]arrow.Field, error) {
	fields, ok := v.commons[n.ID]
	if !ok {
		return nil, invalid("there is no common table %d before what reads it", n.ID)
	}
	if err := sameColumnTypes("scan of a common table", n.Fields.Fields(), fields); err != nil {
		return nil, err
	}
	for _, c := range n.Columns {
		if c < 0 || c >= len(fields) {
			return nil, invalid("scan of a common table reads column %d of %d", c, len(fields))
		}
	}
	return n.fields(), nil
}

func (v validator) recursive(n *Recursive) ([]arrow.Field, error) {
	seed, err := v.input(n.Seed, "recursion")
	if err != nil {
		return nil, err
	}
	fields := n.Fields.Fields()
	if err := sameColumnTypes("seed of a recursion", seed, fields); err != nil {
		return nil, err
	}
	v.working[n.ID] = fields
	step, err := v.input(n.Step, "recursion")
	delete(v.working, n.ID)
	if err != nil {
		return nil, err
	}
	return fields, sameColumnTypes("step of a recursion", step, fields)
}

func (v validator) workingScan(n *WorkingScan) ([]arrow.Field, error) {
	fields, ok := v.working[n.ID]
	if !ok {
		return nil, invalid("working table %d is read outside its recursion", n.ID)
	}
	return n.Fields.Fields(), sameColumnTypes("scan of a working table", n.Fields.Fields(), fields)
}

func sameColumnTypes(what string, got, want []arrow.Field) error {
	if len(got) != len(want) {
		return invalid("%s has %d columns instead of %d", what, len(got), len(want))
	}
	for i := range want {
		if !arrow.TypeEqual(got[i].Type, want[i].Type) {
			return invalid("%s: column %d is %s instead of %s", what, i+1, catalog.TypeName(got[i].Type), catalog.TypeName(want[i].Type))
		}
	}
	return nil
}
