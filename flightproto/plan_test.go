package flightproto_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// samePlan compares plans by content: types by meaning, NaN equal to itself.
func samePlan() cmp.Options {
	return cmp.Options{
		cmp.Comparer(func(a, b *arrow.Schema) bool { return a == b || a != nil && b != nil && a.Equal(b) }),
		cmp.Comparer(func(a, b arrow.DataType) bool { return arrow.TypeEqual(a, b) }),
		cmp.Comparer(func(a, b *catalog.Table) bool { return a == b }),
		cmpopts.EquateNaNs(),
		cmp.Exporter(func(reflect.Type) bool { return true }),
	}
}

func resolver(table *catalog.Table) flightproto.TableResolver {
	return func(id catalog.TableID) (*catalog.Table, error) {
		if id != table.ID {
			return nil, sqlstate.New(sqlstate.UndefinedTable, "no table %d", id)
		}
		return table, nil
	}
}

// Fragments survive the wire unchanged, frame included.
func TestFragmentRoundTrip(t *testing.T) {
	table := sampleTable()
	rapid.Check(t, func(t *rapid.T) {
		f := &planner.Fragment{
			ID: planner.FragmentID(rapid.Uint32().Draw(t, "id")), Assignment: planner.Assignment{Tablet: catalog.TabletID(rapid.Uint64().Draw(t, "tablet"))},
			Operators:     rapid.SliceOfN(genOperator(table), 1, 5).Draw(t, "operators"),
			EstimatedRows: rapid.Uint64().Draw(t, "rows"), EstimatedBytes: rapid.Uint64().Draw(t, "bytes"), MaxSpill: rapid.Uint64().Draw(t, "spill"),
		}
		encoded, err := flightproto.EncodeFragment(f, 3)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := flightproto.Encode(&pb.StartRequest{Fragments: []*pb.Fragment{encoded}}, flightproto.MaxMessageBytes)
		if err != nil {
			t.Fatal(err)
		}
		request := &pb.StartRequest{}
		if err := flightproto.Decode(raw, request, flightproto.MaxMessageBytes); err != nil {
			t.Fatal(err)
		}
		if got := request.GetFragments()[0].GetTabletGeneration(); got != 3 {
			t.Fatalf("generation is %d", got)
		}
		back, err := flightproto.DecodeFragment(request.GetFragments()[0], resolver(table))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, back, samePlan()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestExchangeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &planner.Exchange{
			ID: planner.ExchangeID(rapid.Uint32().Draw(t, "id")), Producer: 1, Consumer: planner.FragmentID(rapid.Uint32().Draw(t, "consumer")),
			Kind: rapid.SampledFrom([]planner.ExchangeKind{planner.HashRepartitionExchange, planner.BroadcastExchange, planner.MergeExchange}).Draw(t, "kind"),
			Keys: genOrdinals().Draw(t, "keys"), Partition: rapid.IntRange(0, 9).Draw(t, "partition"), Partitions: rapid.IntRange(0, 9).Draw(t, "partitions"),
			Schema: genSchema().Draw(t, "schema"), Fingerprint: rapid.Uint64().Draw(t, "fingerprint"),
		}
		encoded, err := flightproto.EncodeExchange(x, "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		if encoded.GetProducerAddress() != "127.0.0.1:1" {
			t.Fatalf("address is %q", encoded.GetProducerAddress())
		}
		back, err := flightproto.DecodeExchange(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(x, back, samePlan()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestEveryTypeCrosses(t *testing.T) {
	for _, dt := range sampleTypes() {
		p, err := flightproto.EncodeType(dt)
		if err != nil {
			t.Fatal(err)
		}
		back, err := flightproto.DecodeType(p)
		if err != nil || !arrow.TypeEqual(dt, back) {
			t.Errorf("%s came back as %v, %v", dt, back, err)
		}
	}
	for _, dt := range []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.StructOf(arrow.Field{Name: "a", Type: catalog.Text}), &arrow.FixedSizeBinaryType{ByteWidth: 3}} {
		if _, err := flightproto.EncodeType(dt); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
			t.Errorf("%s: %v", dt, err)
		}
	}
}

func TestSpecialLiterals(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Copysign(0, -1), math.MaxFloat64} {
		e, err := flightproto.EncodeExpr(&planner.Literal{Value: v, DataType: catalog.Double})
		if err != nil {
			t.Fatal(err)
		}
		back, err := flightproto.DecodeExpr(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := back.(*planner.Literal).Value.(float64); math.Float64bits(got) != math.Float64bits(v) {
			t.Errorf("%v came back as %v", v, got)
		}
	}
}

func TestEncodeRefusesBadPlans(t *testing.T) {
	column := &planner.Column{Index: 0, Name: "a", DataType: catalog.BigInt}
	for name, op := range map[string]planner.Operator{
		"nothing":           nil,
		"parameter":         &planner.FilterOp{Predicate: &planner.Param{Ordinal: -1, DataType: catalog.Boolean}},
		"no predicate":      &planner.FilterOp{},
		"negative ordinal":  &planner.FilterOp{Predicate: &planner.Column{Index: -1, DataType: catalog.Boolean}},
		"missing argument":  &planner.FilterOp{Predicate: &planner.Call{Func: "not", Args: []planner.Expr{nil}, DataType: catalog.Boolean}},
		"no else":           &planner.FilterOp{Predicate: &planner.Case{Whens: []planner.When{{Cond: column, Then: column}}, DataType: catalog.BigInt}},
		"value of any type": &planner.FilterOp{Predicate: &planner.Literal{Value: int8(1), DataType: catalog.BigInt}},
		"value and type":    &planner.FilterOp{Predicate: &planner.Literal{Value: "x", DataType: catalog.BigInt}},
		"no type":           &planner.FilterOp{Predicate: &planner.Column{}},
		"no table":          &planner.TabletScan{Tablet: 1},
	} {
		if _, err := flightproto.EncodeFragment(&planner.Fragment{Operators: []planner.Operator{op}}, 0); err == nil {
			t.Errorf("%s was encoded", name)
		}
	}
}

func TestDecodeRefusesBadPlans(t *testing.T) {
	table := sampleTable()
	version := table.Version
	boolean := &pb.Type{Name: "boolean"}
	filter := func(e *pb.Expr) *pb.Operator {
		return &pb.Operator{Kind: &pb.Operator_Filter{Filter: &pb.FilterOp{Predicate: e}}}
	}
	scan := func(table, tablet uint64, columns ...int32) *pb.Operator {
		return &pb.Operator{Kind: &pb.Operator_TabletScan{TabletScan: &pb.TabletScan{TableId: table, TabletId: tablet, Projection: columns, TableVersion: version}}}
	}
	for name, op := range map[string]*pb.Operator{
		"no kind":           {},
		"no predicate":      filter(nil),
		"expr without kind": filter(&pb.Expr{}),
		"unknown type":      filter(&pb.Expr{Kind: &pb.Expr_Column{Column: &pb.Column{Type: &pb.Type{Name: "blob"}}}}),
		"physical text":     filter(&pb.Expr{Kind: &pb.Expr_Column{Column: &pb.Column{Type: &pb.Type{Name: "text", Physical: true}}}}),
		"literal mismatch":  filter(&pb.Expr{Kind: &pb.Expr_Literal{Literal: &pb.Literal{Type: boolean, Value: &pb.Literal_IntValue{IntValue: 1}}}}),
		"cast of nothing":   filter(&pb.Expr{Kind: &pb.Expr_Cast{Cast: &pb.Cast{Type: boolean}}}),
		"case without else": filter(&pb.Expr{Kind: &pb.Expr_Case{Case: &pb.Case{Type: boolean}}}),
		"column beyond":     scan(uint64(table.ID), 21, 4),
		"hidden beyond":     scan(uint64(table.ID), 21, -3),
		"ragged values": {Kind: &pb.Operator_Values{Values: &pb.ValuesSource{
			Schema: &pb.Schema{Fields: []*pb.Field{{Name: "a", Type: boolean}}}, Rows: []*pb.Row{{}}}}},
		"projection schema": {Kind: &pb.Operator_Project{Project: &pb.ProjectOp{Schema: &pb.Schema{Fields: []*pb.Field{{Name: "a", Type: boolean}}}}}},
		"aggregate argument": {Kind: &pb.Operator_PartialAggregate{PartialAggregate: &pb.Aggregate{
			Calls: []*pb.AggCall{{Func: "sum", Arg: -2, Type: boolean}}}}},
	} {
		_, err := flightproto.DecodeFragment(&pb.Fragment{Operators: []*pb.Operator{op}}, resolver(table))
		var form *flightproto.MalformedError
		if !errors.As(err, &form) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := flightproto.DecodeFragment(&pb.Fragment{Operators: []*pb.Operator{scan(404, 1)}}, resolver(table))
	if sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
		t.Errorf("the resolver's error became %v", err)
	}
	_, err = flightproto.DecodeFragment(&pb.Fragment{Operators: []*pb.Operator{scan(uint64(table.ID), 99)}}, resolver(table))
	if sqlstate.CodeOf(err) != sqlstate.SerializationFailure || flightproto.ReasonOf(err) != flightproto.TabletSplit {
		t.Errorf("a tablet that the table has no more: %v", err)
	}
	if _, err := flightproto.DecodeExchange(&pb.Exchange{Kind: "teleport"}); err == nil || !strings.Contains(err.Error(), "teleport") {
		t.Errorf("unknown exchange kind: %v", err)
	}
}
