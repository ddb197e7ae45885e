package bind

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// noName is what PostgreSQL calls an output column it has no name for.
const noName = "?column?"

// outputName is the name of an output column without an alias, chosen as
// PostgreSQL does.
func outputName(n *pgquery.Node) string {
	if name, _ := figureName(n); name != "" {
		return name
	}
	return noName
}

// figureName returns a name and how good it is: 2 for a column's or function's,
// 1 for a type's or CASE, which an enclosing node may better.
func figureName(n *pgquery.Node) (string, int) {
	switch e := n.GetNode().(type) {
	case *pgquery.Node_ColumnRef:
		if last := e.ColumnRef.Fields[len(e.ColumnRef.Fields)-1].GetString_(); last != nil {
			return last.Sval, 2
		}
	case *pgquery.Node_FuncCall:
		if last := e.FuncCall.Funcname[len(e.FuncCall.Funcname)-1].GetString_(); last != nil {
			return last.Sval, 2
		}
	case *pgquery.Node_AExpr:
		if e.AExpr.Kind == pgquery.A_Expr_Kind_AEXPR_NULLIF {
			return "nullif", 2
		}
	case *pgquery.Node_SubLink:
		return sublinkName(e.SubLink)
	case *pgquery.Node_GroupingFunc:
		return "grouping", 2
	case *pgquery.Node_SqlvalueFunction:
		return clockName(e.SqlvalueFunction.Op), 2
	case *pgquery.Node_TypeCast:
		if name, strength := figureName(e.TypeCast.Arg); strength > 1 {
			return name, strength
		}
		names := e.TypeCast.TypeName.GetNames()
		if len(names) > 0 {
			return names[len(names)-1].GetString_().GetSval(), 1
		}
	case *pgquery.Node_CaseExpr:
		if name, strength := figureName(e.CaseExpr.Defresult); strength > 1 {
			return name, strength
		}
		return "case", 1
	case *pgquery.Node_CoalesceExpr:
		return "coalesce", 2
	case *pgquery.Node_MinMaxExpr:
		if e.MinMaxExpr.Op == pgquery.MinMaxOp_IS_GREATEST {
			return "greatest", 2
		}
		return "least", 2
	}
	return "", 0
}

// sublinkName names a subquery: a value after its one column.
func sublinkName(e *pgquery.SubLink) (string, int) {
	switch e.SubLinkType {
	case pgquery.SubLinkType_EXISTS_SUBLINK:
		return "exists", 2
	case pgquery.SubLinkType_EXPR_SUBLINK:
		targets := e.Subselect.GetSelectStmt().GetTargetList()
		if len(targets) != 1 {
			return "", 0
		}
		t := targets[0].GetResTarget()
		if t.GetName() != "" {
			return t.GetName(), 2
		}
		return figureName(t.GetVal())
	}
	return "", 0
}

func clockName(op pgquery.SQLValueFunctionOp) string {
	switch op {
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_SCHEMA:
		return "current_schema"
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_DATE:
		return "current_date"
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP:
		return "current_timestamp"
	case pgquery.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP:
		return "localtimestamp"
	case pgquery.SQLValueFunctionOp_SVFOP_LOCALTIME:
		return "localtime"
	}
	return ""
}
