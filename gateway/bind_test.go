package gateway

import (
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/sql"
	"skein/sqlstate"
)

// sentMessages is a stream that was sent.
type sentMessages struct{ list []*flight.FlightData }

func (s *sentMessages) Send(m *flight.FlightData) error {
	s.list = append(s.list, proto.Clone(m).(*flight.FlightData))
	return nil
}

func (s *sentMessages) Recv() (*flight.FlightData, error) {
	if len(s.list) == 0 {
		return nil, io.EOF
	}
	m := s.list[0]
	s.list = s.list[1:]
	return m, nil
}

// parameterStream sends batches of rows, each of a number as BIGINT, or as text.
func parameterStream(t *testing.T, name string, dt arrow.DataType, batches ...[]int64) *sentMessages {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: name, Type: dt, Nullable: true}}, nil)
	to := &sentMessages{}
	w := flight.NewRecordWriter(to, ipc.WithSchema(schema))
	for _, values := range batches {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for _, v := range values {
			if v < 0 {
				b.Field(0).AppendNull()
			} else if err := b.Field(0).AppendValueFromString(fmt.Sprint(v)); err != nil {
				t.Fatal(err)
			}
		}
		record := b.NewRecordBatch()
		b.Release()
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
		record.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

// Parameters are the same whether a reader was made for their stream or not.
func TestParametersOfManyStreams(t *testing.T) {
	p := &preparedStatement{stmt: &statement{scope: plainScope(), bound: &sql.BoundStatement{Params: []arrow.DataType{catalog.BigInt}}}}
	for i, test := range []struct {
		name    string
		dt      arrow.DataType
		batches [][]int64
		quick   bool // for the next stream
	}{
		{"a", catalog.BigInt, [][]int64{{1}}, true},
		{"a", catalog.BigInt, [][]int64{{2}}, true},
		{"a", catalog.BigInt, [][]int64{{3, -1}, {}, {4}}, true},
		{"b", catalog.BigInt, [][]int64{{5}}, true},
		{"a", arrow.PrimitiveTypes.Int32, [][]int64{{6}, {7}}, true},
		{"a", arrow.BinaryTypes.String, [][]int64{{8}}, true},
		{"a", arrow.BinaryTypes.String, [][]int64{{9}, {-1}}, true},
		{"a", catalog.BigInt, [][]int64{{10}}, true},
	} {
		stream := parameterStream(t, test.name, test.dt, test.batches...)
		first, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.receive(t.Context(), first, stream)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		var want []any
		for _, b := range test.batches {
			for _, v := range b {
				if v < 0 {
					want = append(want, nil)
				} else {
					want = append(want, v)
				}
			}
		}
		var values []any
		for _, set := range got {
			values = append(values, set[0].Value)
		}
		if fmt.Sprint(values) != fmt.Sprint(want) {
			t.Errorf("stream %d: got %v, want %v", i, values, want)
		}
		if p.idle == nil || p.idle.knows(p.stmt.params(), p.stmt.scope.Zone, first) != test.quick {
			t.Errorf("stream %d: the next one of its kind is not quick", i)
		}
	}
}

// The bound on sets of parameters holds over all messages of a stream.
func TestParametersAreBounded(t *testing.T) {
	p := &preparedStatement{stmt: &statement{scope: plainScope(), bound: &sql.BoundStatement{Params: []arrow.DataType{catalog.BigInt}}}}
	half := make([]int64, maxParameterRows/2+1)
	for i := range 2 { // the second stream is read without a reader
		stream := parameterStream(t, "a", catalog.BigInt, half[:1], half, half)
		if i == 0 {
			stream = parameterStream(t, "a", catalog.BigInt, half[:1])
		}
		first, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.receive(t.Context(), first, stream)
		if i == 1 && sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded || i == 0 && err != nil {
			t.Errorf("stream %d: error %v", i, err)
		}
	}
}
