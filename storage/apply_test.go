package storage

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func TestRepeatedStepsAnswerAlike(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	seg := encoded(t, tab.Table(), intsBatch(1, 2, 3))
	stage := stages("a", 0, seg)[0]
	for range 2 {
		mustOutcome(t, tab, Staged, stage)
	}
	for range 2 {
		mustOutcome(t, tab, Prepared, Prepare{Txn: "a", Segments: 1, Primary: testTablet})
	}
	mustOutcome(t, tab, Prepared, stage)
	for range 2 {
		r := mustOutcome(t, tab, Committed, Commit{Txn: "a", Segments: 1, Timestamp: 10})[0]
		if r.Rows != 3 || r.Timestamp != 10 {
			t.Fatalf("result %+v", r)
		}
	}
	late := mustOutcome(t, tab, Committed, stage, Prepare{Txn: "a", Segments: 1}, Resolve{Txn: "a"})
	if late[2].Timestamp != 10 {
		t.Errorf("resolved to %+v", late[2])
	}
	r := apply(t, tab, Abort{Txn: "a"})[0]
	if r.Outcome != Committed || sqlstate.CodeOf(r.Err) != sqlstate.UnknownTxnOutcome {
		t.Errorf("aborting a committed transaction: %+v", r)
	}
	if tab.Rows() != 3 {
		t.Errorf("%d rows", tab.Rows())
	}
}

func TestRefusedSteps(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	seg := func(keys ...int64) *Segment { return encoded(t, tab.Table(), intsBatch(keys...)) }
	other := encoded(t, tableOf(nil, catalog.Text), batchOf(columnar.NewConst(catalog.Text, []byte("x"), 1)))
	mustOutcome(t, tab, Staged, stages("short", 0, seg(1))...)
	mustOutcome(t, tab, Staged, stages("hole", 1, seg(2))...)
	mustOutcome(t, tab, Staged, stages("fixed", 0, seg(3))...)
	mustOutcome(t, tab, Prepared, Prepare{Txn: "fixed", Segments: 1, Primary: 99})
	for name, tc := range map[string]struct {
		command Command
		want    Outcome
		code    sqlstate.Code
	}{
		"fewer staged than promised":   {Commit{Txn: "short", Segments: 2, Timestamp: 1}, Aborted, sqlstate.ProtocolViolation},
		"missing segment":              {Prepare{Txn: "hole", Segments: 1}, Aborted, sqlstate.ProtocolViolation},
		"prepared with another number": {Commit{Txn: "fixed", Segments: 2, Timestamp: 1}, Prepared, sqlstate.ProtocolViolation},
		"prepared without a timestamp": {Commit{Txn: "fixed", Segments: 1}, Prepared, sqlstate.ProtocolViolation},
		"staging after prepare":        {stages("fixed", 1, seg(4))[0], Prepared, sqlstate.ProtocolViolation},
		"unknown transaction":          {Commit{Txn: "new", Segments: 1, Timestamp: 1}, Aborted, sqlstate.ProtocolViolation},
		"another table's segment":      {stages("alien", 0, other)[0], Aborted, sqlstate.ProtocolViolation},
		"garbage":                      {Stage{Txn: "junk", Parts: 1, Data: []byte("junk")}, Aborted, sqlstate.ProtocolViolation},
		"part out of range":            {Stage{Txn: "part", Part: 1, Parts: 1, Data: []byte("x")}, Aborted, sqlstate.ProtocolViolation},
		"too many segments":            {Stage{Txn: "many", Seq: maxSegments, Parts: 1, Data: []byte("x")}, Aborted, sqlstate.ProgramLimitExceeded},
	} {
		r := apply(t, tab, tc.command)[0]
		if r.Outcome != tc.want || r.Err == nil || r.Err.Code != tc.code {
			t.Errorf("%s: %s, %v; want %s, code %s", name, r.Outcome, r.Err, tc.want, tc.code)
		}
	}
	mustOutcome(t, tab, Committed, Commit{Txn: "fixed", Segments: 1, Timestamp: 2})
	if got := keysAt(t, tab, 2); !slices.Equal(got, []int64{3}) {
		t.Errorf("rows %v", got)
	}
}

