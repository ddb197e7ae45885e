package consensus

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"skein/catalog"
	"skein/sqlstate"
)

// Limits of one table, as PostgreSQL's where it has them.
const (
	maxColumns = 1600
	maxTablets = 4096
	// maxName bounds a name in bytes: as many as a statement can say. A column's may
	// be longer, which an ingest sends and SELECT * returns, but must still fit into
	// errors and listings.
	maxName       = 63
	maxColumnName = 255
)

// validateName checks the name of a table or column that is to be stored.
func validateName(what, name string) *sqlstate.Error {
	limit := maxName
	if what == "column" {
		limit = maxColumnName
	}
	switch {
	case len(name) > limit:
		return sqlstate.New(sqlstate.NameTooLong, "the name of a %s has %d bytes, %d are possible: %.60q...", what, len(name), limit, name)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return sqlstate.New(sqlstate.InvalidByteSequence, "the %s name %q holds a NUL character or bytes that are not UTF-8", what, name)
	}
	return nil
}

// validateTable checks a table that is to be created: what every layer above
// relies on without looking again.
func validateTable(t *catalog.Table) *sqlstate.Error {
	if t == nil || t.Name == "" || t.Schema == "" {
		return sqlstate.New(sqlstate.InvalidTableDefinition, "a table needs a schema and a name")
	}
	if err := validateName("table", t.Name); err != nil {
		return err
	}
	name := t.QualifiedName()
	if len(t.Columns) == 0 || len(t.Columns) > maxColumns {
		return sqlstate.New(sqlstate.InvalidTableDefinition, "table %s has %d columns, 1 to %d are possible", name, len(t.Columns), maxColumns)
	}
	seen, ids := make(map[string]bool, len(t.Columns)), make(map[int]bool, len(t.Columns))
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Name == "" || c.Type == nil {
			return sqlstate.New(sqlstate.InvalidTableDefinition, "column %d of table %s has no name or type", i+1, name)
		}
		if err := validateName("column", c.Name); err != nil {
			return err
		}
		if seen[c.Name] {
			return sqlstate.New(sqlstate.DuplicateColumn, "column %q of table %s is specified more than once", c.Name, name)
		}
		seen[c.Name] = true
		if c.ID < 0 || (c.ID > 0 && ids[c.ID]) {
			return sqlstate.New(sqlstate.InvalidTableDefinition, "column %q of table %s has the id %d, which is not its own", c.Name, name, c.ID)
		}
		ids[c.ID] = true
	}
	if err := validateOrdinals(t, "primary key", t.PrimaryKey); err != nil {
		return err
	}
	for _, i := range t.PrimaryKey {
		if t.Columns[i].Nullable {
			return sqlstate.New(sqlstate.InvalidTableDefinition, "primary key column %q of table %s must not be nullable", t.Columns[i].Name, name)
		}
	}
	if err := validateOrdinals(t, "partition key", t.Partitioning.Columns); err != nil {
		return err
	}
	return validateLayout(t)
}

func validateOrdinals(t *catalog.Table, what string, ordinals []int) *sqlstate.Error {
	seen := make(map[int]bool, len(ordinals))
	for _, i := range ordinals {
		if i < 0 || i >= len(t.Columns) {
			return sqlstate.New(sqlstate.InvalidColumnReference, "the %s of table %s names column %d of %d", what, t.QualifiedName(), i+1, len(t.Columns))
		}
		if seen[i] {
			return sqlstate.New(sqlstate.InvalidColumnReference, "the %s of table %s names column %q twice", what, t.QualifiedName(), t.Columns[i].Name)
		}
		seen[i] = true
	}
	return nil
}

// validateLayout checks that the tablets cover the whole key space exactly once.
func validateLayout(t *catalog.Table) *sqlstate.Error {
	bad := func(format string, args ...any) *sqlstate.Error {
		return sqlstate.New(sqlstate.InvalidTableDefinition, "tablets of table %s: "+format, append([]any{t.QualifiedName()}, args...)...)
	}
	n := len(t.Tablets)
	if n == 0 || n > maxTablets {
		return bad("there are %d, 1 to %d are possible", n, maxTablets)
	}
	p := t.Partitioning
	switch p.Kind {
	case catalog.Unpartitioned:
		if n != 1 || len(p.Columns) != 0 {
			return bad("an unpartitioned table has one tablet and no partition columns")
		}
	case catalog.Hash, catalog.Tenant:
		if len(p.Columns) == 0 || p.Buckets == 0 {
			return bad("hash partitioning needs columns and buckets")
		}
		next := uint32(0)
		for i := range t.Tablets {
			tablet := &t.Tablets[i]
			if tablet.BucketLow != next || tablet.BucketHigh <= tablet.BucketLow {
				return bad("number %d owns buckets %d to %d where %d should start", i, tablet.BucketLow, tablet.BucketHigh, next)
			}
			next = tablet.BucketHigh
		}
		if next != p.Buckets {
			return bad("they cover %d of %d buckets", next, p.Buckets)
		}
	case catalog.Range, catalog.TimeRange:
		if len(p.Columns) == 0 {
			return bad("range partitioning needs columns")
		}
		return validateRanges(t, bad)
	default:
		return bad("unknown partitioning %q", p.Kind)
	}
	return nil
}

func validateRanges(t *catalog.Table, bad func(string, ...any) *sqlstate.Error) *sqlstate.Error {
	n := len(t.Tablets)
	for i := range t.Tablets {
		low, high := t.Tablets[i].KeyLow, t.Tablets[i].KeyHigh
		switch {
		case i == 0 && len(low) != 0:
			return bad("the first must be unbounded below")
		case i > 0 && !bytes.Equal(low, t.Tablets[i-1].KeyHigh):
			return bad("number %d does not start where number %d ends", i, i-1)
		case i == n-1 && len(high) != 0:
			return bad("the last must be unbounded above")
		case i < n-1 && (len(high) == 0 || bytes.Compare(low, high) >= 0):
			return bad("number %d has an empty or unordered range", i)
		}
	}
	return nil
}
