package bind

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// tableOptions is the WITH clause of CREATE TABLE; 0 is not given.
type tableOptions struct {
	tablets, replicas, buckets int
	splits                     *pgquery.DefElem
	kind                       string
	at                         map[string]int32
}

func (c *creation) readOptions() error {
	c.options.at = make(map[string]int32)
	for _, n := range c.stmt.Options {
		def := n.GetDefElem()
		if _, twice := c.options.at[def.Defname]; twice {
			return c.errorAt(sqlstate.SyntaxError, def.Location, "option %s is given twice", def.Defname)
		}
		c.options.at[def.Defname] = def.Location
		if err := c.readOption(def); err != nil {
			return err
		}
	}
	return nil
}

func (c *creation) readOption(def *pgquery.DefElem) (err error) {
	if def.Defnamespace != "" {
		return c.unsupported(def.Location, "table option %s.%s", def.Defnamespace, def.Defname)
	}
	switch def.Defname {
	case "tablets":
		c.options.tablets, err = c.intOption(def, 1, maxTablets)
	case "replicas":
		c.options.replicas, err = c.intOption(def, 1, maxReplicas)
	case "buckets":
		c.options.buckets, err = c.intOption(def, 1, maxBuckets)
	case "splits":
		c.options.splits = def
	case "auto_split":
		var on bool
		on, err = c.boolOption(def)
		c.table.ManualSplit = !on
	case "partition_kind":
		c.options.kind = def.GetArg().GetString_().GetSval()
	default:
		e := c.unsupported(def.Location, "table option %s", def.Defname)
		known := []string{"tablets", "replicas", "buckets", "splits", "partition_kind", "auto_split"}
		if near := nearest(def.Defname, known); near != "" {
			return e.WithHint("Perhaps you meant %s.", near)
		}
		return e.WithHint("The options are %s.", strings.Join(known, ", "))
	}
	return err
}

func (c *creation) intOption(def *pgquery.DefElem, low, high int) (int, error) {
	v := def.GetArg().GetInteger()
	if v == nil || int(v.Ival) < low || int(v.Ival) > high {
		return 0, c.errorAt(sqlstate.InvalidParameter, def.Location, "option %s must be an integer from %d to %d", def.Defname, low, high)
	}
	return int(v.Ival), nil
}

// boolOption reads an option such as EXPLAIN's: bare, or a boolean in any
// spelling that PostgreSQL takes.
func (b *binder) boolOption(def *pgquery.DefElem) (bool, error) {
	if def.Arg == nil {
		return true, nil
	}
	text := def.Arg.GetString_().GetSval()
	switch v := def.Arg.GetNode().(type) {
	case *pgquery.Node_Integer:
		text = strconv.Itoa(int(v.Integer.Ival))
	case *pgquery.Node_Boolean:
		text = strconv.FormatBool(v.Boolean.Boolval)
	case *pgquery.Node_TypeName: // as the grammar takes bare words that are not reserved
		text = strings.Join(stringsOf(v.TypeName.Names), ".")
	}
	switch strings.ToLower(text) {
	case "true", "on", "1":
		return true, nil
	case "false", "off", "0":
		return false, nil
	}
	return false, b.errorAt(sqlstate.SyntaxError, def.Location, "option %s takes a boolean", def.Defname)
}

// partition decides how the table is cut. Without PARTITION BY a table is hashed on
// the first column of its primary key; without a key it stays whole.
func (c *creation) partition() error {
	c.out.Replicas = c.options.replicas
	c.table.Replicas = c.options.replicas
	spec := c.stmt.Partspec
	var err error
	switch {
	case spec != nil:
		err = c.declared(spec)
	case len(c.table.PrimaryKey) > 0:
		c.table.Partitioning = catalog.Partitioning{Kind: catalog.Hash, Columns: c.table.PrimaryKey[:1]}
	default:
		c.table.Partitioning = catalog.Partitioning{Kind: catalog.Unpartitioned}
	}
	if err != nil {
		return err
	}
	if err := c.partitionKind(); err != nil {
		return err
	}
	switch c.table.Partitioning.Kind {
	case catalog.Hash, catalog.Tenant:
		return c.hashLayout()
	case catalog.Range, catalog.TimeRange:
		return c.rangeLayout()
	}
	return c.wholeLayout()
}

// declared binds PARTITION BY HASH or RANGE (columns).
func (c *creation) declared(spec *pgquery.PartitionSpec) error {
	if err := c.onlyFields(spec, "strategy", "part_params"); err != nil {
		return err
	}
	kind := catalog.Hash
	switch spec.Strategy {
	case pgquery.PartitionStrategy_PARTITION_STRATEGY_HASH:
	case pgquery.PartitionStrategy_PARTITION_STRATEGY_RANGE:
		kind = catalog.Range
	default:
		return c.unsupported(spec.Location, "PARTITION BY LIST")
	}
	var names []string
	for _, n := range spec.PartParams {
		p := n.GetPartitionElem()
		if err := c.onlyFields(p, "name"); err != nil {
			return err
		}
		names = append(names, p.Name)
	}
	columns, err := c.ordinals(names, spec.Location)
	if err != nil {
		return err
	}
	for _, at := range columns {
		column := &c.table.Columns[at]
		if !catalog.KeyableType(column.Type) {
			return c.unsupported(spec.Location, "column %q of type %s in PARTITION BY", column.Name, catalog.TypeName(column.Type))
		}
		if len(c.table.PrimaryKey) > 0 && !slices.Contains(c.table.PrimaryKey, at) {
			return c.errorAt(sqlstate.InvalidTableDefinition, spec.Location,
				"partition column %q is not part of the primary key", column.Name).
				WithHint("A key is checked within a tablet: add the column to the primary key, or partition by columns of the key.")
		}
	}
	c.table.Partitioning = catalog.Partitioning{Kind: kind, Columns: columns}
	return nil
}

