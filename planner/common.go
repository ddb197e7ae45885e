package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// CommonID names a common table, and the working table of a recursion, within
// one tree.
type CommonID int

// With is the rows of Main, in which CommonScans may refer to the Commons. A
// Common may refer to those before it. With is only at the root of a tree.
type With struct {
	Commons []*Common
	Main    Node
}

// Common is a subtree that is computed once, however often it is read.
type Common struct {
	ID    CommonID
	Name  string // for display, "" if the query has no name for it
	Input Node
	// Keep says that the statement asks for it to be computed on its own (AS
	// MATERIALIZED): it is never merged into what reads it.
	Keep bool
}

// CommonScan reads a Common. Fields are all columns of the Common; the output is
// Columns, ordinals of these.
type CommonScan struct {
	ID      CommonID
	Name    string
	Fields  *arrow.Schema
	Columns []int
}

// Recursive is the rows of Seed and, again and again until there are none, those
// of Step over the rows of the round before, which Step reads by WorkingScans of
// the same ID. With Distinct, rows that there have been already are left out.
// The columns of Seed and Step have the types of Fields.
type Recursive struct {
	ID       CommonID
	Name     string // for display
	Seed     Node
	Step     Node
	Distinct bool
	Fields   *arrow.Schema
}

// WorkingScan reads the rows of a recursion's last round, within its Step.
type WorkingScan struct {
	ID     CommonID
	Name   string
	Fields *arrow.Schema
}

// Schema is Main's.
func (n *With) Schema() *arrow.Schema { return n.Main.Schema() }

// Inputs are the common tables, then Main.
func (n *With) Inputs() []Node {
	inputs := make([]Node, 0, len(n.Commons)+1)
	for _, c := range n.Commons {
		inputs = append(inputs, c.Input)
	}
	return append(inputs, n.Main)
}

// Schema is the Columns of Fields.
func (n *CommonScan) Schema() *arrow.Schema { return arrow.NewSchema(outputFields(n), nil) }

// Inputs is empty.
func (n *CommonScan) Inputs() []Node { return nil }

// Schema is Fields.
func (n *Recursive) Schema() *arrow.Schema { return n.Fields }

// Inputs are the seed and the step.
func (n *Recursive) Inputs() []Node { return []Node{n.Seed, n.Step} }

// Schema is Fields.
func (n *WorkingScan) Schema() *arrow.Schema { return n.Fields }

// Inputs is empty.
func (n *WorkingScan) Inputs() []Node { return nil }

// Scan is a CommonScan of all columns.
func (c *Common) Scan() *CommonScan {
	scan := &CommonScan{ID: c.ID, Name: c.Name, Fields: c.Input.Schema()}
	for i := range scan.Fields.NumFields() {
		scan.Columns = append(scan.Columns, i)
	}
	return scan
}

// fields are the columns that the scan outputs.
func (n *CommonScan) fields() []arrow.Field {
	all := n.Fields.Fields()
	fields := make([]arrow.Field, len(n.Columns))
	for i, c := range n.Columns {
		fields[i] = all[c]
	}
	return fields
}

// withInputs replaces the common tables' inputs and Main.
func (n *With) withInputs(inputs []Node) *With {
	out := &With{Main: inputs[len(inputs)-1]}
	for i, c := range n.Commons {
		copied := *c
		copied.Input = inputs[i]
		out.Commons = append(out.Commons, &copied)
	}
	return out
}

// references counts the CommonScans of a tree by what they read.
func references(n Node, counts map[CommonID]int) {
	if scan, ok := n.(*CommonScan); ok {
		counts[scan.ID]++
	}
	for _, in := range n.Inputs() {
		references(in, counts)
	}
}

// readsWorking reports whether a subtree reads the working table of a
// recursion.
func readsWorking(n Node, id CommonID) bool {
	if w, ok := n.(*WorkingScan); ok && w.ID == id {
		return true
	}
	return slices.ContainsFunc(n.Inputs(), func(in Node) bool { return readsWorking(in, id) })
}

// mapNodes rebuilds a tree from its leaves up; replace gets each node with its
// inputs replaced.
func mapNodes(n Node, replace func(Node) Node) Node {
	inputs := n.Inputs()
	if len(inputs) > 0 {
		built := make([]Node, len(inputs))
		same := true
		for i, in := range inputs {
			built[i] = mapNodes(in, replace)
			same = same && built[i] == in
		}
		if !same {
			n = withInputs(n, built)
		}
	}
	return replace(n)
}
