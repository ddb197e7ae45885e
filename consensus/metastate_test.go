package consensus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/sqlstate"
)

// plainTable is a minimal unpartitioned table.
func plainTable(name string, replicas int) *catalog.Table {
	return &catalog.Table{
		Schema: catalog.DefaultSchema, Name: name, Replicas: replicas,
		Columns:      []catalog.Column{{Name: "k", Type: catalog.BigInt}, {Name: "v", Type: catalog.Text, Nullable: true}},
		PrimaryKey:   []int{0},
		Partitioning: catalog.Partitioning{Kind: catalog.Unpartitioned},
		Tablets:      []catalog.Tablet{{}},
	}
}

// hashTable cuts the table into tablets of equal numbers of buckets.
func hashTable(name string, replicas, tablets int) *catalog.Table {
	t := plainTable(name, replicas)
	t.Partitioning = catalog.Partitioning{Kind: catalog.Hash, Columns: []int{0}, Buckets: uint32(tablets) * 8}
	t.Tablets = make([]catalog.Tablet, tablets)
	for i := range t.Tablets {
		t.Tablets[i].BucketLow, t.Tablets[i].BucketHigh = uint32(i)*8, uint32(i+1)*8
	}
	return t
}

// applyTo runs one command through the encoding and the state.
func applyTo(t testing.TB, s *metaState, command string, request any) metaAnswer {
	t.Helper()
	entry, err := encodeMetaCommand(command, request)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := decodeMetaCommand(entry)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := s.apply(decoded)
	if err != nil {
		t.Fatal(err)
	}
	var answer metaAnswer
	if err := json.Unmarshal(encoded, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func stateWithNodes(t testing.TB, n int) *metaState {
	s := newMetaState()
	for i := 1; i <= n; i++ {
		node := NodeInfo{ID: catalog.NodeID(i), RaftAddress: fmt.Sprintf("h:%d", i), FlightAddress: fmt.Sprintf("f:%d", i)}
		mustAccept(t, applyTo(t, s, MetaRegisterNode, RegisterNode{RequestID: fmt.Sprintf("node%d", i), Node: node}))
	}
	return s
}

func mustAccept(t testing.TB, a metaAnswer) metaAnswer {
	t.Helper()
	if err := a.err(); err != nil {
		t.Fatalf("rejected: %v", err)
	}
	return a
}

func mustReject(t testing.TB, a metaAnswer, code sqlstate.Code) {
	t.Helper()
	if got := sqlstate.CodeOf(a.err()); got != code {
		t.Fatalf("got %v, want SQLSTATE %s", a.err(), code)
	}
}

func TestMetaCreateAssignsIdsAndPlacement(t *testing.T) {
	s := stateWithNodes(t, 3)
	a := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "a", Table: hashTable("a", 0, 6)}))
	table := a.Table
	if table.ID != firstTableID || table.Version != a.Version || a.Version != 4 || table.Replicas != 3 {
		t.Fatalf("table %+v at version %d", table, a.Version)
	}
	firsts := map[catalog.NodeID]int{}
	replicaIDs := map[uint64]bool{}
	for i, tablet := range table.Tablets {
		if tablet.ID != catalog.TabletID(firstTabletID+i) || tablet.Generation != 1 || len(tablet.Replicas) != 3 {
			t.Fatalf("tablet %+v", tablet)
		}
		firsts[tablet.Replicas[0].Node]++
		for _, r := range tablet.Replicas {
			if replicaIDs[r.ID] || r.ID == 0 {
				t.Fatalf("replica id %d twice", r.ID)
			}
			replicaIDs[r.ID] = true
		}
	}
	if want := map[catalog.NodeID]int{1: 2, 2: 2, 3: 2}; !cmp.Equal(firsts, want) {
		t.Fatalf("first replicas are not spread: %v", firsts)
	}
}

func TestMetaPlacementPrefersIdleNodes(t *testing.T) {
	s := stateWithNodes(t, 4)
	load := map[catalog.NodeID]int{}
	for i := range 8 {
		a := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: fmt.Sprint(i), Table: plainTable(fmt.Sprint("t", i), 1)}))
		load[a.Table.Tablets[0].Replicas[0].Node]++
	}
	if want := map[catalog.NodeID]int{1: 2, 2: 2, 3: 2, 4: 2}; !cmp.Equal(load, want) {
		t.Fatalf("load %v", load)
	}
}

