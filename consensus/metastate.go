package consensus

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// First ids handed out. Group ids below firstTabletID are kept for groups of
// the system, the meta group being one.
const (
	firstTableID  = 1
	firstTabletID = 100
)

// rememberedAnswers is how many requests, newest first, can be repeated.
const rememberedAnswers = 1024

// Kinds of records, the first byte of a key; the rest is a big-endian number.
const (
	recordCounters  = 'c'
	recordTable     = 't'
	recordNode      = 'n'
	recordAnswer    = 'r'
	recordRepair    = 'x'
	recordKeyring   = 'k'
	recordJob       = 'j'
	recordMove      = 'v'
	recordReport    = 'e'
	recordCluster   = 'i'
	recordSeen      = 'h'
	recordSettings  = 's'
	recordTokens    = 'o'
	recordSchema    = 'p'
	recordLease     = 'l'
	recordSuccessor = 'f'
	recordUser      = 'u'
)

// metaState is the meta group's state in memory, and the deterministic rules by
// which commands change it. It does no I/O: changed records gather in dirty for
// the state machine to persist. It is not safe for concurrent use.
type metaState struct {
	counters metaCounters
	tables   map[catalog.TableID]*tableRecord
	names    map[tableName]catalog.TableID // visible tables
	nodes    map[catalog.NodeID]NodeInfo
	repairs  map[catalog.TabletID]Repair
	jobs     map[uint64]Job
	schemas  map[string]Schema
	users    map[string]User
	leases   map[string]gatewayLease // by gateway
	// leasesChanged says that leases differ from the last snapshot's, though the
	// version, which they are no part of, does not.
	leasesChanged bool
	moves         map[catalog.TabletID]Move
	reports       map[catalog.NodeID][]TabletReport
	successors    map[catalog.TabletID]Successor

	clusterID string               // "" until a node tells it
	keys      []catalog.SigningKey // oldest first
	seen      map[catalog.NodeID]Heartbeat
	settings  map[string]string // that were set
	tokens    []JoinToken
	answers   map[string][]byte // request id -> encoded metaAnswer
	order     []string          // request ids in log order
	dirty     map[string][]byte // record key -> value, nil to delete
	err       error             // first record that could not be encoded
	// stirred is set by changes that concern the workers that work on them only, and
	// so make no new version for gateways to follow.
	stirred bool
}

// metaCounters are the numbers that only grow.
type metaCounters struct {
	Version     uint64           `json:"version"`
	NextTable   catalog.TableID  `json:"next_table"`
	NextTablet  catalog.TabletID `json:"next_tablet"`
	NextReplica uint64           `json:"next_replica"`
	NextAnswer  uint64           `json:"next_answer"`
	NextJob     uint64           `json:"next_job,omitempty"` // the last one's id
	NextNode    catalog.NodeID   `json:"next_node,omitempty"`
	NextUser    uint64           `json:"next_user,omitempty"`   // the last one's id
	NextSchema  uint64           `json:"next_schema,omitempty"` // the last one given
	NextLease   uint64           `json:"next_lease,omitempty"`  // the last one given
	Beats       uint64           `json:"beats,omitempty"`       // heartbeats taken
}

type tableName struct {
	schema, name string
}

type tableRecord struct {
	Table         *catalog.Table `json:"table"`
	Hidden        bool           `json:"hidden,omitempty"`
	CreatedUnixMS int64          `json:"created_unix_ms"`
}

type answerRecord struct {
	RequestID string          `json:"request_id"`
	Answer    json.RawMessage `json:"answer"`
}

