package bind

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// anyArray binds x op ANY (array) and ALL over the elements of an array that is
// written out: ARRAY[...], or the text of one.
func (b *binder) anyArray(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	op, err := b.operatorName(e)
	if err != nil {
		return nil, err
	}
	elements, ok, err := b.arrayElements(e.Rexpr, nil)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, b.unsupported(e.Location, "ANY or ALL over an array that is not a constant")
	}
	all := e.Kind == pgquery.A_Expr_Kind_AEXPR_OP_ALL
	subject, err := b.expr(e.Lexpr, c)
	if err != nil {
		return nil, err
	}
	if len(elements) == 0 {
		return b.at(planner.BoolLiteral(all), e.Location), nil
	}
	values, err := b.exprs(elements, c)
	if err != nil {
		return nil, err
	}
	if subject, err = b.inSubject(subject, values); err != nil {
		return nil, err
	}
	if op == "=" && !all || op == "<>" && all {
		return b.membership(subject, values, all, e.Location)
	}
	switch op {
	case "=", "<>", "<", "<=", ">", ">=":
	default:
		return nil, b.unsupported(e.Location, "operator %s before ANY or ALL", op)
	}
	conds := make([]planner.Expr, len(values))
	for i, v := range values {
		if conds[i], err = b.compare(op, subject, v, e.Location); err != nil {
			return nil, err
		}
	}
	if all {
		return b.connect("and", conds, e.Location), nil
	}
	return b.connect("or", conds, e.Location), nil
}

// arrayElements are the elements of an array that is written out, each cast to
// what the array is cast to; ok reports whether it is one.
func (b *binder) arrayElements(n *pgquery.Node, as *pgquery.TypeName) (elements []*pgquery.Node, ok bool, err error) {
	if cast := n.GetTypeCast(); cast != nil && len(cast.TypeName.GetArrayBounds()) == 1 {
		element := &pgquery.TypeName{
			Names: cast.TypeName.Names, Typmods: cast.TypeName.Typmods, Typemod: cast.TypeName.Typemod, Location: cast.TypeName.Location,
		}
		return b.arrayElements(cast.Arg, element)
	}
	if array := n.GetAArrayExpr(); array != nil {
		elements = array.Elements
	} else {
		text := n.GetAConst().GetSval()
		if text == nil {
			return nil, false, nil
		}
		location := n.GetAConst().Location
		list, err := splitArray(text.Sval)
		if err != nil {
			return nil, false, b.errorAt(sqlstate.InvalidText, location, "malformed array literal: %q", text.Sval)
		}
		for _, item := range list {
			constant := &pgquery.A_Const{Location: location, Isnull: item == nil}
			if item != nil {
				constant.Val = &pgquery.A_Const_Sval{Sval: &pgquery.String{Sval: *item}}
			}
			elements = append(elements, &pgquery.Node{Node: &pgquery.Node_AConst{AConst: constant}})
		}
	}
	if as == nil {
		return elements, true, nil
	}
	for i, element := range elements {
		elements[i] = &pgquery.Node{Node: &pgquery.Node_TypeCast{TypeCast: &pgquery.TypeCast{Arg: element, TypeName: as, Location: as.Location}}}
	}
	return elements, true, nil
}

// splitArray takes the text of an array of one dimension apart, as in
// {1,NULL,"a b"}; nil is NULL.
func splitArray(text string) ([]*string, error) {
	body := strings.TrimSpace(text)
	if len(body) < 2 || body[0] != '{' || body[len(body)-1] != '}' {
		return nil, errMalformedArray
	}
	body = strings.TrimSpace(body[1 : len(body)-1])
	if body == "" {
		return nil, nil
	}
	var out []*string
	for {
		item, quoted, rest, err := arrayItem(body)
		if err != nil {
			return nil, err
		}
		if !quoted && strings.EqualFold(item, "null") {
			out = append(out, nil)
		} else {
			out = append(out, &item)
		}
		if rest == "" {
			return out, nil
		}
		body = strings.TrimLeft(rest[1:], " \t\n")
	}
}

var errMalformedArray = sqlstate.New(sqlstate.InvalidText, "malformed array literal")

// arrayItem is the first element of an array's text; rest begins with the comma
// behind it.
func arrayItem(body string) (item string, quoted bool, rest string, err error) {
	var out strings.Builder
	inside := false
	for i := 0; i < len(body); i++ {
		switch ch := body[i]; {
		case ch == '\\' && i+1 < len(body):
			i++
			out.WriteByte(body[i])
			quoted = true
		case ch == '"':
			inside, quoted = !inside, true
		case inside:
			out.WriteByte(ch)
		case ch == ',':
			return finishItem(out.String(), quoted, body[i:])
		case ch == '{' || ch == '}':
			return "", false, "", errMalformedArray
		default:
			out.WriteByte(ch)
		}
	}
	if inside {
		return "", false, "", errMalformedArray
	}
	return finishItem(out.String(), quoted, "")
}

func finishItem(text string, quoted bool, rest string) (string, bool, string, error) {
	if quoted {
		return text, true, rest, nil
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", false, "", errMalformedArray
	}
	return text, false, rest, nil
}
