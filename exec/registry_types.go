package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

// kind is a class of SQL types, or a pattern over them in a signature.
type kind uint8

const (
	kNone kind = iota
	kUnknown
	kBool
	kInt2
	kInt4
	kInt8
	kReal
	kDouble
	kDecimal
	kText
	kBytea
	kDate
	kTime
	kTimestamp
	kTimestampTZ
	kInterval
	kUUID
	kList
	kStruct

	// pNumber takes numbers, promoted together: the widest integer, decimals
	// with their own precision, or floats.
	pNumber
	// pSame takes values of any one type, promoted to a common type.
	pSame
	// pCompared is pSame but decimals keep their own precision and scale.
	pCompared
	// pAny takes a value of any type as it is.
	pAny
	// pPrintable takes any value that casts to text, as text.
	pPrintable
)

var kindNames = [...]string{
	kUnknown: "unknown", kBool: "boolean", kInt2: "smallint", kInt4: "integer", kInt8: "bigint",
	kReal: "real", kDouble: "double precision", kDecimal: "decimal", kText: "text", kBytea: "bytea",
	kDate: "date", kTime: "time", kTimestamp: "timestamp", kTimestampTZ: "timestamptz",
	kInterval: "interval", kUUID: "uuid", kList: "array", kStruct: "struct",
	pNumber: "number", pSame: "any", pCompared: "any", pAny: "any", pPrintable: "any",
}

func (k kind) String() string { return kindNames[k] }

// kindOf classifies a type, public or physical.
func kindOf(dt arrow.DataType) kind {
	switch dt.ID() {
	case arrow.NULL:
		return kUnknown
	case arrow.BOOL:
		return kBool
	case arrow.INT16:
		return kInt2
	case arrow.INT32:
		return kInt4
	case arrow.INT64:
		return kInt8
	case arrow.FLOAT32:
		return kReal
	case arrow.FLOAT64:
		return kDouble
	case arrow.DECIMAL64, arrow.DECIMAL128:
		return kDecimal
	case arrow.STRING:
		return kText
	case arrow.BINARY:
		return kBytea
	case arrow.DATE32:
		return kDate
	case arrow.TIME64:
		return kTime
	case arrow.TIMESTAMP:
		if dt.(*arrow.TimestampType).TimeZone != "" {
			return kTimestampTZ
		}
		return kTimestamp
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return kInterval
	case arrow.FIXED_SIZE_BINARY:
		return kUUID
	case arrow.LIST:
		return kList
	case arrow.STRUCT:
		return kStruct
	}
	return kNone
}

func (k kind) isInteger() bool { return k >= kInt2 && k <= kInt8 }
func (k kind) isNumber() bool  { return k >= kInt2 && k <= kDecimal }
func (k kind) unifies() bool   { return k == pNumber || k == pSame || k == pCompared }

// integerDigits is how many decimal digits an integer type may have.
func integerDigits(k kind) int {
	switch k {
	case kInt2:
		return 5
	case kInt4:
		return 10
	}
	return 19
}

// decimalFor is the decimal type that holds every value of an integer or
// decimal type.
func decimalFor(dt arrow.DataType) arrow.DataType {
	if p, s, ok := decimalParts(dt); ok {
		return catalog.Decimal(p, s)
	}
	return catalog.Decimal(integerDigits(kindOf(dt)), 0)
}

// typeOfKind is the default type of a concrete kind.
func typeOfKind(k kind) arrow.DataType {
	switch k {
	case kBool:
		return catalog.Boolean
	case kInt2:
		return catalog.SmallInt
	case kInt4:
		return catalog.Integer
	case kInt8:
		return catalog.BigInt
	case kReal:
		return catalog.Real
	case kDouble:
		return catalog.Double
	case kBytea:
		return catalog.Bytea
	case kDate:
		return catalog.Date
	case kTime:
		return catalog.Time
	case kTimestamp:
		return catalog.Timestamp
	case kTimestampTZ:
		return catalog.TimestampTZ
	case kInterval:
		return catalog.Interval
	case kUUID:
		return catalog.UUID
	case kDecimal:
		return catalog.Decimal(catalog.MaxDecimalPrecision, 9)
	}
	return catalog.Text
}

// unknownCost is the cost of giving an untyped literal a type: text is what it
// looks like, and double is what PostgreSQL prefers among numbers.
func unknownCost(k kind) int {
	switch k {
	case kText:
		return 1
	case kDouble, kTimestampTZ:
		return 2
	}
	return 3
}

// accept converts one argument to the type a parameter takes, at a cost that is
// 0 for an exact match.
func (k kind) accept(a arrow.DataType) (arrow.DataType, int, bool) {
	from := kindOf(a)
	switch {
	case k == pAny:
		return a, 0, true
	case k == pPrintable:
		if from == kText {
			return a, 0, true
		}
		return catalog.Text, 2, from != kNone && from != kStruct
	case from == k:
		return catalog.PublicType(a), 0, true
	case from == kUnknown:
		return typeOfKind(k), unknownCost(k), true
	}
	cost, ok := implicitCost(from, k)
	if !ok {
		return nil, 0, false
	}
	if k == kDecimal {
		return decimalFor(a), cost, true
	}
	if ts, ok := a.(*arrow.TimestampType); ok && (k == kTimestamp || k == kTimestampTZ) {
		digits, _ := timestampDigits(ts)
		t, err := catalog.TimestampOf(digits, k == kTimestampTZ)
		return t, cost, err == nil
	}
	return typeOfKind(k), cost, true
}