func newMetaState() *metaState {
	return &metaState{
		counters:   metaCounters{NextTable: firstTableID, NextTablet: firstTabletID, NextReplica: 1},
		tables:     map[catalog.TableID]*tableRecord{},
		names:      map[tableName]catalog.TableID{},
		nodes:      map[catalog.NodeID]NodeInfo{},
		repairs:    map[catalog.TabletID]Repair{},
		jobs:       map[uint64]Job{},
		moves:      map[catalog.TabletID]Move{},
		reports:    map[catalog.NodeID][]TabletReport{},
		seen:       map[catalog.NodeID]Heartbeat{},
		schemas:    map[string]Schema{},
		leases:     map[string]gatewayLease{},
		answers:    map[string][]byte{},
		dirty:      map[string][]byte{},
		successors: map[catalog.TabletID]Successor{},
		users:      map[string]User{},
	}
}

// apply executes one command and returns the encoded answer. Go errors mean
// that the state can no longer be trusted; rejections are answers.
func (s *metaState) apply(c MetaCommand) ([]byte, error) {
	var id string
	var answer metaAnswer
	switch c.Command {
	case MetaCreateTable:
		id, answer = dispatch(s, c.Body, func(r *CreateTable) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.createTable(r) }
		})
	case MetaPublishTable:
		id, answer = dispatch(s, c.Body, func(r *PublishTable) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.publishTable(r) }
		})
	case MetaDropTable:
		id, answer = dispatch(s, c.Body, func(r *DropTable) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.dropTable(r) }
		})
	case MetaAlterTable:
		id, answer = dispatch(s, c.Body, func(r *AlterTable) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.alterTable(r) }
		})
	case MetaCreateSchema:
		id, answer = dispatch(s, c.Body, func(r *CreateSchema) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.createSchema(r) }
		})
	case MetaDropSchema:
		id, answer = dispatch(s, c.Body, func(r *DropSchema) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.dropSchema(r) }
		})
	case MetaLeaseGateway:
		id, answer = dispatch(s, c.Body, func(r *LeaseGateway) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.leaseGateway(r) }
		})
	case MetaEndSessions:
		id, answer = dispatch(s, c.Body, func(r *EndSessions) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.endSessions(r) }
		})
	case MetaRegisterNode:
		id, answer = dispatch(s, c.Body, func(r *RegisterNode) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.registerNode(r) }
		})
	case MetaAddKey:
		id, answer = dispatch(s, c.Body, func(r *AddKey) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.addKey(r) }
		})
	case MetaRepairReplica:
		id, answer = dispatch(s, c.Body, func(r *RepairReplica) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.repairReplica(r) }
		})
	case MetaAskRepair:
		id, answer = dispatch(s, c.Body, func(r *AskRepair) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.askRepair(r) }
		})
	case MetaVouchRepair:
		id, answer = dispatch(s, c.Body, func(r *VouchRepair) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.vouchRepair(r) }
		})
	case MetaFinishRepair:
		id, answer = dispatch(s, c.Body, func(r *FinishRepair) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.finishRepair(r) }
		})
	case MetaCreateJob:
		id, answer = dispatch(s, c.Body, func(r *CreateJob) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.createJob(r) }
		})
	case MetaClaimJob:
		id, answer = dispatch(s, c.Body, func(r *ClaimJob) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.claimJob(r) }
		})
	case MetaAdvanceJob:
		id, answer = dispatch(s, c.Body, func(r *AdvanceJob) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.advanceJob(r) }
		})
	case MetaEndJob:
		id, answer = dispatch(s, c.Body, func(r *EndJob) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.endJob(r) }
		})
	case MetaMoveReplica, MetaAdvanceMove, MetaAskMove, MetaVouchMove, MetaAbortMove, MetaFinishMove:
		id, answer = s.applyMove(c)
	case MetaReportTablets:
		answer = s.reportTablets(c.Body)
	case MetaReshape, MetaPublishReshape:
		id, answer = s.applyReshape(c)
	case MetaPutUser, MetaDropUser:
		id, answer = s.applyUsers(c)
	case MetaSetNodeState, MetaSetSeat, MetaHeartbeat, MetaAddToken, MetaRedeemToken, MetaSetSetting:
		id, answer = s.applyMembership(c)
	default:
		return nil, fmt.Errorf("%w: unknown command %q", errBadMetaEntry, c.Command)
	}
	if first, ok := s.answers[id]; ok {
		return first, nil
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encoding the answer to %s: %w", c.Command, err)
	}
	if id == "" {
		return encoded, nil
	}
	s.remember(id, encoded)
	return encoded, s.err
}