// partitionKind applies WITH (partition_kind = ...), which tells a tenant
// column and a time column from others.
func (c *creation) partitionKind() error {
	p := &c.table.Partitioning
	location := c.options.at["partition_kind"]
	switch {
	case c.options.kind == "":
		if _, given := c.options.at["partition_kind"]; given {
			return c.errorAt(sqlstate.InvalidParameter, location, "option partition_kind must be 'tenant' or 'time_range'")
		}
	case c.options.kind == string(catalog.Tenant) && p.Kind == catalog.Hash:
		p.Kind = catalog.Tenant
	case c.options.kind == string(catalog.TimeRange) && p.Kind == catalog.Range:
		switch c.table.Columns[p.Columns[0]].Type.ID() {
		case arrow.DATE32, arrow.TIMESTAMP:
			p.Kind = catalog.TimeRange
		default:
			return c.errorAt(sqlstate.InvalidTableDefinition, location, "partition_kind 'time_range' needs a date or timestamp as first column")
		}
	default:
		return c.errorAt(sqlstate.InvalidParameter, location,
			"option partition_kind must be 'tenant' with PARTITION BY HASH, or 'time_range' with PARTITION BY RANGE")
	}
	return nil
}

func (c *creation) hashLayout() error {
	if err := c.optionUnused("splits", "only a table partitioned by RANGE has splits"); err != nil {
		return err
	}
	buckets := c.options.buckets
	if buckets == 0 {
		buckets = max(defaultBuckets, c.options.tablets)
	}
	c.out.Tablets = max(c.options.tablets, 1)
	if c.out.Tablets > buckets {
		return c.errorAt(sqlstate.InvalidParameter, c.options.at["tablets"], "%d tablets need at least as many buckets, not %d", c.out.Tablets, buckets)
	}
	c.out.Buckets = uint32(buckets)
	c.table.Partitioning.Buckets = c.out.Buckets
	return nil
}

// rangeLayout reads the split points: without them the first tablet owns all.
func (c *creation) rangeLayout() error {
	if err := c.optionUnused("buckets", "only a table partitioned by HASH has buckets"); err != nil {
		return err
	}
	if err := c.readSplits(); err != nil {
		return err
	}
	c.out.Tablets = len(c.out.Splits) + 1
	if n := c.options.tablets; n != 0 && n != c.out.Tablets {
		return c.errorAt(sqlstate.InvalidParameter, c.options.at["tablets"], "%d range tablets need %d splits, not %d", n, n-1, len(c.out.Splits)).
			WithHint("Give the lowest key of every tablet but the first, as in WITH (splits = '1000, 2000').")
	}
	return nil
}

func (c *creation) wholeLayout() error {
	for name, why := range map[string]string{
		"splits":  "only a table partitioned by RANGE has splits",
		"buckets": "only a table partitioned by HASH has buckets",
	} {
		if err := c.optionUnused(name, why); err != nil {
			return err
		}
	}
	if c.options.tablets > 1 {
		return c.errorAt(sqlstate.InvalidParameter, c.options.at["tablets"], "a table that is not partitioned has one tablet").
			WithHint("Declare a primary key, or PARTITION BY HASH (columns).")
	}
	c.out.Tablets = 1
	return nil
}

func (c *creation) optionUnused(name, why string) error {
	if location, given := c.options.at[name]; given {
		return c.errorAt(sqlstate.InvalidParameter, location, "option %s does not apply: %s", name, why)
	}
	return nil
}

// readSplits reads WITH (splits = 'v1, v2, ...'), ascending values of the one
// partition column.
func (c *creation) readSplits() error {
	def := c.options.splits
	if def == nil {
		return nil
	}
	if len(c.table.Partitioning.Columns) != 1 {
		return c.unsupported(def.Location, "splits of more than one partition column")
	}
	list := def.GetArg().GetString_()
	if list == nil {
		return c.errorAt(sqlstate.InvalidParameter, def.Location, "option splits must be a string, as in splits = '1000, 2000'")
	}
	column := &c.table.Columns[c.table.Partitioning.Columns[0]]
	var last []byte
	for text := range strings.SplitSeq(list.Sval, ",") {
		e, err := c.settle(&untyped{text: strings.TrimSpace(text)}, column.Type)
		if err != nil {
			return c.place(err, def.Location)
		}
		l, ok := e.(*planner.Literal)
		if !ok {
			return c.errorAt(sqlstate.InvalidParameter, def.Location, "split %q is not a constant", text)
		}
		key, err := catalog.AppendKeyValue(nil, column.Type, l.Value)
		if err != nil {
			return c.errorAt(sqlstate.InvalidParameter, def.Location, "split %q: %w", text, err)
		}
		if last != nil && string(key) <= string(last) {
			return c.errorAt(sqlstate.InvalidParameter, def.Location, "splits must ascend: %s does not", l)
		}
		last = key
		c.out.Splits = append(c.out.Splits, l)
	}
	if len(c.out.Splits) >= maxTablets {
		return c.errorAt(sqlstate.InvalidParameter, def.Location, "there are %d splits, the limit is %d", len(c.out.Splits), maxTablets-1)
	}
	return nil
}