func TestMetaRejections(t *testing.T) {
	s := stateWithNodes(t, 2)
	visible := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "v", Table: plainTable("v", 1)}))
	hidden := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "h", Table: plainTable("v", 1), Hidden: true}))
	version := s.counters.Version
	gap := hashTable("g", 1, 2)
	gap.Tablets[1].BucketLow++
	nullableKey := plainTable("n", 1)
	nullableKey.PrimaryKey = []int{1}
	twice := plainTable("d", 1)
	twice.Columns[1].Name = "k"
	kind := plainTable("k", 1)
	kind.Partitioning.Kind = "spiral"
	ranges := plainTable("r", 1)
	ranges.Partitioning = catalog.Partitioning{Kind: catalog.Range, Columns: []int{0}}
	ranges.Tablets = []catalog.Tablet{{KeyHigh: []byte{5}}, {KeyLow: []byte{6}}}
	for _, test := range []struct {
		name    string
		command string
		request any
		code    sqlstate.Code
	}{
		{"duplicate name", MetaCreateTable, CreateTable{RequestID: "1", Table: plainTable("v", 1)}, sqlstate.DuplicateTable},
		{"no request id", MetaCreateTable, CreateTable{Table: plainTable("x", 1)}, sqlstate.InvalidParameter},
		{"no table", MetaCreateTable, CreateTable{RequestID: "2"}, sqlstate.InvalidTableDefinition},
		{"too many replicas", MetaCreateTable, CreateTable{RequestID: "3", Table: plainTable("x", 3)}, sqlstate.InvalidParameter},
		{"bucket gap", MetaCreateTable, CreateTable{RequestID: "4", Table: gap}, sqlstate.InvalidTableDefinition},
		{"nullable key", MetaCreateTable, CreateTable{RequestID: "5", Table: nullableKey}, sqlstate.InvalidTableDefinition},
		{"column twice", MetaCreateTable, CreateTable{RequestID: "6", Table: twice}, sqlstate.DuplicateColumn},
		{"unknown kind", MetaCreateTable, CreateTable{RequestID: "7", Table: kind}, sqlstate.InvalidTableDefinition},
		{"range gap", MetaCreateTable, CreateTable{RequestID: "8", Table: ranges}, sqlstate.InvalidTableDefinition},
		{"publish unknown", MetaPublishTable, PublishTable{RequestID: "9", ID: 99}, sqlstate.UndefinedTable},
		{"publish visible", MetaPublishTable, PublishTable{RequestID: "10", ID: visible.Table.ID}, sqlstate.InvalidParameter},
		{"publish over", MetaPublishTable, PublishTable{RequestID: "11", ID: hidden.Table.ID}, sqlstate.DuplicateTable},
		{"drop unknown", MetaDropTable, DropTable{RequestID: "12", Schema: "public", Name: "nope"}, sqlstate.UndefinedTable},
		{"drop unknown id", MetaDropTable, DropTable{RequestID: "13", ID: 99}, sqlstate.UndefinedTable},
		{"node without id", MetaRegisterNode, RegisterNode{RequestID: "14", Node: NodeInfo{RaftAddress: "x"}}, sqlstate.InvalidParameter},
		{"node without address", MetaRegisterNode, RegisterNode{RequestID: "15", Node: NodeInfo{ID: 9}}, sqlstate.InvalidParameter},
		{"unknown field", MetaDropTable, map[string]any{"request_id": "16", "id": 1, "cascade": true}, sqlstate.InvalidParameter},
	} {
		t.Run(test.name, func(t *testing.T) {
			mustReject(t, applyTo(t, s, test.command, test.request), test.code)
			if s.counters.Version != version {
				t.Fatalf("a rejected command changed the version to %d", s.counters.Version)
			}
		})
	}
	mustReject(t, applyTo(t, newMetaState(), MetaCreateTable, CreateTable{RequestID: "1", Table: plainTable("x", 1)}), sqlstate.CannotConnectNow)
}

func TestMetaPublishReplacesAtomically(t *testing.T) {
	s := stateWithNodes(t, 1)
	old := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "old", Table: plainTable("t", 1)}))
	next := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "new", Table: plainTable("t_new", 1), Hidden: true}))
	if _, ok := s.snapshot().TableNamed("public", "t_new"); ok {
		t.Fatal("a hidden table is visible")
	}
	a := mustAccept(t, applyTo(t, s, MetaPublishTable, PublishTable{RequestID: "p", ID: next.Table.ID, Name: "t", Replace: true}))
	if a.Replaced != old.Table.ID || a.Table.Name != "t" || a.Table.Version != a.Version {
		t.Fatalf("answer %+v", a)
	}
	snap := s.snapshot()
	if got, ok := snap.TableNamed("public", "t"); !ok || got.ID != next.Table.ID || len(snap.Tables) != 1 || len(snap.Hidden) != 0 {
		t.Fatalf("snapshot %+v", snap)
	}
}

