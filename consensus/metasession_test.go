package consensus

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skein/catalog"
	"skein/sqlstate"
)

func tableIn(schema, name string) *catalog.Table {
	t := plainTable(name, 1)
	t.Schema = schema
	return t
}

func temporaryTable(gateway, session, name string) *catalog.Table {
	t := plainTable(name, 1)
	t.Temporary = &catalog.Temporary{Gateway: gateway, Session: session}
	t.Schema = t.Temporary.TempSchema()
	return t
}

func TestMetaSchemas(t *testing.T) {
	s := stateWithNodes(t, 1)
	n := 0
	do := func(command string, request any) metaAnswer { return applyTo(t, s, command, request) }
	id := func() string { n++; return fmt.Sprint("r", n) }
	create := func(table *catalog.Table, hidden bool) metaAnswer {
		return do(MetaCreateTable, CreateTable{RequestID: id(), Table: table, Hidden: hidden})
	}
	mustReject(t, create(tableIn("a", "t"), false), sqlstate.InvalidSchemaName)
	before := s.counters.Version
	first := mustAccept(t, do(MetaCreateSchema, CreateSchema{RequestID: "one", Name: "a"}))
	if again := mustAccept(t, do(MetaCreateSchema, CreateSchema{RequestID: "one", Name: "a"})); first.Version != before+1 || again.Version != first.Version {
		t.Errorf("versions %d, %d after %d", first.Version, again.Version, before)
	}
	for name, code := range map[string]sqlstate.Code{
		"a": sqlstate.DuplicateSchema, "public": sqlstate.DuplicateSchema, "": sqlstate.InvalidSchemaName,
		"pg_x": sqlstate.ReservedName, "skein": sqlstate.ReservedName, "information_schema": sqlstate.ReservedName,
		"nul\x00": sqlstate.InvalidByteSequence,
	} {
		mustReject(t, do(MetaCreateSchema, CreateSchema{RequestID: id(), Name: name}), code)
	}
	mustAccept(t, do(MetaCreateSchema, CreateSchema{RequestID: id(), Name: "b"}))
	table := mustAccept(t, create(tableIn("a", "t"), false)).Table
	hidden := mustAccept(t, create(tableIn("b", "h"), true)).Table
	mustAccept(t, create(tableIn("public", "t"), false))
	mustReject(t, alterIn(t, s, table.ID, id(), AlterAction{Kind: AlterSetSchema, NewName: "public"}), sqlstate.DuplicateTable)
	mustReject(t, alterIn(t, s, table.ID, id(), AlterAction{Kind: AlterSetSchema, NewName: "nowhere"}), sqlstate.InvalidSchemaName)
	mustAccept(t, alterIn(t, s, table.ID, id(), AlterAction{Kind: AlterSetSchema, NewName: "b"}))
	if _, ok := s.snapshot().TableNamed("a", "t"); ok {
		t.Error("the table is still in its former schema")
	}
	mustAccept(t, do(MetaDropSchema, DropSchema{RequestID: id(), Name: "a"}))
	mustReject(t, do(MetaDropSchema, DropSchema{RequestID: id(), Name: "a"}), sqlstate.InvalidSchemaName)
	mustReject(t, do(MetaDropSchema, DropSchema{RequestID: id(), Name: "b"}), sqlstate.DependentObjects)
	mustReject(t, do(MetaDropSchema, DropSchema{RequestID: id(), Name: "public", Cascade: true}), sqlstate.FeatureNotSupported)
	reloadSchemas(t, s)
	mustAccept(t, do(MetaDropSchema, DropSchema{RequestID: id(), Name: "b", Cascade: true}))
	if snap := s.snapshot(); snap.HasSchema("b") || !snap.HasSchema("public") || len(snap.Tables) != 1 {
		t.Errorf("schemas %v, %d tables", snap.Schemas, len(snap.Tables))
	}
	// What was filled meanwhile has nowhere to appear.
	mustReject(t, do(MetaPublishTable, PublishTable{RequestID: id(), ID: hidden.ID}), sqlstate.InvalidSchemaName)
}