// dispatch decodes a request and runs it unless it is malformed or was answered
// before. The returned id is "" for a request that must not be remembered.
func dispatch[R any](s *metaState, body []byte, open func(*R) (string, func() metaAnswer)) (string, metaAnswer) {
	var request R
	if err := decodeStrict(body, &request); err != nil {
		return "", rejected(sqlstate.New(sqlstate.InvalidParameter, "malformed request: %w", err))
	}
	id, run := open(&request)
	if id == "" {
		return "", rejected(sqlstate.New(sqlstate.InvalidParameter, "the request has no request_id"))
	}
	if _, ok := s.answers[id]; ok {
		return id, metaAnswer{}
	}
	return id, run()
}

func (s *metaState) createTable(r *CreateTable) metaAnswer {
	if err := validateTable(r.Table); err != nil {
		return rejected(err)
	}
	t := *r.Table
	if err := s.checkSchema(&t); err != nil {
		return rejected(err)
	}
	name := tableName{t.Schema, t.Name}
	if _, taken := s.names[name]; taken && !r.Hidden {
		return rejected(duplicateTable(name))
	}
	p := newPlacer(s.placeable(), s.tableList(), s.silent)
	replicas, err := p.replicas(t.QualifiedName(), t.Replicas)
	if err != nil {
		return rejected(err)
	}
	s.counters.Version++
	t.ID, t.Version, t.Replicas = s.counters.NextTable, s.counters.Version, replicas
	s.counters.NextTable++
	t.Columns = slices.Clone(t.Columns)
	t.AssignColumnIDs()
	t.Tablets = slices.Clone(t.Tablets)
	for i := range t.Tablets {
		s.assign(&t.Tablets[i], p.place(replicas))
	}
	s.putTable(&tableRecord{Table: &t, Hidden: r.Hidden, CreatedUnixMS: r.CreatedUnixMS})
	return s.accepted(&t)
}

// assign gives a new tablet its ids.
func (s *metaState) assign(tablet *catalog.Tablet, nodes []catalog.NodeID) {
	tablet.ID = s.counters.NextTablet
	s.counters.NextTablet++
	tablet.Generation = 1
	tablet.Replicas = make([]catalog.Replica, len(nodes))
	for i, node := range nodes {
		tablet.Replicas[i] = catalog.Replica{ID: s.counters.NextReplica, Node: node}
		s.counters.NextReplica++
	}
}

func (s *metaState) publishTable(r *PublishTable) metaAnswer {
	record, ok := s.tables[r.ID]
	switch {
	case !ok:
		return rejected(sqlstate.New(sqlstate.UndefinedTable, "table with id %d does not exist", r.ID))
	case !record.Hidden:
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "table %s is already published", record.Table.QualifiedName()))
	}
	t := *record.Table
	t.Schema, t.Name = cmp.Or(r.Schema, t.Schema), cmp.Or(r.Name, t.Name)
	if err := s.checkSchema(&t); err != nil {
		return rejected(err)
	}
	name := tableName{t.Schema, t.Name}
	replaced, taken := s.names[name]
	if taken && !r.Replace {
		return rejected(duplicateTable(name))
	}
	if taken {
		s.removeTable(replaced)
	}
	s.counters.Version++
	t.Version = s.counters.Version
	s.putTable(&tableRecord{Table: &t, CreatedUnixMS: record.CreatedUnixMS})
	answer := s.accepted(&t)
	answer.Replaced = replaced
	return answer
}