func TestMetaIdsAreNeverReused(t *testing.T) {
	s := stateWithNodes(t, 1)
	tables, tablets := map[catalog.TableID]bool{}, map[catalog.TabletID]bool{}
	for i := range 20 {
		a := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: fmt.Sprint("c", i), Table: hashTable("t", 1, 2)}))
		if tables[a.Table.ID] {
			t.Fatalf("table id %d reused", a.Table.ID)
		}
		tables[a.Table.ID] = true
		for _, tablet := range a.Table.Tablets {
			if tablets[tablet.ID] {
				t.Fatalf("tablet id %d reused", tablet.ID)
			}
			tablets[tablet.ID] = true
		}
		mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: fmt.Sprint("d", i), Schema: "public", Name: "t"}))
	}
}

func TestMetaRepeatsReturnTheFirstAnswer(t *testing.T) {
	s := stateWithNodes(t, 1)
	create := CreateTable{RequestID: "same", Table: plainTable("t", 1)}
	first := mustAccept(t, applyTo(t, s, MetaCreateTable, create))
	mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: "d", ID: first.Table.ID}))
	if again := applyTo(t, s, MetaCreateTable, create); !cmp.Equal(again, first) {
		t.Fatalf("repeat answered %+v, first %+v", again, first)
	}
	missing := DropTable{RequestID: "m", Schema: "public", Name: "later"}
	mustReject(t, applyTo(t, s, MetaDropTable, missing), sqlstate.UndefinedTable)
	mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "l", Table: plainTable("later", 1)}))
	mustReject(t, applyTo(t, s, MetaDropTable, missing), sqlstate.UndefinedTable)
	for i := range rememberedAnswers + 10 {
		applyTo(t, s, MetaDropTable, DropTable{RequestID: fmt.Sprint("fill", i), ID: 12345})
	}
	if len(s.answers) != rememberedAnswers || len(s.order) != rememberedAnswers {
		t.Fatalf("%d answers remembered", len(s.answers))
	}
	mustAccept(t, applyTo(t, s, MetaDropTable, missing)) // forgotten, so run anew
}

// TestMetaReplaysAlike applies random commands to one state, and to another that
// is persisted and reloaded at random, and expects them never to differ.
func TestMetaReplaysAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		straight, reloaded := newMetaState(), newMetaState()
		stored := map[string][]byte{}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			entry := drawCommand(t, step)
			command, err := decodeMetaCommand(entry)
			if err != nil {
				t.Fatal(err)
			}
			want, err := straight.apply(command)
			if err != nil {
				t.Fatal(err)
			}
			got, err := reloaded.apply(command)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Fatalf("answers differ:\n%s\n%s", got, want)
			}
			keys, values := reloaded.takeDirty()
			for _, k := range keys {
				if values[k] == nil {
					delete(stored, k)
				} else {
					stored[k] = values[k]
				}
			}
			if rapid.Bool().Draw(t, "reload") {
				reloaded = reload(t, stored)
			}
		}
		a, _ := json.Marshal(straight.snapshot())
		b, _ := json.Marshal(reloaded.snapshot())
		if string(a) != string(b) || straight.counters != reloaded.counters || !slices.Equal(straight.order, reloaded.order) {
			t.Fatalf("states differ:\n%s\n%s", a, b)
		}
	})
}

