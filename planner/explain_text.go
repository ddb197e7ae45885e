package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Text draws an explanation stage by stage. Times are in milliseconds.
func (x *Explained) Text() string {
	t := &explainText{}
	t.line(0, "Plan: %d stages, %d fragments, %d exchanges, metadata version %d", len(x.Stages), x.FragmentCount, x.ExchangeCount, x.MetadataVersion)
	for _, s := range x.Stages {
		t.stage(s)
	}
	return t.b.String()
}

type explainText struct{ b strings.Builder }

func (t *explainText) line(depth int, format string, args ...any) {
	t.b.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&t.b, format, args...)
	t.b.WriteByte('\n')
}

func (t *explainText) stage(s *ExplainedStage) {
	head := fmt.Sprintf("Stage %d on the gateway", s.ID)
	if s.Place != "gateway" {
		head = fmt.Sprintf("Stage %d on %s %s", s.ID, plural("tablet", len(s.Tablets)), ranges(s.Tablets))
		if len(s.Workers) > 0 {
			workers := slices.Clone(s.Workers)
			slices.Sort(workers)
			head += " at " + strings.Join(slices.Compact(workers), ", ")
		}
	}
	head += fmt.Sprintf(": %s %s", plural("fragment", len(s.Fragments)), ranges(s.Fragments))
	if s.EstimatedRows != nil {
		head += fmt.Sprintf(", %d rows, %d bytes", *s.EstimatedRows, *s.EstimatedSize)
	}
	t.line(0, "%s", head)
	for _, x := range s.Sends {
		t.line(1, "-> stage %d: %s [%s]", x.To, exchangeText(x.Kind, x.Keys), strings.Join(x.Columns, ", "))
	}
	if a := s.Actual; a != nil {
		t.line(1, "actual: %s%s memory=%s", ranOf(a.Ran, len(s.Fragments)), msText(" time=", a.Time), sizeText(a.Memory))
		for _, f := range a.Fragments {
			t.fragment(f)
		}
	}
	t.operator(1, s.Root, len(s.Fragments))
}

func ranOf(ran, all int) string {
	if ran == all {
		return "all fragments ran,"
	}
	return fmt.Sprintf("%d of %d fragments ran,", ran, all)
}

func (t *explainText) fragment(f *ActualFragment) {
	where := "the gateway"
	if f.Node != 0 {
		where = fmt.Sprintf("tablet %d, node %d", f.Tablet, f.Node)
	}
	t.line(2, "fragment %d on %s: rows=%d%s%s memory=%s spilled=%s received=%s", f.Fragment, where, f.Rows,
		msText(" time=", f.Time), msText(" cpu=", f.CPU), sizeText(f.Memory), sizeText(f.Spilled), sizeText(f.Received))
}

func (t *explainText) operator(depth int, op *ExplainedOperator, fragments int) {
	s := op.Name
	if op.From > 0 {
		s += fmt.Sprintf(" from stage %d:", op.From)
	}
	if op.Detail != "" {
		s += " " + op.Detail
	}
	if op.EstimatedRows != nil {
		s += fmt.Sprintf(" (rows=%d)", *op.EstimatedRows)
	}
	if op.Actual != nil {
		s += " " + actualText(op.Actual)
	}
	t.line(depth, "%s", s)
	if op.Actual != nil {
		t.details(depth+2, op.Actual, fragments)
	}
	for _, in := range op.Inputs {
		t.operator(depth+1, in, fragments)
	}
}

func actualText(a *ActualOperator) string {
	if a.Ran == 0 {
		return "(never run)"
	}
	s := fmt.Sprintf("(actual rows=%d", a.Rows)
	if a.RowsIn != nil {
		s += fmt.Sprintf(" in=%d", *a.RowsIn)
	}
	return s + fmt.Sprintf(" batches=%d parts=%d%s%s%s%s)", a.Batches, a.Parts,
		msText(" time=", a.Time), msText(" self=", a.Self), msText(" cpu=", a.CPU), msText(" total cpu=", a.TotalCPU))
}

// details are the lines below an operator about what not every operator has.
func (t *explainText) details(depth int, a *ActualOperator, fragments int) {
	if a.Scan != nil {
		t.line(depth, "read %d rows; skipped %d of %d segments, %d of %d blocks", a.Scan.Rows,
			a.Scan.SegmentsSkipped, a.Scan.Segments, a.Scan.BlocksSkipped, a.Scan.Blocks)
	}
	if a.Filtered > 0 {
		t.line(depth, "filter removed %d rows", a.Filtered)
	}
	if a.Dropped > 0 {
		t.line(depth, "runtime filters dropped %d rows", a.Dropped)
	}
	if a.Received > 0 {
		t.line(depth, "received %s", sizeText(a.Received))
	}
	if a.Memory > 0 {
		t.line(depth, "memory %s%s", sizeText(a.Memory), a.MemorySpread.text(" per fragment", func(v float64) string { return sizeText(int64(v)) }))
	}
	if a.Spilled > 0 {
		t.line(depth, "spilled %s", sizeText(a.Spilled))
	}
	if a.RowSpread != nil && a.Ran > 0 {
		whole := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
		s := a.RowSpread.text("", func(v float64) string { return whole(float64(int64(v*10)) / 10) })
		if a.TimeSpread != nil {
			s += ", time" + a.TimeSpread.text("", func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) })
		}
		if a.Ran < fragments {
			s += fmt.Sprintf(", run in %d of %d", a.Ran, fragments)
		}
		t.line(depth, "per fragment: rows%s", s)
	}
}

// text prints a spread, nothing for none.
func (s *Spread) text(what string, one func(float64) string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s min %s avg %s max %s", what, one(s.Min), one(s.Avg), one(s.Max))
}

func msText(name string, ms *float64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf("%s%.3f", name, *ms)
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// ranges prints ids, runs of consecutive ones shortened.
func ranges[T ~uint32 | ~uint64](ids []T) string {
	var parts []string
	for i := 0; i < len(ids); {
		k := i
		for k+1 < len(ids) && ids[k+1] == ids[k]+1 {
			k++
		}
		switch k - i {
		case 0:
			parts = append(parts, fmt.Sprint(ids[i]))
		case 1:
			parts = append(parts, fmt.Sprint(ids[i]), fmt.Sprint(ids[k]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[k]))
		}
		i = k + 1
	}
	return strings.Join(parts, ", ")
}
