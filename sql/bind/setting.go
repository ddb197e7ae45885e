package bind

import (
	"strconv"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// Set changes settings of the session.
type Set struct {
	// Name is the setting, in lower case; "" is all of them, with Reset.
	Name string
	// Values are the constants given, as text: one unless the setting is a list.
	Values []string
	// Reset gives back the value that the session began with.
	Reset bool
}

// Show asks for the value of a setting.
type Show struct {
	Name string // in lower case; "" is all of them
}

func (*Set) statement()  {}
func (*Show) statement() {}

// set binds SET and RESET. Which settings there are, and what values they take, is
// for whoever runs it to say.
func (b *binder) set(stmt *pgquery.VariableSetStmt) (*Set, error) {
	if err := b.onlyFields(stmt, "kind", "name", "args", "is_local"); err != nil {
		return nil, err
	}
	if stmt.IsLocal {
		return nil, b.unsupported(-1, "SET LOCAL").WithHint("SET lasts until the session ends.")
	}
	name := strings.ToLower(stmt.Name)
	switch stmt.Kind {
	case pgquery.VariableSetKind_VAR_RESET_ALL:
		return &Set{Reset: true}, nil
	case pgquery.VariableSetKind_VAR_RESET, pgquery.VariableSetKind_VAR_SET_DEFAULT:
		return &Set{Name: name, Reset: true}, nil
	case pgquery.VariableSetKind_VAR_SET_VALUE:
	default:
		return nil, b.unsupported(-1, "SET %s", strings.ToUpper(name))
	}
	out := &Set{Name: name}
	for _, n := range stmt.Args {
		value, ok := settingText(n.GetAConst())
		if !ok {
			return nil, b.unsupported(locationOf(n), "this form of a value in SET %s", stmt.Name).WithHint("Write it as a string.")
		}
		out.Values = append(out.Values, value)
	}
	return out, nil
}

// settingText is a constant of SET as text.
func settingText(c *pgquery.A_Const) (string, bool) {
	switch v := c.GetVal().(type) {
	case *pgquery.A_Const_Sval:
		return v.Sval.Sval, true
	case *pgquery.A_Const_Ival:
		return strconv.Itoa(int(v.Ival.Ival)), true
	case *pgquery.A_Const_Fval:
		return v.Fval.Fval, true
	case *pgquery.A_Const_Boolval:
		return strconv.FormatBool(v.Boolval.Boolval), true
	}
	return "", false
}

func (b *binder) show(stmt *pgquery.VariableShowStmt) (*Show, error) {
	if err := b.onlyFields(stmt, "name"); err != nil {
		return nil, err
	}
	name := strings.ToLower(stmt.Name)
	if name == "all" {
		name = ""
	}
	return &Show{Name: name}, nil
}
