package catalog

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// TableID names a table for ever: ids are handed out by the meta group and are
// never reused, so a dropped and re-created table has another id.
type TableID uint64

// TabletID names one tablet and is also the id of its Raft group. Ids are
// handed out by the meta group and never reused.
type TabletID uint64

// NodeID names one worker process.
type NodeID uint64

// MetaGroupID is the Raft group id of the meta group; tablets start above it.
const MetaGroupID = 1

// DefaultSchema is the SQL schema of an unqualified table name.
const DefaultSchema = "public"

// TempSchemaPrefix begins the names of schemas of temporary tables; no others
// may.
const TempSchemaPrefix = "pg_temp_"

// ReservedSchema reports whether a schema of that name is the system's own.
func ReservedSchema(name string) bool {
	return name == "skein" || name == "information_schema" || strings.HasPrefix(name, "pg_")
}

// Table describes one table as of one metadata version. A Table that has been
// published is immutable: change it by storing a copy with a higher Version.
type Table struct {
	ID           TableID      `json:"id"`
	Schema       string       `json:"schema"`
	Name         string       `json:"name"`
	Version      uint64       `json:"version"` // metadata version that last changed it
	Columns      []Column     `json:"columns"`
	PrimaryKey   []int        `json:"primary_key,omitempty"` // column ordinals, key order
	Partitioning Partitioning `json:"partitioning"`
	Replicas     int          `json:"replicas"`
	Tablets      []Tablet     `json:"tablets"` // layout order: ascending bucket or range
	// ManualSplit says that tablets are split and merged only when somebody asks.
	ManualSplit bool `json:"manual_split,omitempty"`
	// Layout is the metadata version that last changed which tablets there are, 0
	// while they are those that the table was created with.
	Layout uint64 `json:"layout,omitempty"`
	// NextColumnID is the id of the next column to be added, 0 in descriptors
	// whose columns have no ids.
	NextColumnID int `json:"next_column_id,omitempty"`
	// Temporary names the session that the table belongs to, and which it ends
	// with; nil for a lasting table.
	Temporary *Temporary `json:"temporary,omitempty"`
	// System marks a table without tablets, whose rows a gateway makes when it
	// is read. The meta group has none of these.
	System bool `json:"-"`
}

// Temporary is the owner of a table that lasts as long as a client's session.
type Temporary struct {
	// Gateway is the gateway that has the session, by the name of its lease.
	Gateway string `json:"gateway"`
	// Session is the session's name, which its tables' schema is made of.
	Session string `json:"session"`
}

// TempSchema is the schema of the session's temporary tables.
func (t *Temporary) TempSchema() string { return TempSchemaPrefix + t.Session }

// Column is one column of a Table.
type Column struct {
	Name     string
	Type     arrow.DataType // a SQL type: see TypeName
	Nullable bool
	Default  string // canonical SQL of a constant expression, "" for none
	// MaxLength bounds the characters of a VARCHAR(n); 0 is unbounded.
	MaxLength int
	// ID names the column within its table for ever, whatever its name and
	// place: ids start at 1 and are never reused. 0 stands for ordinal + 1. See
	// Table.ColumnID.
	ID int
}

// PartitionKind says how rows map onto tablets.
type PartitionKind string

// The ways of partitioning. Tenant and TimeRange are declared as Hash and
// Range over the tenant or time column; they are kinds of their own so that
// the planner and operators can tell them apart.
const (
	Unpartitioned PartitionKind = "none"
	Hash          PartitionKind = "hash"
	Range         PartitionKind = "range"
	Tenant        PartitionKind = "tenant"
	TimeRange     PartitionKind = "time_range"
)

// Partitioning is how a table's rows map onto its tablets.
type Partitioning struct {
	Kind    PartitionKind `json:"kind"`
	Columns []int         `json:"columns,omitempty"` // column ordinals, key order
	// Buckets is the size of the hash space of Hash and Tenant; a tablet owns
	// a contiguous run of buckets, so tablets can split without rehashing.
	Buckets uint32 `json:"buckets,omitempty"`
}

