package sqldiff

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// params are the parameters of a prepared statement in Skein: the constants
// that stood in their places.
type params struct {
	values []any // string or int64
	places map[*Expr]string
}

var (
	quoted  = regexp.MustCompile(`^'(.*)'$`)
	whole   = regexp.MustCompile(`^\(?(-?[0-9]+)\)?$`)
	written = regexp.MustCompile(`^CAST\('([^']*)' AS ([A-Z0-9(),]+)\)$`)
)

// of prints the parameter for a constant; false for those that stay. A constant
// that is printed twice is one parameter.
func (p *params) of(e *Expr) (string, bool) {
	if text, ok := p.places[e]; ok {
		return text, true
	}
	n := len(p.values) + 1
	var value any
	var text string
	if m := written.FindStringSubmatch(e.Skein); m != nil {
		value, text = m[1], fmt.Sprintf("CAST(CAST($%d AS TEXT) AS %s)", n, m[2])
	} else if m := whole.FindStringSubmatch(e.Skein); m != nil {
		number, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return "", false
		}
		value, text = number, fmt.Sprintf("CAST(CAST($%d AS BIGINT) AS %s)", n, e.Type)
	} else if m := quoted.FindStringSubmatch(e.Skein); m != nil {
		value, text = strings.ReplaceAll(m[1], "''", "'"), fmt.Sprintf("CAST($%d AS TEXT)", n)
	} else {
		return "", false
	}
	p.values = append(p.values, value)
	p.places[e] = text
	return text, true
}

// PreparedSQL prints a query for Skein with parameters in place of constants.
func (q *Query) PreparedSQL() (text string, values []any) {
	p := &printer{dialect: Skein, params: &params{places: make(map[*Expr]string)}}
	q.render(p)
	return p.String(), p.params.values
}