func timestampDigits(t *arrow.TimestampType) (int, bool) {
	switch t.Unit {
	case arrow.Second:
		return 0, true
	case arrow.Millisecond:
		return 3, true
	case arrow.Microsecond:
		return 6, true
	}
	return 9, true
}

// implicitCost is the cost of an implicit cast between two kinds.
func implicitCost(from, to kind) (int, bool) {
	switch {
	case from.isInteger() && to.isInteger():
		return int(to) - int(from), to > from
	case from.isInteger() && to == kDouble:
		return 4, true
	case from.isInteger() && to == kDecimal:
		return 5, true
	case from.isInteger() && to == kReal:
		return 6, true
	case from == kDecimal && to == kDouble:
		return 4, true
	case from == kDecimal && to == kReal:
		return 6, true
	case from == kReal && to == kDouble:
		return 1, true
	case from == kDate && to == kTimestamp, from == kTimestamp && to == kTimestampTZ:
		return 2, true
	case from == kDate && to == kTimestampTZ:
		return 3, true
	case from == kTime && to == kInterval:
		return 3, true
	}
	return 0, false
}

// unify finds the types that arguments of one unifying pattern take together.
func (k kind) unify(args []arrow.DataType) ([]arrow.DataType, bool) {
	if k == pNumber {
		for _, a := range args {
			if f := kindOf(a); !f.isNumber() && f != kUnknown {
				return nil, false
			}
		}
		if onlyUnknown(args) {
			return nil, false
		}
	}
	common, err := CommonType(args...)
	if err != nil {
		return nil, false
	}
	keep := k != pSame && kindOf(common) == kDecimal
	types := make([]arrow.DataType, len(args))
	for i, a := range args {
		types[i] = common
		if f := kindOf(a); keep && f != kUnknown {
			types[i] = decimalFor(a)
		}
	}
	return types, true
}

// CommonType is the type that values of all the given types convert to
// implicitly, as for the branches of CASE, VALUES rows or IN lists: untyped
// values take the others' type and are text among themselves. It fails with
// SQLSTATE 42804.
func CommonType(types ...arrow.DataType) (arrow.DataType, error) {
	common := catalog.Null
	for _, t := range types {
		c, ok := commonPair(catalog.PublicType(common), catalog.PublicType(t))
		if !ok {
			return nil, sqlstate.New(sqlstate.DatatypeMismatch, "types %s and %s cannot be matched", catalog.TypeName(common), catalog.TypeName(t))
		}
		common = c
	}
	if common.ID() == arrow.NULL {
		return catalog.Text, nil
	}
	return common, nil
}

func commonPair(a, b arrow.DataType) (arrow.DataType, bool) {
	ka, kb := kindOf(a), kindOf(b)
	switch {
	case ka == kUnknown:
		return b, true
	case kb == kUnknown:
		return a, true
	case ka.isNumber() && kb.isNumber():
		return commonNumber(a, b, ka, kb), true
	case isDatetime(ka) && isDatetime(kb) && (ka != kb || ka != kDate):
		return commonDatetime(a, b), true
	case arrow.TypeEqual(a, b):
		return a, true
	}
	return nil, false
}

func isDatetime(k kind) bool { return k == kDate || k == kTimestamp || k == kTimestampTZ }

func commonNumber(a, b arrow.DataType, ka, kb kind) arrow.DataType {
	switch {
	case ka == kDouble || kb == kDouble:
		return catalog.Double
	case ka == kReal && kb == kReal:
		return catalog.Real
	case ka == kReal || kb == kReal:
		return catalog.Double
	case ka == kDecimal || kb == kDecimal:
		p1, s1, _ := decimalParts(decimalFor(a))
		p2, s2, _ := decimalParts(decimalFor(b))
		s := max(s1, s2)
		return catalog.Decimal(min(max(p1-s1, p2-s2)+s, catalog.MaxDecimalPrecision), s)
	}
	return typeOfKind(max(ka, kb))
}

// commonDatetime has the finer unit and a zone when either has one.
func commonDatetime(a, b arrow.DataType) arrow.DataType {
	digits, zone := 0, false
	for _, t := range []arrow.DataType{a, b} {
		if ts, ok := t.(*arrow.TimestampType); ok {
			d, _ := timestampDigits(ts)
			digits, zone = max(digits, d), zone || ts.TimeZone != ""
		}
	}
	t, err := catalog.TimestampOf(digits, zone)
	if err != nil {
		return catalog.Timestamp
	}
	return t
}

// resultRule computes the result type of an overload from the types of its
// arguments after casts.
type resultRule struct {
	name string // for documentation
	of   func(args []arrow.DataType) (arrow.DataType, error)
}

// returns is the rule of a fixed result type.
func returns(dt arrow.DataType) resultRule {
	return resultRule{catalog.TypeName(dt), func([]arrow.DataType) (arrow.DataType, error) { return dt, nil }}
}

// returnsArg is the rule of a result that has the type of one argument.
func returnsArg(i int) resultRule {
	return resultRule{"same type", func(args []arrow.DataType) (arrow.DataType, error) { return args[i], nil }}
}
