package gateway

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/sql"
)

// heldRows are the rows of a RETURNING clause. They are held in memory, within
// the query memory of the gateway, until the client fetches them: it must get
// them whole, and only once the transaction is committed. A nil one holds
// nothing and takes nothing.
type heldRows struct {
	evals   []*exec.Evaluator
	batches []*columnar.Batch
	rows    int64
	memory  *exec.Account
	more    []*exec.Account // of joined ones
}

// returning prepares the statement's RETURNING over rows with the given public
// fields.
func (c *change) returning(r *sql.Returning, fields []arrow.Field) error {
	if r == nil {
		return nil
	}
	physical := make([]arrow.Field, len(fields))
	for i, f := range fields {
		physical[i] = arrow.Field{Name: f.Name, Type: catalog.PhysicalType(f.Type), Nullable: f.Nullable}
	}
	schema := arrow.NewSchema(physical, nil)
	held := c.result
	if held == nil {
		held = &heldRows{memory: exec.NewBudget("query", c.s.gw.queryMemory(c.memory), c.s.gw.budget).Account("RETURNING")}
	}
	held.evals = nil // those of another set of parameters
	for _, e := range r.Exprs {
		eval, err := exec.Compile(e, schema)
		if err != nil {
			return fmt.Errorf("compiling RETURNING: %w", err)
		}
		held.evals = append(held.evals, eval)
	}
	c.result = held
	return nil
}

// tableFields are a table's columns as fields.
func tableFields(t *catalog.Table) []arrow.Field { return t.ArrowSchema().Fields() }

// add computes the result of some rows. They are the caller's again afterwards.
func (h *heldRows) add(b *columnar.Batch) error {
	if h == nil || b.Rows() == 0 {
		return nil
	}
	out := &columnar.Batch{Len: b.Len, Sel: b.Sel, Cols: make([]*columnar.Vector, len(h.evals))}
	for i, eval := range h.evals {
		v, err := eval.Eval(b)
		if err != nil {
			return err
		}
		out.Cols[i] = v
	}
	out = out.Clone()
	if err := h.memory.Reserve(vectorBytes(out.Cols)); err != nil {
		return err
	}
	h.batches = append(h.batches, out)
	h.rows += int64(out.Rows())
	return nil
}

// vectorBytes is about how much memory vectors hold.
func vectorBytes(vectors []*columnar.Vector) int64 {
	total := int64(0)
	for _, v := range vectors {
		total += int64(64 + len(v.Valid) + len(v.Data) + 4*len(v.Offsets) + 4*len(v.Codes))
		if v.Dict != nil {
			total += vectorBytes([]*columnar.Vector{v.Dict})
		}
		total += vectorBytes(v.Children)
	}
	return total
}

// join appends the rows of other, whose memory it takes over.
func (h *heldRows) join(other *heldRows) *heldRows {
	switch {
	case h == nil:
		return other
	case other == nil:
		return h
	}
	h.batches = append(h.batches, other.batches...)
	h.rows += other.rows
	h.more = append(h.more, other.memory)
	h.more = append(h.more, other.more...)
	return h
}

// close gives the memory back. Repeating it is fine.
func (h *heldRows) close() {
	if h == nil {
		return
	}
	h.memory.Close()
	for _, m := range h.more {
		m.Close()
	}
	h.batches = nil
}