func TestDuplicateKeys(t *testing.T) {
	table := tableOf([]int{1, 0}, catalog.BigInt, catalog.Text)
	table.Columns[1].Name = "Name"
	row := func(pairs ...any) *columnar.Batch {
		nums, err := columnar.NewBuilder(catalog.BigInt)
		if err != nil {
			t.Fatal(err)
		}
		names, err := columnar.NewBuilder(catalog.Text)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(pairs); i += 2 {
			columnar.AppendFixed(nums, int64(pairs[i].(int)))
			if err := names.AppendBytes([]byte(pairs[i+1].(string))); err != nil {
				t.Fatal(err)
			}
		}
		return batchOf(nums.Finish(), names.Finish())
	}
	tab := mustTablet(t, openTest(t, t.TempDir()), table)
	if r := insert(t, tab, "base", 1, row(1, "a", 2, "b", 1, "b")); r.Outcome != Committed {
		t.Fatal(r.Err)
	}
	r := insert(t, tab, "dup", 2, row(5, "x", 2, "b", 1, "b"))
	if r.Outcome != Aborted || r.Err.Code != sqlstate.UniqueViolation {
		t.Fatalf("%+v", r)
	}
	if want := `duplicate key value violates unique constraint "t_pkey"`; r.Err.Message != want {
		t.Errorf("message %q", r.Err.Message)
	}
	if want := `Key ("Name", c0)=(b, 1) already exists.`; r.Err.Detail != want {
		t.Errorf("detail %q", r.Err.Detail)
	}
	if again := insert(t, tab, "dup", 2, row(9, "z")); again.Err == nil || *again.Err != *r.Err {
		t.Errorf("repeated: %v", again.Err)
	}
	if r := insert(t, tab, "self", 2, row(7, "x", 8, "x", 7, "x")); sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
		t.Errorf("twice in one segment: %+v", r)
	}
	mustOutcome(t, tab, Staged, stages("two", 0, encoded(t, table, row(7, "x")))...)
	mustOutcome(t, tab, Staged, stages("two", 1, encoded(t, table, row(7, "x", 6, "x")))...)
	if r := apply(t, tab, Prepare{Txn: "two", Segments: 2})[0]; sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
		t.Errorf("twice in one transaction: %+v", r)
	}
	mustOutcome(t, tab, Staged, stages("held", 0, encoded(t, table, row(7, "x")))...)
	mustOutcome(t, tab, Prepared, Prepare{Txn: "held", Segments: 1, Primary: 1})
	if r := insert(t, tab, "late", 3, row(7, "x")); sqlstate.CodeOf(r.Err) != sqlstate.SerializationFailure {
		t.Errorf("held by a prepared transaction: %+v", r)
	}
	mustOutcome(t, tab, Aborted, Abort{Txn: "held"})
	if r := insert(t, tab, "later", 3, row(7, "x")); r.Outcome != Committed {
		t.Errorf("after the holder aborted: %+v", r)
	}
}

func TestLargeSegmentsWithInterleavedKeys(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	keys := make([]int64, 20000)
	commit := func(txn string, extra ...int64) Result {
		all := append(slices.Clone(keys), extra...)
		mustOutcome(t, tab, Staged, stages(txn, 0, encoded(t, tab.Table(), intsBatch(all...)))...)
		return apply(t, tab, Commit{Txn: txn, Segments: 1, Timestamp: 1})[0]
	}
	for lane := range int64(3) {
		for i := range keys {
			keys[i] = int64((i*7919)%len(keys))*3 + lane // shuffled
		}
		if r := commit(fmt.Sprint("lane", lane)); r.Outcome != Committed {
			t.Fatal(r.Err)
		}
	}
	for i := range keys {
		keys[i] = int64(i)*2 + 100_000
	}
	r := commit("clash", 30_001, 50_003)
	if sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation || r.Err.Detail != "Key (c0)=(30001) already exists." {
		t.Errorf("%+v", r)
	}
}

func TestResolve(t *testing.T) {
	s := openTest(t, t.TempDir())
	tab := mustTablet(t, s, intsTable())
	prepare := func(txn string, key int64, primary catalog.TabletID) {
		mustOutcome(t, tab, Staged, stages(txn, 0, encoded(t, tab.Table(), intsBatch(key)))...)
		mustOutcome(t, tab, Prepared, Prepare{Txn: txn, Segments: 1, Primary: primary, Floor: 20})
	}
	prepare("mine", 1, testTablet)
	prepare("theirs", 2, 77)
	mustOutcome(t, tab, Prepared, Resolve{Txn: "theirs"})
	if r := apply(t, tab, Resolve{Txn: "mine"}, Resolve{Txn: "never seen"}); r[0].Outcome != Aborted || r[1].Outcome != Aborted || r[0].Err != nil {
		t.Errorf("%+v", r)
	}
	r := apply(t, tab, Commit{Txn: "mine", Segments: 1, Timestamp: 30}, Prepare{Txn: "never seen"})
	for i := range r {
		if r[i].Outcome != Aborted || sqlstate.CodeOf(r[i].Err) != sqlstate.SerializationFailure {
			t.Errorf("after the abort was recorded: %+v", r[i])
		}
	}
	want := []InDoubt{{Txn: "theirs", Primary: 77, Segments: 1, Floor: 20}}
	if got := tab.InDoubt(); !slices.Equal(got, want) {
		t.Errorf("in doubt: %+v", got)
	}
	if _, err := tab.Snapshot(20); err != nil {
		t.Errorf("at the floor: %v", err)
	}
	var doubt *InDoubtError
	if _, err := tab.Snapshot(21); !errors.As(err, &doubt) || !slices.Equal(doubt.Txns, want) {
		t.Errorf("above the floor: %v", err)
	}
	mustOutcome(t, tab, Committed, Commit{Txn: "theirs", Segments: 1, Timestamp: 25})
	if got := keysAt(t, tab, 24); len(got) != 0 {
		t.Errorf("before the commit: %v", got)
	}
	if got := keysAt(t, tab, 25); !slices.Equal(got, []int64{2}) {
		t.Errorf("after the commit: %v", got)
	}
}

