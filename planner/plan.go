package planner

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// FragmentID is a fragment's index in its Plan.
type FragmentID uint32

// ExchangeID is an exchange's index in its Plan.
type ExchangeID uint32

// Defaults of Options.
const (
	DefaultBroadcastThreshold = 8 << 20   // bytes of a small side that is broadcast
	DefaultMaxSpill           = 256 << 20 // spill bytes allowed per fragment
)

// Assignment says where a fragment runs: on a replica of Tablet, or on the
// coordinator when Tablet is 0.
type Assignment struct {
	Tablet catalog.TabletID
}

// Coordinator is the assignment of fragments that run in the gateway.
var Coordinator = Assignment{}

// Operator is one step of a fragment. A fragment's operators are in execution
// order and work on a stack of streams: scans, Values and groups of
// ExchangeSources push one, unary operators replace the top, joins pop the
// right input, then the left one, a UnionAll pops all its inputs, and they push
// their result; ExchangeSinks, last, send the remaining one.
type Operator interface {
	operator()
}

type (
	// TabletScan reads one tablet's slice of a table: the Projection columns
	// (ordinals, RowIDColumn and TabletColumn among them),
	// filtered by Filter (over the projected columns; nil for none).
	TabletScan struct {
		Table      *catalog.Table
		Tablet     catalog.TabletID
		Projection []int
		Filter     Expr
	}
	// ValuesSource pushes constant rows.
	ValuesSource struct {
		Schema *arrow.Schema
		Rows   [][]Expr
	}
	// ExchangeSource receives one exchange. Adjacent sources with the same
	// Input form one stream: merged in key order when a MergeSort of Sorted
	// inputs follows, else interleaved as rows arrive.
	ExchangeSource struct {
		Exchange ExchangeID
		Input    int
		Schema   *arrow.Schema
	}
	// ExchangeSink sends the fragment's output to one exchange.
	ExchangeSink struct {
		Exchange ExchangeID
	}
	// FilterOp keeps the rows for which Predicate is true.
	FilterOp struct {
		Predicate Expr
	}
	// ProjectOp computes one column per expression.
	ProjectOp struct {
		Exprs  []Expr
		Schema *arrow.Schema
	}
	// PartialAggregate folds rows into per-group states: the output is the
	// group columns, then each call's state columns (PartialSchema).
	PartialAggregate struct {
		GroupBy []int
		Calls   []AggCall
		Schema  *arrow.Schema // output, physical state columns included
	}
	// FinalAggregate combines the states of PartialAggregates. GroupBy
	// are ordinals of the partial schema (always 0..n-1).
	FinalAggregate struct {
		GroupBy []int
		Calls   []AggCall
		Schema  *arrow.Schema // output
	}
	// CompleteAggregate computes aggregates from rows in one step, for the calls
	// that have no partial states. All rows of a group are in this fragment.
	CompleteAggregate struct {
		GroupBy []int
		Calls   []AggCall
		Schema  *arrow.Schema // output
	}
	// WindowOp computes window functions; see Window. All rows of a partition
	// are in this fragment.
	WindowOp struct {
		PartitionBy []int
		OrderBy     []SortKey
		Calls       []WindowCall
		Schema      *arrow.Schema // output: the input's columns, one per call
	}
	// UnionAll pops Inputs streams of equal types and pushes all their rows.
	UnionAll struct {
		Inputs int
		Schema *arrow.Schema
	}
	// HashJoin joins the two top streams as Join says. What decides a row of the
	// output is whole in this fragment: of a kept side's rows all that may match
	// them. Build may be either side for every kind.
	HashJoin struct {
		Strategy JoinStrategy
		Kind     JoinKind
		On       []JoinKey
		Residual Expr
		Build    BuildSide
		Schema   *arrow.Schema // output
	}
	// MergeSort sorts a stream locally or, over a group of exchange sources
	// that are Sorted, merges them; Limit -1 keeps all rows.
	MergeSort struct {
		Keys   []SortKey
		Limit  int64
		Sorted bool
	}
	// TopK keeps the first K rows in the order of Keys. Rows that tie rank by Ties,
	// or by all other columns where there are none. With First above 0 it is half
	// of a distributed top-k: a fragment that ends with it sends First rows, the
	// best first, and more when it is asked to; over a group of exchange sources
	// that is to Refill it asks those whose unseen rows may be among the first K.
	TopK struct {
		K      int64
		Keys   []SortKey
		Ties   []SortKey
		First  int64
		Refill bool
	}
	// StoredSource pushes stored rows of the recursion around; only the Step of a
	// RecursiveOp has one. Index 0 is the rows of the last round, others are the
	// recursion's inputs.
	StoredSource struct {
		Index  int
		Schema *arrow.Schema
	}
	// RecursiveOp pops its Inputs, then the seed, and pushes the rows of the seed
	// and those of Step, round after round; see Recursive. It runs on the
	// coordinator only.
	RecursiveOp struct {
		Name     string // for display and errors
		Inputs   int
		Step     []Operator
		Distinct bool
		Schema   *arrow.Schema // output
	}
	// LimitOp skips Offset rows and keeps the next Limit (-1: all).
	LimitOp struct {
		Limit  int64
		Offset int64
	}
)