// reloadSchemas checks that the records hold all of the state's schemas and leases.
func reloadSchemas(t *testing.T, s *metaState) {
	t.Helper()
	again := newMetaState()
	keys, values := s.takeDirty()
	for _, key := range keys {
		if values[key] == nil {
			continue
		}
		if err := again.load([]byte(key), values[key]); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(s.schemas, again.schemas) || !maps.Equal(s.leases, again.leases) {
		t.Errorf("read back %v and %v, have %v and %v", again.schemas, again.leases, s.schemas, s.leases)
	}
}

func TestMetaTemporaryTables(t *testing.T) {
	s := stateWithNodes(t, 1)
	n := 0
	do := func(command string, request any) metaAnswer { return applyTo(t, s, command, request) }
	id := func() string { n++; return fmt.Sprint("r", n) }
	create := func(table *catalog.Table, hidden bool) metaAnswer {
		return do(MetaCreateTable, CreateTable{RequestID: id(), Table: table, Hidden: hidden})
	}
	mustReject(t, create(temporaryTable("g", "s", "t"), false), sqlstate.CannotConnectNow)
	version := s.counters.Version
	mustAccept(t, do(MetaLeaseGateway, LeaseGateway{RequestID: id(), Gateway: "g", UntilUnixMS: 1000}))
	mustAccept(t, do(MetaLeaseGateway, LeaseGateway{RequestID: id(), Gateway: "g", UntilUnixMS: 900}))
	mustAccept(t, do(MetaLeaseGateway, LeaseGateway{RequestID: id(), Gateway: "other", UntilUnixMS: 5000}))
	mustReject(t, do(MetaLeaseGateway, LeaseGateway{RequestID: id(), Gateway: "", UntilUnixMS: 900}), sqlstate.InvalidParameter)
	if s.counters.Version != version || s.leases["g"].UntilUnixMS != 1000 {
		t.Errorf("version %d after %d, lease %+v", s.counters.Version, version, s.leases["g"])
	}
	wrong := temporaryTable("g", "s", "t")
	wrong.Schema = "public"
	mustReject(t, create(wrong, false), sqlstate.InvalidTableDefinition)
	mustAccept(t, create(temporaryTable("g", "s", "t"), false))
	mustAccept(t, create(temporaryTable("g", "s", "filling"), true))
	mustAccept(t, create(temporaryTable("g", "s2", "t"), false))
	mustAccept(t, create(temporaryTable("other", "s3", "t"), false))
	mustAccept(t, create(plainTable("t", 1), false))
	reloadSchemas(t, s)

	mustAccept(t, do(MetaEndSessions, EndSessions{RequestID: id(), Gateway: "g", Session: "s"}))
	left := func(want ...string) {
		t.Helper()
		var got []string
		for _, id := range s.tablesOf(func(*tableRecord) bool { return true }) {
			got = append(got, s.tables[id].Table.Schema)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	left("pg_temp_s2", "pg_temp_s3", "public")
	// A lease that was renewed meanwhile has not ended.
	mustAccept(t, do(MetaEndSessions, EndSessions{RequestID: id(), Gateway: "g", ExpiredUnixMS: 999}))
	left("pg_temp_s2", "pg_temp_s3", "public")
	mustAccept(t, do(MetaEndSessions, EndSessions{RequestID: id(), Gateway: "g", ExpiredUnixMS: 1000}))
	left("pg_temp_s3", "public")
	if len(s.leases) != 1 {
		t.Errorf("leases %v", s.leases)
	}
	mustReject(t, create(temporaryTable("g", "s", "t"), false), sqlstate.CannotConnectNow)
	mustAccept(t, do(MetaEndSessions, EndSessions{RequestID: id(), Gateway: "other"}))
	left("public")
}

// What a gateway leaves behind that never comes back is dropped by the leader of
// the meta group.
func TestSweepSessions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	ctx, m, now := testContext(t), c.nodes[1].Meta(), time.Now()
	for gateway, until := range map[string]time.Time{"gone": now.Add(time.Second), "alive": now.Add(time.Hour)} {
		if _, err := m.LeaseGateway(ctx, LeaseGateway{RequestID: gateway, Gateway: gateway, UntilUnixMS: until.UnixMilli()}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.CreateTable(ctx, CreateTable{RequestID: "t" + gateway, Table: temporaryTable(gateway, gateway, "t")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.SweepSessions(ctx, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if tables := m.Local().Tables; len(tables) != 1 || tables[0].Temporary.Gateway != "alive" {
		t.Errorf("left: %v", tables)
	}
	if n, err := m.SweepSessions(ctx, now.Add(time.Minute)); n != 0 || err != nil {
		t.Errorf("swept %d again, %v", n, err)
	}
}
