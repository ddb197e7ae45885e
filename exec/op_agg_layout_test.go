package exec

import (
	"context"
	"testing"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// TestGroupsOfChangingLayouts groups by a text column whose batches come with
// and without a dictionary in the same reused vector, as a join gathers them.
func TestGroupsOfChangingLayouts(t *testing.T) {
	g := newGenerator(4)
	schema := opSchema(catalog.Text)
	calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt, Name: "n"}}
	var batches []*columnar.Batch
	var rows []row
	reused := &columnar.Vector{}
	for i := range 6 {
		v := g.plain(catalog.Text, 1000+100*i)
		if i%2 == 0 {
			v = g.dictionary(catalog.Text, 1000+100*i)
		}
		batches = append(batches, &columnar.Batch{Cols: []*columnar.Vector{v}, Len: v.Len})
		rows = append(rows, rowsOf(batches[i])...)
	}
	source := &gatheringOp{memOp: memOp{schema: schema, batches: batches}, reused: reused}
	agg := must(aggFragment([]Operator{source}, []int{0}, calls, nil))
	equalTexts(t, sortedTexts(drain(t, agg)), sortedTexts(naiveGroups(rows, schema, []int{0}, calls)))
}

// gatheringOp puts every batch of one column into the same vector.
type gatheringOp struct {
	memOp
	reused *columnar.Vector
}

func (o *gatheringOp) Next(ctx context.Context) (*columnar.Batch, error) {
	b, err := o.memOp.Next(ctx)
	if b == nil || err != nil {
		return nil, err
	}
	sel := make([]int32, b.Len)
	for i := range sel {
		sel[i] = int32(i)
	}
	o.reused = columnar.Gather(b.Cols[0], sel, o.reused)
	return &columnar.Batch{Cols: []*columnar.Vector{o.reused}, Len: b.Len}, nil
}
