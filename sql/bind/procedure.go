package bind

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// Call runs a procedure. Its arguments are literals once parameters have values.
type Call struct {
	Procedure Procedure
	Args      []planner.Expr // of the procedure's types
}

func (*Call) statement() {}

// Procedure names what a CALL can run.
type Procedure string

// The procedures.
const (
	// CancelQuery cancels the statement whose query id is its argument.
	CancelQuery Procedure = "skein.cancel_query"
	// RotateKey has the cluster sign with a new key.
	RotateKey Procedure = "skein.rotate_key"
	// SetSetting gives a setting of the cluster a value, or with NULL its default.
	SetSetting Procedure = "skein.set_setting"
	// MoveReplica moves a tablet's replica from one node to another.
	MoveReplica Procedure = "skein.move_replica"
	// AbortMove gives up the move of a tablet's replica.
	AbortMove Procedure = "skein.abort_move"
	// TransferLeader makes a node lead a tablet that it has a replica of.
	TransferLeader Procedure = "skein.transfer_leader"
	// DrainNode moves all replicas away from a node.
	DrainNode Procedure = "skein.drain_node"
	// ActivateNode lets a node take replicas again that was drained.
	ActivateNode Procedure = "skein.activate_node"
	// RemoveNode removes a drained node from the cluster.
	RemoveNode Procedure = "skein.remove_node"
	// SplitTablet splits a tablet, in the middle of its rows or at a key, and
	// MergeTablets joins two neighbours.
	SplitTablet  Procedure = "skein.split_tablet"
	MergeTablets Procedure = "skein.merge_tablets"
)

// parameter is one of a procedure's.
type parameter struct {
	name string
	dt   arrow.DataType
}

// procedures are the parameters of each procedure, in the order in which hints
// list them. It is never changed.
var procedures = []struct {
	name       Procedure
	parameters []parameter
	optional   int // of the last ones
}{
	{CancelQuery, []parameter{{"query_id", catalog.Text}}, 0},
	{RotateKey, nil, 0},
	{SetSetting, []parameter{{"name", catalog.Text}, {"value", catalog.Text}}, 0},
	{MoveReplica, []parameter{{"tablet", catalog.BigInt}, {"from_node", catalog.BigInt}, {"to_node", catalog.BigInt}}, 0},
	{AbortMove, []parameter{{"tablet", catalog.BigInt}}, 0},
	{TransferLeader, []parameter{{"tablet", catalog.BigInt}, {"to_node", catalog.BigInt}}, 0},
	{DrainNode, []parameter{{"node", catalog.BigInt}}, 0},
	{ActivateNode, []parameter{{"node", catalog.BigInt}}, 0},
	{RemoveNode, []parameter{{"node", catalog.BigInt}}, 0},
	{SplitTablet, []parameter{{"tablet", catalog.BigInt}, {"key", catalog.Text}}, 1},
	{MergeTablets, []parameter{{"tablet", catalog.BigInt}, {"next_tablet", catalog.BigInt}}, 0},
}

// parameters are a procedure's, those of a number of arguments.
func (p Procedure) parameters(arguments int) ([]parameter, bool) {
	for _, known := range procedures {
		if all := len(known.parameters); known.name == p && arguments <= all && arguments >= all-known.optional {
			return known.parameters[:arguments], true
		}
	}
	return nil, false
}

// usage says how a procedure is called, or what can be called if it is none.
func (p Procedure) usage() string {
	list := make([]string, 0, len(procedures))
	for _, known := range procedures {
		parameters := make([]string, 0, len(known.parameters))
		for i, each := range known.parameters {
			text := each.name + " " + catalog.TypeName(each.dt)
			if i >= len(known.parameters)-known.optional {
				text = "[" + text + "]"
			}
			parameters = append(parameters, text)
		}
		signature := fmt.Sprintf("%s(%s)", known.name, strings.Join(parameters, ", "))
		if known.name == p {
			return signature
		}
		list = append(list, signature)
	}
	return strings.Join(list, ", ")
}

func (b *binder) callProcedure(stmt *pgquery.CallStmt) (*Call, error) {
	f := stmt.Funccall
	if err := b.onlyFields(stmt, "funccall"); err != nil {
		return nil, err
	}
	if err := b.onlyFields(f, "funcname", "args", "funcformat"); err != nil {
		return nil, err
	}
	name := strings.Join(stringsOf(f.Funcname), ".")
	parameters, known := Procedure(name).parameters(len(f.Args))
	if !known {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "procedure %s with %d arguments does not exist", name, len(f.Args)).
			WithHint("There is %s.", Procedure(name).usage())
	}
	out := &Call{Procedure: Procedure(name), Args: make([]planner.Expr, len(parameters))}
	for i, n := range f.Args {
		e, err := b.constantExpr(n, parameters[i].dt, "an argument of "+name)
		if err != nil {
			return nil, err
		}
		if _, open := e.(*planner.Param); !open {
			if n.GetParamRef() != nil {
				return nil, b.unsupported(locationOf(n), "a parameter of type %s as an argument of %s", catalog.TypeName(e.Type()), name)
			}
			if e, err = evaluate(e); err != nil {
				return nil, b.place(err, locationOf(n))
			}
		}
		out.Args[i] = e
	}
	return out, nil
}
