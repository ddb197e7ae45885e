package gateway

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

// maxPrecision is the digits of the widest DECIMAL.
const maxPrecision = 38

// sqlTypeOf returns the SQL type that holds every value of an Arrow type a
// client sends: itself where it is one, else the narrowest that loses nothing.
func sqlTypeOf(dt arrow.DataType) (arrow.DataType, error) {
	switch t := dt.(type) {
	case *arrow.DictionaryType:
		return sqlTypeOf(t.ValueType)
	case *arrow.RunEndEncodedType:
		return sqlTypeOf(t.Encoded())
	case arrow.ExtensionType:
		if t.ExtensionName() == "arrow.uuid" {
			return catalog.UUID, nil
		}
		return sqlTypeOf(t.StorageType())
	case *arrow.Decimal32Type:
		return catalog.Decimal(int(t.Precision), int(t.Scale)), nil
	case *arrow.Decimal64Type:
		return catalog.Decimal(int(t.Precision), int(t.Scale)), nil
	case *arrow.Decimal128Type:
		if t.Scale < 0 || t.Scale > t.Precision {
			return nil, fmt.Errorf("arrow type %s has a scale that DECIMAL cannot have", dt)
		}
		return t, nil
	case *arrow.Decimal256Type: // values of more than 38 digits fail one by one
		precision := min(t.Precision, maxPrecision)
		if t.Scale < 0 || t.Scale > precision {
			return nil, fmt.Errorf("arrow type %s has a scale that DECIMAL cannot have", dt)
		}
		return catalog.Decimal(int(precision), int(t.Scale)), nil
	case *arrow.TimestampType:
		tz := ""
		if t.TimeZone != "" {
			tz = "UTC"
		}
		return &arrow.TimestampType{Unit: t.Unit, TimeZone: tz}, nil
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return catalog.UUID, nil
		}
		return catalog.Bytea, nil
	}
	switch dt.ID() {
	case arrow.BOOL:
		return catalog.Boolean, nil
	case arrow.INT8, arrow.UINT8, arrow.INT16:
		return catalog.SmallInt, nil
	case arrow.UINT16, arrow.INT32:
		return catalog.Integer, nil
	case arrow.UINT32, arrow.INT64:
		return catalog.BigInt, nil
	case arrow.UINT64:
		return catalog.Decimal(20, 0), nil
	case arrow.FLOAT16, arrow.FLOAT32:
		return catalog.Real, nil
	case arrow.FLOAT64:
		return catalog.Double, nil
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.NULL:
		return catalog.Text, nil
	case arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW:
		return catalog.Bytea, nil
	case arrow.DATE32, arrow.DATE64:
		return catalog.Date, nil
	case arrow.TIME32, arrow.TIME64:
		return catalog.Time, nil
	case arrow.DURATION, arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO:
		return catalog.Interval, nil
	}
	return nil, fmt.Errorf("arrow type %s has no SQL type", dt)
}

// ingestColumns derives the columns of a table created by an ingest.
func ingestColumns(schema *arrow.Schema) ([]catalog.Column, error) {
	if schema.NumFields() == 0 {
		return nil, sqlstate.New(sqlstate.InvalidTableDefinition, "the ingested data has no columns")
	}
	columns := make([]catalog.Column, schema.NumFields())
	seen := make(map[string]bool, len(columns))
	for i, f := range schema.Fields() {
		dt, err := sqlTypeOf(f.Type)
		if err != nil {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "column %q cannot be stored: %w", f.Name, err)
		}
		if seen[f.Name] || f.Name == "" {
			return nil, sqlstate.New(sqlstate.DuplicateColumn, "column name %q is empty or specified more than once", f.Name)
		}
		seen[f.Name] = true
		columns[i] = catalog.Column{Name: f.Name, Type: dt, Nullable: f.Nullable || f.Type.ID() == arrow.NULL}
	}
	return columns, nil
}