func TestOutcomesAreForgottenByLogOrder(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	tab := mustTablet(t, s, intsTable())
	if r := insert(t, tab, "first", 1, intsBatch(1)); r.Outcome != Committed {
		t.Fatal(r.Err)
	}
	var batch []Command
	for i := range maxFinished {
		batch = append(batch, Abort{Txn: fmt.Sprint(i)})
		if len(batch) == 8192 {
			mustOutcome(t, tab, Aborted, batch...)
			batch = nil
		}
	}
	if n := len(tab.state.finished); n != maxFinished || len(tab.state.order) != n {
		t.Fatalf("%d outcomes", n)
	}
	if _, ok := tab.state.finished["first"]; ok {
		t.Error("the oldest outcome is still known")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustTablet(t, openTest(t, dir), intsTable())
	if !slices.Equal(again.state.order, tab.state.order) || again.state.counters != tab.state.counters {
		t.Error("the outcomes differ after opening again")
	}
}

func TestCommandRoundTrip(t *testing.T) {
	for _, c := range []Command{
		Stage{Txn: "a", Seq: 1, Part: 2, Parts: 3, Data: []byte("data")},
		Prepare{Txn: "b", Segments: 4, Primary: 5, Floor: 6},
		Commit{Txn: "c", Segments: 7, Timestamp: 1 << 60, Inline: []byte("inline")},
		Abort{Txn: "d"},
		Resolve{Txn: "e"},
		Stage{Txn: "f", Parts: 1, Data: []byte("x"), OnConflict: OnConflictReplace},
		StageDelete{Txn: "g", Seq: 3, Snapshot: 1 << 61, Rows: []uint64{5, 4, 1 << 63, 0}},
		Truncate{Txn: "h", Timestamp: 9},
		Prepare{Txn: "i", Deletes: 2},
		Commit{Txn: "j", Timestamp: 1, OnConflict: OnConflictIgnore, Deletes: 8, InlineDelete: []uint64{1, 2}},
	} {
		b, err := EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeCommand(b)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c) {
			t.Errorf("%T: %+v, %v", c, got, err)
		}
		for i := range b {
			damaged := slices.Clone(b)
			damaged[i] ^= 4
			if _, err := DecodeCommand(damaged); err == nil {
				t.Errorf("%T: damage at byte %d is not noticed", c, i)
			}
			if _, err := DecodeCommand(b[:i]); err == nil {
				t.Errorf("%T: truncation to %d bytes is not noticed", c, i)
			}
		}
	}
	for _, bad := range []Command{
		Abort{}, Stage{Txn: "a", OnConflict: 3}, StageDelete{Txn: "a", Rows: make([]uint64, MaxDeleteRows+1)},
	} {
		if _, err := EncodeCommand(bad); err == nil {
			t.Errorf("%T was encoded", bad)
		}
	}
}

func TestResultRoundTrip(t *testing.T) {
	for _, r := range []Result{
		{Outcome: Committed, Timestamp: 1 << 50, Rows: 9, Inserted: 4, Replaced: 5, Ignored: 6, Deleted: 7},
		{Outcome: Aborted, Err: sqlstate.New(sqlstate.UniqueViolation, "m").WithDetail("d").WithHint("h")},
	} {
		got, err := DecodeResult(EncodeResult(r))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
			t.Errorf("%+v, %v; want %+v", got, err, r)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range []Command{Stage{Txn: "a", Parts: 1, Data: []byte("x")}, Prepare{Txn: "b"}, Commit{Txn: "c"}, Abort{Txn: "d"}, StageDelete{Txn: "e", Rows: []uint64{3, 1}}, Truncate{Txn: "f"}} {
		b, err := EncodeCommand(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		if again, err := EncodeCommand(c); err != nil || string(again) != string(b) {
			t.Fatalf("%+v encodes to other bytes: %v", c, err)
		}
	})
}
