package planner

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
)

// Binding strengths of SQL operators, weakest first.
const (
	precOr = iota + 1
	precAnd
	precNot
	precIs
	precCompare
	precLike
	precOther
	precAdd
	precMultiply
	precPower
	precSign
	precAtom
)

// infix returns the strength of a binary operator.
func infix(op string) (int, bool) {
	switch op {
	case "or":
		return precOr, true
	case "and":
		return precAnd, true
	case "is distinct from", "is not distinct from":
		return precIs, true
	case "=", "<>", "!=", "<", "<=", ">", ">=":
		return precCompare, true
	case "like", "not like", "ilike", "not ilike", "similar to", "not similar to":
		return precLike, true
	case "||", "~", "~*", "!~", "!~*", "&", "|", "#", "<<", ">>":
		return precOther, true
	case "+", "-":
		return precAdd, true
	case "*", "/", "%":
		return precMultiply, true
	case "^":
		return precPower, true
	}
	return 0, false
}

// String prints the column's name, or its ordinal when it has none.
func (e *Column) String() string {
	if e.Name == "" {
		return "#" + strconv.Itoa(e.Index)
	}
	return catalog.QuoteIdent(e.Name)
}

// String prints the call as an operator or as name(arguments).
func (e *Call) String() string {
	switch len(e.Args) {
	case 2:
		if _, ok := infix(e.Func); ok {
			return e.infixString()
		}
	case 1:
		switch {
		case strings.HasPrefix(e.Func, "is "):
			return operand(e.Args[0], precIs+1) + " " + e.Func
		case e.Func == "not":
			return "not " + operand(e.Args[0], precNot)
		case e.Func == "-" || e.Func == "+" || e.Func == "~":
			return e.Func + operand(e.Args[0], precSign+1)
		}
	default:
		if e.Func == "and" || e.Func == "or" {
			return e.infixString()
		}
	}
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = a.String()
	}
	return e.Func + "(" + strings.Join(args, ", ") + ")"
}

// infixString prints operands around the operator. AND and OR associate, so
// neither side needs parentheses at equal strength; arithmetic is left
// associative; comparisons do not chain.
func (e *Call) infixString() string {
	prec, _ := infix(e.Func)
	left, right := prec, prec+1
	switch prec {
	case precOr, precAnd:
		right = prec
	case precIs, precCompare, precLike:
		left = prec + 1
	}
	parts := make([]string, len(e.Args))
	for i, a := range e.Args {
		strength := right
		if i == 0 {
			strength = left
		}
		parts[i] = operand(a, strength)
	}
	return strings.Join(parts, " "+e.Func+" ")
}

// operand prints e, in parentheses when it binds weaker than least.
func operand(e Expr, least int) string {
	if strength(e) < least {
		return "(" + e.String() + ")"
	}
	return e.String()
}

func strength(e Expr) int {
	switch e := e.(type) {
	case *Call:
		prec, ok := infix(e.Func)
		switch {
		case ok && (len(e.Args) == 2 || (prec <= precAnd && len(e.Args) > 2)):
			return prec
		case len(e.Args) != 1:
		case strings.HasPrefix(e.Func, "is "):
			return precIs
		case e.Func == "not":
			return precNot
		case e.Func == "-" || e.Func == "+" || e.Func == "~":
			return precSign
		}
	case *InList:
		return precLike
	case *Literal:
		if strings.HasPrefix(e.String(), "-") {
			return precSign
		}
	}
	return precAtom
}

// String prints the cast in its functional spelling.
func (e *Cast) String() string {
	return "cast(" + e.Arg.String() + " as " + catalog.TypeName(e.DataType) + ")"
}

// String prints the searched CASE.
func (e *Case) String() string {
	var b strings.Builder
	b.WriteString("case")
	for _, w := range e.Whens {
		fmt.Fprintf(&b, " when %s then %s", w.Cond, w.Then)
	}
	fmt.Fprintf(&b, " else %s end", e.Else)
	return b.String()
}

// String prints the membership test.
func (e *InList) String() string {
	items := make([]string, len(e.List))
	for i, l := range e.List {
		items[i] = l.String()
	}
	op := " in ("
	if e.Negate {
		op = " not in ("
	}
	return operand(e.Arg, precLike+1) + op + strings.Join(items, ", ") + ")"
}

// String prints the parameter's number.
func (e *Param) String() string { return "$" + strconv.Itoa(e.Ordinal) }

// String prints the constant as SQL.
func (e *Literal) String() string {
	switch v := e.Value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return e.integerString(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case decimal128.Num:
		if d, ok := e.DataType.(*arrow.Decimal128Type); ok {
			return v.ToString(d.Scale)
		}
		return v.BigInt().String()
	case string:
		return quote(v)
	case []byte:
		if e.DataType.ID() == arrow.FIXED_SIZE_BINARY {
			return "uuid " + quote(uuidText(v))
		}
		return `'\x` + hex.EncodeToString(v) + "'"
	case arrow.MonthDayNanoInterval:
		return fmt.Sprintf("interval '%d months %d days %s seconds'", v.Months, v.Days,
			strconv.FormatFloat(float64(v.Nanoseconds)/1e9, 'f', -1, 64))
	}
	return fmt.Sprint(e.Value)
}

// integerString prints a value whose int64 means what the type says.
func (e *Literal) integerString(v int64) string {
	switch t := e.DataType.(type) {
	case *arrow.Date32Type:
		return "date " + quote(time.Unix(v*86400, 0).UTC().Format(time.DateOnly))
	case *arrow.Time64Type:
		return "time " + quote(time.UnixMicro(v).UTC().Format("15:04:05.999999"))
	case *arrow.TimestampType:
		at := arrow.Timestamp(v).ToTime(t.Unit).UTC()
		if t.TimeZone != "" {
			return "timestamptz " + quote(at.Format("2006-01-02 15:04:05.999999999Z07:00"))
		}
		return "timestamp " + quote(at.Format("2006-01-02 15:04:05.999999999"))
	}
	return strconv.FormatInt(v, 10)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func uuidText(b []byte) string {
	h := hex.EncodeToString(b)
	if len(h) != 32 {
		return h
	}
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
