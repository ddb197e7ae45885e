package gateway

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
	"skein/planner"
)

// snapshot is the cluster as of one metadata version, with the sizes and
// leaders last heard of. It is immutable and serves as the planner's Locator
// and Metadata.
type snapshot struct {
	*planner.CatalogLocator
	meta    *consensus.MetaSnapshot
	status  []*flightproto.WorkerStatus
	tablets map[catalog.TabletID]*catalog.Tablet
	leaders map[catalog.TabletID]catalog.NodeID
	stats   map[catalog.TableID]planner.TableStats
}

func newSnapshot(meta *consensus.MetaSnapshot, status []*flightproto.WorkerStatus) *snapshot {
	all := slices.Clone(meta.Tables)
	for _, h := range meta.Hidden {
		all = append(all, h.Table)
	}
	s := &snapshot{
		CatalogLocator: planner.NewCatalogLocator(all...), meta: meta, status: status,
		tablets: make(map[catalog.TabletID]*catalog.Tablet),
		leaders: make(map[catalog.TabletID]catalog.NodeID),
		stats:   make(map[catalog.TableID]planner.TableStats),
	}
	for _, t := range all {
		for i := range t.Tablets {
			s.tablets[t.Tablets[i].ID] = &t.Tablets[i]
		}
	}
	s.addStatus()
	return s
}

// addStatus takes sizes from the replica that has applied most of each tablet.
func (s *snapshot) addStatus() {
	best := make(map[catalog.TabletID]*flightproto.TabletStatus)
	for _, w := range s.status {
		for i := range w.Tablets {
			t := &w.Tablets[i]
			if b := best[t.Tablet]; b == nil || t.Applied > b.Applied {
				best[t.Tablet] = t
			}
			if t.Leader == w.Node { // a leader knows best that it is one
				s.leaders[t.Tablet] = t.Leader
			}
		}
	}
	for _, t := range best {
		if _, listed := s.tablets[t.Tablet]; !listed {
			continue // a split or merge is building it, or has replaced it
		}
		sum := s.stats[t.Table]
		sum.Rows += t.Rows
		sum.Bytes += t.Bytes
		if sum.Columns == nil {
			sum.Columns = make([]planner.ColumnStats, len(t.Columns))
		}
		table, known := s.tableByID(t.Table)
		for i := range min(len(t.Columns), len(sum.Columns)) {
			addColumn(&sum.Columns[i], &t.Columns[i], t.Rows)
			if known && i < len(table.Columns) {
				extendBounds(&sum.Columns[i], &t.Columns[i], table.Columns[i].Type)
			}
		}
		s.stats[t.Table] = sum
	}
}

func (s *snapshot) tableByID(id catalog.TableID) (*catalog.Table, bool) {
	if t, ok := s.meta.Table(id); ok {
		return t, true
	}
	for _, h := range s.meta.Hidden {
		if h.Table.ID == id {
			return h.Table, true
		}
	}
	return nil, false
}

// addColumn adds one tablet's statistics of a column. Tablets share the values
// of a column with few of them, and have their own where nearly all differ.
func addColumn(sum *planner.ColumnStats, c *flightproto.ColumnStatus, rows uint64) {
	sum.Nulls += c.Nulls
	if 2*c.Distinct >= rows {
		sum.Distinct += c.Distinct
	} else {
		sum.Distinct = max(sum.Distinct, c.Distinct)
	}
}

// extendBounds widens the bounds of a column to cover one tablet's.
func extendBounds(sum *planner.ColumnStats, c *flightproto.ColumnStatus, dt arrow.DataType) {
	if len(c.Min) == 0 || len(c.Max) == 0 {
		return // an empty tablet, or a type without bounds: both leave the others' bounds an estimate
	}
	if low := boundKey(dt, sum.Min); sum.Min == nil || bytes.Compare(c.Min, low) < 0 {
		sum.Min = boundValue(dt, c.Min)
	}
	if high := boundKey(dt, sum.Max); sum.Max == nil || bytes.Compare(c.Max, high) > 0 {
		sum.Max = boundValue(dt, c.Max)
	}
}

// boundKey encodes a bound; one that cannot be is nil.
func boundKey(dt arrow.DataType, value any) []byte {
	if value == nil {
		return nil
	}
	key, err := catalog.AppendKeyValue(nil, dt, value)
	if err != nil {
		return nil
	}
	return key
}

// boundValue decodes a bound into the planner's form of literals.
func boundValue(dt arrow.DataType, key []byte) any {
	value := catalog.KeyValue(dt, key)
	if n, ok := value.(int64); ok && catalog.PublicType(dt).ID() == arrow.DECIMAL128 {
		return decimal128.FromI64(n)
	}
	return value
}

// Version is the metadata version.
func (s *snapshot) Version() uint64 { return s.meta.Version }

// systemTableRows is the guess for a table that is only made when it is read.
const systemTableRows = 100

// TableStats is what workers last told of the table's size.
func (s *snapshot) TableStats(t *catalog.Table) (planner.TableStats, error) {
	if t.System {
		return planner.TableStats{Rows: systemTableRows}, nil
	}
	if _, ok := s.meta.Table(t.ID); !ok {
		return planner.TableStats{}, &planner.UnknownTableError{Table: t.Name}
	}
	return s.stats[t.ID], nil
}

// tables are the visible tables.
func (s *snapshot) tables() []*catalog.Table { return s.meta.Tables }

// generation is a tablet's generation, 0 for an unknown one.
func (s *snapshot) generation(id catalog.TabletID) uint64 {
	if t, ok := s.tablets[id]; ok {
		return t.Generation
	}
	return 0
}

// replicaAddresses lists the workers with a replica of every one of the
// tablets, in the order of the first one's replicas.
func (s *snapshot) replicaAddresses(ids ...catalog.TabletID) []string {
	var nodes []catalog.NodeID
	for i, id := range ids {
		t, ok := s.tablets[id]
		if !ok {
			return nil
		}
		var here []catalog.NodeID
		for _, r := range t.Replicas {
			if i == 0 || slices.Contains(nodes, r.Node) {
				here = append(here, r.Node)
			}
		}
		nodes = here
	}
	var addresses []string
	for _, id := range nodes {
		if n, ok := s.meta.Node(id); ok && n.FlightAddress != "" {
			addresses = append(addresses, n.FlightAddress)
		}
	}
	return addresses
}

// leaderAddress is the worker that leads a tablet, if known.
func (s *snapshot) leaderAddress(id catalog.TabletID) (string, bool) {
	node, ok := s.leaders[id]
	if !ok {
		return "", false
	}
	n, ok := s.meta.Node(node)
	return n.FlightAddress, ok && n.FlightAddress != ""
}
