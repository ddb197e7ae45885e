package flightproto

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/columnar"
)

var forwardSchema = arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)

func numbers(from int64, n int) *columnar.Batch {
	values := make([]int64, n)
	for i := range values {
		values[i] = from + int64(i)
	}
	return &columnar.Batch{Len: n, Cols: []*columnar.Vector{{Type: catalog.BigInt, Len: n, Data: columnar.Bytes(values)}}}
}

// forwardStream collects what a BatchWriter sends.
type forwardStream struct{ sent []*flight.FlightData }

func (f *forwardStream) Send(m *flight.FlightData) error {
	f.sent = append(f.sent, &flight.FlightData{ // the sender may reuse its bytes
		FlightDescriptor: m.FlightDescriptor, DataHeader: bytes.Clone(m.DataHeader),
		AppMetadata: bytes.Clone(m.AppMetadata), DataBody: bytes.Clone(m.DataBody),
	})
	return nil
}

func (f *forwardStream) Recv() (*flight.FlightData, error) {
	if len(f.sent) == 0 {
		return nil, io.EOF
	}
	m := f.sent[0]
	f.sent = f.sent[1:]
	return m, nil
}

// Batches that are passed on and batches that are encoded mix in one stream,
// which has one schema.
func TestForwardedAndEncodedBatchesMix(t *testing.T) {
	for _, order := range []string{"fw", "wf", "f", "w", "", "fwfw"} {
		t.Run(order, func(t *testing.T) {
			to := &forwardStream{}
			out := NewBatchWriter(to, forwardSchema, nil)
			rows := 0
			for i, step := range order {
				var err error
				if step == 'w' {
					err = out.Write(numbers(int64(i), 5))
					rows += 5
				} else {
					err = forwardOne(out, 3000)
					rows += 3000
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			in := NewBatchReader(to, forwardSchema)
			defer in.Close()
			got := 0
			for {
				b, err := in.Next()
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					break
				}
				got += b.Len
			}
			if got != rows {
				t.Errorf("%d rows came, %d were sent", got, rows)
			}
		})
	}
}

func forwardOne(out *BatchWriter, rows int) error {
	encoded := &forwardStream{}
	w := NewBatchWriter(encoded, forwardSchema, nil)
	if err := errors.Join(w.Write(numbers(0, rows)), w.Close()); err != nil {
		return err
	}
	for _, m := range encoded.sent {
		kind, n, err := messageHeader(m.DataHeader)
		if err != nil {
			return err
		}
		if kind != headerRecordBatch {
			continue
		}
		if n != int64(rows) {
			return fmt.Errorf("a batch of %d rows claims %d", rows, n)
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		if err := out.Forward(&Message{Rows: n, raw: &passing{mem.BufferSlice{mem.SliceBuffer(raw)}}}); err != nil {
			return err
		}
	}
	return nil
}

func FuzzMessageHeader(f *testing.F) {
	encoded := &forwardStream{}
	w := NewBatchWriter(encoded, forwardSchema, nil)
	if err := errors.Join(w.Write(numbers(0, 9)), w.Close()); err != nil {
		f.Fatal(err)
	}
	for _, m := range encoded.sent {
		f.Add(m.DataHeader)
	}
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _, _ = messageHeader(raw) // must not panic, whatever it is given
	})
}