func reload(t *rapid.T, stored map[string][]byte) *metaState {
	keys := make([]string, 0, len(stored))
	for k := range stored {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	s := newMetaState()
	for _, k := range keys {
		if err := s.load([]byte(k), stored[k]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func drawCommand(t *rapid.T, step int) []byte {
	id := fmt.Sprint("r", rapid.IntRange(0, step).Draw(t, "request"))
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	table := catalog.TableID(rapid.IntRange(1, 8).Draw(t, "id"))
	node := rapid.IntRange(1, 4).Draw(t, "node")
	tablet := catalog.TabletID(firstTabletID + rapid.IntRange(0, 3).Draw(t, "tablet"))
	replica := uint64(rapid.IntRange(1, 12).Draw(t, "replica"))
	var command string
	var request any
	switch command = rapid.SampledFrom([]string{
		MetaCreateTable, MetaPublishTable, MetaDropTable, MetaRegisterNode, MetaRepairReplica, MetaAskRepair, MetaVouchRepair, MetaFinishRepair,
		MetaCreateSchema, MetaDropSchema, MetaLeaseGateway, MetaEndSessions,
	}).Draw(t, "command"); command {
	case MetaCreateTable:
		definition := hashTable(name, rapid.IntRange(0, 3).Draw(t, "replicas"), 2)
		switch rapid.IntRange(0, 3).Draw(t, "schema") {
		case 0:
			definition.Schema = "a"
		case 1:
			definition.Temporary = &catalog.Temporary{Gateway: "g", Session: name}
			definition.Schema = definition.Temporary.TempSchema()
		}
		request = CreateTable{RequestID: id, Table: definition, Hidden: rapid.Bool().Draw(t, "hidden")}
	case MetaCreateSchema:
		request = CreateSchema{RequestID: id, Name: name}
	case MetaDropSchema:
		request = DropSchema{RequestID: id, Name: name, Cascade: rapid.Bool().Draw(t, "cascade")}
	case MetaLeaseGateway:
		request = LeaseGateway{RequestID: id, Gateway: "g", UntilUnixMS: int64(step + 1)}
	case MetaEndSessions:
		session := rapid.SampledFrom([]string{"", name}).Draw(t, "session")
		request = EndSessions{RequestID: id, Gateway: "g", Session: session, ExpiredUnixMS: int64(rapid.IntRange(0, step).Draw(t, "expired"))}
	case MetaPublishTable:
		request = PublishTable{RequestID: id, ID: table, Name: name, Replace: rapid.Bool().Draw(t, "replace")}
	case MetaDropTable:
		request = DropTable{RequestID: id, ID: table}
	case MetaRepairReplica:
		request = RepairReplica{RequestID: id, Tablet: tablet, Replica: replica}
	case MetaAskRepair:
		request = AskRepair{RequestID: id, Tablet: tablet, New: replica}
	case MetaVouchRepair:
		request = VouchRepair{RequestID: id, Tablet: tablet, New: replica, Round: 1, Replica: replica + 1}
	case MetaFinishRepair:
		request = FinishRepair{RequestID: id, Tablet: tablet, New: replica}
	default:
		request = RegisterNode{RequestID: id, Node: NodeInfo{ID: catalog.NodeID(node), RaftAddress: fmt.Sprint("h", node)}}
	}
	entry, err := encodeMetaCommand(command, request)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func TestMetaEntriesFailClosed(t *testing.T) {
	good, err := encodeMetaCommand(MetaDropTable, DropTable{RequestID: "x", ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"empty":      func([]byte) []byte { return nil },
		"truncated":  func(b []byte) []byte { return b[:len(b)-1] },
		"magic":      func(b []byte) []byte { b[0] ^= 1; return b },
		"version":    func(b []byte) []byte { b[4]++; return b },
		"bit flip":   func(b []byte) []byte { b[len(b)-3] ^= 4; return b },
		"trailing":   func(b []byte) []byte { return append(b, ' ', '1') },
		"brace":      func(b []byte) []byte { return sealed(append(bytes.Clone(b[metaHeaderSize:]), '}')) },
		"short head": func(b []byte) []byte { return b[:6] },
	} {
		if _, err := decodeMetaCommand(damage(slices.Clone(good))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	unknown, err := encodeMetaCommand("explode", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeMetaCommand(unknown); err == nil {
		t.Error("an unknown command was accepted")
	}
}

// sealed puts a valid header in front of a payload.
func sealed(payload []byte) []byte {
	head := append([]byte(metaMagic), metaFormat)
	return append(binary.LittleEndian.AppendUint32(head, crc32.Checksum(payload, castagnoli)), payload...)
}

func FuzzDecodeMetaCommand(f *testing.F) {
	good, err := encodeMetaCommand(MetaCreateTable, CreateTable{RequestID: "x", Table: plainTable("t", 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(metaMagic))
	f.Fuzz(func(t *testing.T, entry []byte) {
		command, err := decodeMetaCommand(entry)
		if err != nil {
			return
		}
		if _, err := newMetaState().apply(command); err != nil {
			t.Fatalf("a readable command failed to apply: %v", err)
		}
	})
}