// Tablet is one horizontal piece of a table, replicated by its own Raft group.
type Tablet struct {
	ID         TabletID `json:"id"`
	Generation uint64   `json:"generation"`
	// BucketLow and BucketHigh bound the hash buckets owned: [low, high).
	BucketLow  uint32 `json:"bucket_low,omitempty"`
	BucketHigh uint32 `json:"bucket_high,omitempty"`
	// KeyLow and KeyHigh bound the encoded partition keys owned by a range
	// tablet: [low, high); empty is unbounded.
	KeyLow   []byte    `json:"key_low,omitempty"`
	KeyHigh  []byte    `json:"key_high,omitempty"`
	Replicas []Replica `json:"replicas"`
	// Founders are the replicas that the Raft group began with, when they are not
	// those of now.
	Founders []Replica `json:"founders,omitempty"`
}

// Replica is one copy of a tablet on one node.
type Replica struct {
	ID   uint64 `json:"id"` // Raft replica id, unique within the tablet
	Node NodeID `json:"node"`
	// Joined says that the replica was added to a group that had begun before.
	Joined bool `json:"joined,omitempty"`
	// Learner says that it had no vote at first, as its Raft log remembers.
	Learner bool `json:"learner,omitempty"`
}

// QualifiedName is schema.name, quoted where SQL needs it.
func (t *Table) QualifiedName() string {
	return QuoteIdent(t.Schema) + "." + QuoteIdent(t.Name)
}

// Column returns the ordinal of the named column, or -1.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// ColumnID is the id of the column with an ordinal.
func (t *Table) ColumnID(ordinal int) int {
	if id := t.Columns[ordinal].ID; id != 0 {
		return id
	}
	return ordinal + 1
}

// ColumnByID returns the ordinal of the column with an id, or -1.
func (t *Table) ColumnByID(id int) int {
	for i := range t.Columns {
		if t.ColumnID(i) == id {
			return i
		}
	}
	return -1
}

// AssignColumnIDs gives ids to the columns that have none: above all ids that
// were ever given in the table. Call it on a Table that is not published yet
// and whose Columns are not shared.
func (t *Table) AssignColumnIDs() {
	next := max(t.NextColumnID, 1)
	for i := range t.Columns {
		next = max(next, t.Columns[i].ID+1)
	}
	for i := range t.Columns {
		if t.Columns[i].ID == 0 {
			t.Columns[i].ID = next
			next++
		}
	}
	t.NextColumnID = next
}

// ArrowSchema is the schema clients see: SQL types in their public Arrow form.
func (t *Table) ArrowSchema() *arrow.Schema {
	fields := make([]arrow.Field, len(t.Columns))
	for i, c := range t.Columns {
		fields[i] = arrow.Field{Name: c.Name, Type: c.Type, Nullable: c.Nullable}
	}
	return arrow.NewSchema(fields, nil)
}

// Tablet returns the descriptor of one of the table's tablets.
func (t *Table) Tablet(id TabletID) (*Tablet, bool) {
	for i := range t.Tablets {
		if t.Tablets[i].ID == id {
			return &t.Tablets[i], true
		}
	}
	return nil, false
}

type columnJSON struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Nullable  bool   `json:"nullable,omitempty"`
	Default   string `json:"default,omitempty"`
	MaxLength int    `json:"max_length,omitempty"`
	ID        int    `json:"id,omitempty"`
}

// MarshalJSON spells the type as SQL.
func (c Column) MarshalJSON() ([]byte, error) {
	return json.Marshal(columnJSON{c.Name, TypeName(c.Type), c.Nullable, c.Default, c.MaxLength, c.ID})
}

// UnmarshalJSON reverses MarshalJSON.
func (c *Column) UnmarshalJSON(b []byte) error {
	var j columnJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	dt, err := ParseType(j.Type)
	if err != nil {
		return fmt.Errorf("column %q: %w", j.Name, err)
	}
	*c = Column{Name: j.Name, Type: dt, Nullable: j.Nullable, Default: j.Default, MaxLength: j.MaxLength, ID: j.ID}
	return nil
}

// QuoteIdent quotes an identifier when it would not survive folding to lower
// case as a bare word.
func QuoteIdent(s string) string {
	plain := s != ""
	for i, r := range s {
		if r == '_' || (r >= 'a' && r <= 'z') || (i > 0 && r >= '0' && r <= '9') {
			continue
		}
		plain = false
		break
	}
	if plain {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
