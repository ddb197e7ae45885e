package planner

import (
	"slices"

	"skein/catalog"
)

// Locator resolves which tablets serve a table. Implementations answer from
// one metadata version for the whole of a planning call. A table they do not
// know is an *UnknownTableError.
type Locator interface {
	// Tablets are the tablets that serve the table, in layout order. An empty
	// list is not an error here; the planner reports it.
	Tablets(table *catalog.Table) ([]catalog.Tablet, error)
	// Partitioning is how the table's rows map onto those tablets.
	Partitioning(table *catalog.Table) (catalog.Partitioning, error)
	// SameNode reports whether two tablets share at least one worker, so that
	// their scans can run in one fragment.
	SameNode(a, b catalog.TabletID) bool
}

// Metadata is the control-plane state that a plan is pinned to. A table it
// does not know is an *UnknownTableError.
type Metadata interface {
	// Version is the metadata version that plans are built against.
	Version() uint64
	// TableStats describes the size of a table; the zero value is an empty
	// table.
	TableStats(table *catalog.Table) (TableStats, error)
}

// TableStats is what the planner knows of a table's content. Estimates may be
// stale: they steer plans, never results.
type TableStats struct {
	Rows  uint64 // live rows
	Bytes uint64 // their size; 0 with Rows > 0 means unknown
	// Columns is empty or has one entry per column of the table.
	Columns []ColumnStats
}

// ColumnStats describes the values of one column. The zero value of a field
// means that it is not known.
type ColumnStats struct {
	Distinct uint64 // different values
	Nulls    uint64 // NULL values
	// Min and Max bound the values, in the literal form of the column's type.
	Min, Max any
	// Width is the mean bytes per value.
	Width float64
}

// CatalogLocator answers from table descriptors alone: the tablets,
// partitioning and replicas that the descriptors carry.
type CatalogLocator struct {
	tables map[catalog.TableID]*catalog.Table
	nodes  map[catalog.TabletID][]catalog.NodeID
}

// NewCatalogLocator builds a locator over the tables of one metadata version.
// It keeps the descriptors.
func NewCatalogLocator(tables ...*catalog.Table) *CatalogLocator {
	l := &CatalogLocator{
		tables: make(map[catalog.TableID]*catalog.Table, len(tables)),
		nodes:  make(map[catalog.TabletID][]catalog.NodeID),
	}
	for _, t := range tables {
		l.tables[t.ID] = t
		for i := range t.Tablets {
			l.nodes[t.Tablets[i].ID] = replicaNodes(&t.Tablets[i])
		}
	}
	return l
}

func (l *CatalogLocator) lookup(table *catalog.Table) (*catalog.Table, error) {
	t, ok := l.tables[table.ID]
	if !ok {
		return nil, &UnknownTableError{Table: table.Name}
	}
	return t, nil
}

// Tablets returns the tablets of the table's descriptor.
func (l *CatalogLocator) Tablets(table *catalog.Table) ([]catalog.Tablet, error) {
	t, err := l.lookup(table)
	if err != nil {
		return nil, err
	}
	return t.Tablets, nil
}

// Partitioning returns the partitioning of the table's descriptor.
func (l *CatalogLocator) Partitioning(table *catalog.Table) (catalog.Partitioning, error) {
	t, err := l.lookup(table)
	if err != nil {
		return catalog.Partitioning{}, err
	}
	return t.Partitioning, nil
}

// SameNode reports whether two tablets have replicas on one node.
func (l *CatalogLocator) SameNode(a, b catalog.TabletID) bool {
	if a == b {
		return true
	}
	return len(intersectNodes(l.nodes[a], l.nodes[b])) > 0
}

func replicaNodes(t *catalog.Tablet) []catalog.NodeID {
	nodes := make([]catalog.NodeID, len(t.Replicas))
	for i, r := range t.Replicas {
		nodes[i] = r.Node
	}
	return nodes
}

func intersectNodes(a, b []catalog.NodeID) []catalog.NodeID {
	var both []catalog.NodeID
	for _, n := range a {
		if slices.Contains(b, n) {
			both = append(both, n)
		}
	}
	return both
}