func (s *metaState) dropTable(r *DropTable) metaAnswer {
	id := r.ID
	if id == 0 {
		found, ok := s.names[tableName{r.Schema, r.Name}]
		if !ok {
			name := catalog.Table{Schema: r.Schema, Name: r.Name}
			return rejected(sqlstate.New(sqlstate.UndefinedTable, "table %s does not exist", name.QualifiedName()))
		}
		id = found
	}
	record, ok := s.tables[id]
	if !ok {
		return rejected(sqlstate.New(sqlstate.UndefinedTable, "table with id %d does not exist", id))
	}
	s.counters.Version++
	s.removeTable(id)
	return s.accepted(record.Table)
}

func duplicateTable(name tableName) *sqlstate.Error {
	t := catalog.Table{Schema: name.schema, Name: name.name}
	return sqlstate.New(sqlstate.DuplicateTable, "relation %s already exists", t.QualifiedName())
}

func (s *metaState) accepted(t *catalog.Table) metaAnswer {
	return metaAnswer{TableReply: TableReply{Version: s.counters.Version, Table: t}}
}

func (s *metaState) putTable(r *tableRecord) {
	s.tables[r.Table.ID] = r
	if !r.Hidden {
		s.names[tableName{r.Table.Schema, r.Table.Name}] = r.Table.ID
	}
	s.write(recordTable, uint64(r.Table.ID), r)
}

func (s *metaState) removeTable(id catalog.TableID) {
	if record := s.tables[id]; !record.Hidden {
		delete(s.names, tableName{record.Table.Schema, record.Table.Name})
	}
	for _, tablet := range s.tables[id].Table.Tablets {
		s.dropRepair(tablet.ID)
		s.dropMove(tablet.ID)
	}
	s.abortJobsOf(id)
	s.dropSuccessorsOf(id)
	delete(s.tables, id)
	s.dirty[recordKey(recordTable, uint64(id))] = nil
}

// remember keeps an answer and forgets the oldest one above the limit.
func (s *metaState) remember(id string, answer []byte) {
	seq := s.counters.NextAnswer
	s.counters.NextAnswer++
	s.answers[id] = answer
	s.order = append(s.order, id)
	if len(s.order) > rememberedAnswers {
		oldest := seq - uint64(len(s.order)) + 1
		delete(s.answers, s.order[0])
		s.order = s.order[1:]
		s.dirty[recordKey(recordAnswer, oldest)] = nil
	}
	s.write(recordAnswer, seq, answerRecord{RequestID: id, Answer: answer})
	s.write(recordCounters, 0, s.counters)
}

// write marks a record as changed.
func (s *metaState) write(kind byte, number uint64, value any) {
	encoded, err := json.Marshal(value)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("encoding meta record %c%d: %w", kind, number, err)
	}
	s.dirty[recordKey(kind, number)] = encoded
}

// takeDirty returns the changed records in key order and starts a new batch.
func (s *metaState) takeDirty() (keys []string, values map[string][]byte) {
	values = s.dirty
	s.dirty = map[string][]byte{}
	return slices.Sorted(maps.Keys(values)), values
}

func recordKey(kind byte, number uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{kind}, number))
}