// JoinStrategy says how the inputs of a join come together.
type JoinStrategy string

// The join strategies, in the order they are tried.
const (
	Colocated   JoinStrategy = "colocated"
	Broadcast   JoinStrategy = "broadcast"
	Repartition JoinStrategy = "repartition"
	// Gathered joins run on the coordinator, when an input already is there.
	Gathered JoinStrategy = "gathered"
)

// BuildSide is the input of a join that is put in the hash table.
type BuildSide string

// The two inputs.
const (
	BuildLeft  BuildSide = "left"
	BuildRight BuildSide = "right"
)

func (*TabletScan) operator()        {}
func (*ValuesSource) operator()      {}
func (*ExchangeSource) operator()    {}
func (*ExchangeSink) operator()      {}
func (*FilterOp) operator()          {}
func (*ProjectOp) operator()         {}
func (*PartialAggregate) operator()  {}
func (*FinalAggregate) operator()    {}
func (*HashJoin) operator()          {}
func (*CompleteAggregate) operator() {}
func (*WindowOp) operator()          {}
func (*UnionAll) operator()          {}
func (*MergeSort) operator()         {}
func (*TopK) operator()              {}
func (*LimitOp) operator()           {}
func (*StoredSource) operator()      {}
func (*RecursiveOp) operator()       {}

// ExchangeKind says how rows cross an exchange.
type ExchangeKind string

// The ways rows cross an exchange.
const (
	HashRepartitionExchange ExchangeKind = "hash-repartition" // routed by hash of Keys over the sibling consumers
	BroadcastExchange       ExchangeKind = "broadcast"        // all rows to every consumer
	MergeExchange           ExchangeKind = "merge"            // all rows to the one consumer
	// SharedExchange sends all rows to each of several consumers, which read them
	// at their own pace: the producer keeps what one of them has not read.
	SharedExchange ExchangeKind = "shared"
)

// Exchange is one edge from a producing to a consuming fragment.
type Exchange struct {
	ID       ExchangeID
	Producer FragmentID
	Consumer FragmentID
	Kind     ExchangeKind
	Keys     []int // of HashRepartitionExchange: producer output ordinals
	// Partition and Partitions place the consumer among its siblings: of the
	// producer's rows it gets those whose key hash is Partition modulo
	// Partitions.
	Partition  int
	Partitions int
	// Schema is what the producer sends; Fingerprint is FNV-1a over its names.
	Schema      *arrow.Schema
	Fingerprint uint64
	// Public says that rows travel in the very types of Schema, because the consumer
	// passes them on to a client without looking at them; else in physical types.
	Public bool
}

// Fragment is the unit of execution: operators that run in one place.
type Fragment struct {
	ID             FragmentID
	Assignment     Assignment
	Operators      []Operator
	EstimatedRows  uint64
	EstimatedBytes uint64
	MaxSpill       uint64 // bytes
	// OperatorRows are the rows that each operator is expected to put out. They
	// serve EXPLAIN and do not travel.
	OperatorRows []uint64
}

// Plan is a distributed plan, pinned to one metadata version. Fragment and
// exchange ids equal their index. Exactly one fragment, the root, has no
// outgoing exchange, and it runs on the coordinator.
type Plan struct {
	QueryID         string
	MetadataVersion uint64
	Fragments       []*Fragment
	Exchanges       []*Exchange
	Schema          *arrow.Schema // of the root's output
}