// load reads one persisted record back, in key order.
func (s *metaState) load(key, value []byte) error {
	if len(key) != 9 {
		return fmt.Errorf("meta record key of %d bytes", len(key))
	}
	number := binary.BigEndian.Uint64(key[1:])
	var err error
	switch key[0] {
	case recordCounters:
		err = json.Unmarshal(value, &s.counters)
	case recordTable:
		r := &tableRecord{}
		if err = json.Unmarshal(value, r); err == nil && (r.Table == nil || uint64(r.Table.ID) != number) {
			err = fmt.Errorf("record does not hold table %d", number)
		}
		if err == nil {
			s.tables[r.Table.ID] = r
			if !r.Hidden {
				s.names[tableName{r.Table.Schema, r.Table.Name}] = r.Table.ID
			}
		}
	case recordNode:
		var n NodeInfo
		if err = json.Unmarshal(value, &n); err == nil {
			s.nodes[n.ID] = n
		}
	case recordRepair:
		var r Repair
		if err = json.Unmarshal(value, &r); err == nil {
			s.repairs[r.Tablet] = r
		}
	case recordJob:
		var j Job
		if err = json.Unmarshal(value, &j); err == nil {
			s.jobs[j.ID] = j
		}
	case recordReport:
		var r ReportTablets
		if err = json.Unmarshal(value, &r); err == nil {
			s.reports[r.Node] = r.Tablets
		}
	case recordMove:
		var m Move
		if err = json.Unmarshal(value, &m); err == nil {
			s.moves[m.Tablet] = m
		}
	case recordSuccessor:
		var x Successor
		if err = json.Unmarshal(value, &x); err == nil {
			s.successors[x.Tablet] = x
		}
	case recordKeyring:
		err = json.Unmarshal(value, &s.keys)
	case recordCluster:
		err = json.Unmarshal(value, &s.clusterID)
	case recordSeen:
		var h Heartbeat
		if err = json.Unmarshal(value, &h); err == nil {
			s.seen[h.Node] = h
		}
	case recordSettings:
		err = json.Unmarshal(value, &s.settings)
	case recordTokens:
		err = json.Unmarshal(value, &s.tokens)
	case recordSchema:
		var schema Schema
		if err = json.Unmarshal(value, &schema); err == nil {
			s.schemas[schema.Name] = schema
		}
	case recordLease:
		var lease gatewayLease
		if err = json.Unmarshal(value, &lease); err == nil {
			s.leases[lease.Gateway] = lease
		}
	case recordUser:
		var u User
		if err = json.Unmarshal(value, &u); err == nil {
			s.users[u.Name] = u
		}
	case recordAnswer:
		var a answerRecord
		if err = json.Unmarshal(value, &a); err == nil {
			s.answers[a.RequestID] = a.Answer
			s.order = append(s.order, a.RequestID)
		}
	default:
		err = fmt.Errorf("unknown kind %q", key[0])
	}
	if err != nil {
		return fmt.Errorf("reading meta record %c%d: %w", key[0], number, err)
	}
	return nil
}

func (s *metaState) nodeList() []NodeInfo {
	list := make([]NodeInfo, 0, len(s.nodes))
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		list = append(list, s.nodes[id])
	}
	return list
}

func (s *metaState) tableList() []*catalog.Table {
	list := make([]*catalog.Table, 0, len(s.tables))
	for _, id := range slices.Sorted(maps.Keys(s.tables)) {
		list = append(list, s.tables[id].Table)
	}
	return list
}

// snapshot describes the current state. Tables are shared with the state, which
// replaces but never modifies them.
func (s *metaState) snapshot() *MetaSnapshot {
	snap := &MetaSnapshot{
		Version: s.counters.Version, ClusterID: s.clusterID, Tables: []*catalog.Table{}, Nodes: s.nodeList(),
		Keys: s.keys, Settings: s.settings, Tokens: s.tokens, Seen: maps.Clone(s.seen), Users: s.userList(),
		Schemas: s.schemaList(), leases: s.leaseList(),
		Moves: s.moveList(), Reports: maps.Clone(s.reports),
	}
	for _, id := range slices.Sorted(maps.Keys(s.tables)) {
		r := s.tables[id]
		if r.Hidden {
			snap.Hidden = append(snap.Hidden, HiddenTable{Table: r.Table, CreatedUnixMS: r.CreatedUnixMS})
			continue
		}
		snap.Tables = append(snap.Tables, r.Table)
	}
	s.leasesChanged = false
	for _, id := range slices.Sorted(maps.Keys(s.repairs)) {
		snap.Repairs = append(snap.Repairs, s.repairs[id])
	}
	snap.Successors = s.successorList()
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		snap.Jobs = append(snap.Jobs, s.jobs[id])
	}
	return snap
}
