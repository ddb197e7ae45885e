package flightproto

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/sqlstate"
)

// dataStream keeps what is written to it.
type dataStream struct{ sent []*flight.FlightData }

func (s *dataStream) Send(d *flight.FlightData) error {
	s.sent = append(s.sent, &flight.FlightData{
		DataHeader: append([]byte(nil), d.DataHeader...), DataBody: append([]byte(nil), d.DataBody...)})
	return nil
}

// manyTypes are messages of a stream with nested, union and dictionary types.
func manyTypes(t testing.TB, options ...ipc.Option) []*flight.FlightData {
	t.Helper()
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true, Metadata: md},
		{Name: "t", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "v", Type: arrow.BinaryTypes.StringView, Nullable: true},
		{Name: "l", Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true})), Nullable: true},
		{Name: "d", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
		{Name: "u", Type: arrow.DenseUnionOf([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int32}, {Name: "y", Type: arrow.BinaryTypes.String}}, []int8{0, 1})},
		{Name: "z", Type: arrow.Null, Nullable: true},
	}, &md)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[
		{"n": 1, "t": "text", "v": "a longer text than twelve bytes", "l": [{"a": 1}, {"a": null}], "d": "x", "u": [0, 5], "z": null},
		{"n": null, "t": null, "v": null, "l": null, "d": null, "u": [1, "y"], "z": null}]`))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	var to dataStream
	w := flight.NewRecordWriter(&to, append(options, ipc.WithSchema(schema))...)
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return to.sent
}

func TestCheckDataTakesWhatIsSound(t *testing.T) {
	for name, options := range map[string][]ipc.Option{"plain": nil, "LZ4": {ipc.WithLZ4()}, "ZSTD": {ipc.WithZstd()}} {
		messages := manyTypes(t, options...)
		if len(messages) < 3 {
			t.Fatalf("%s: %d messages", name, len(messages))
		}
		for i, d := range messages {
			if err := CheckData(d, 1<<20); err != nil {
				t.Errorf("%s, message %d: %v", name, i, err)
			}
		}
	}
}

// withLength replaces, one at a time, what may be the length of a vector or batch.
func withLength(d *flight.FlightData, old, replaced uint64, width int) []*flight.FlightData {
	var out []*flight.FlightData
	for at := 0; at+width <= len(d.DataHeader); at += 4 {
		read, write := uint64(0), append([]byte(nil), d.DataHeader...)
		if width == 4 {
			read = uint64(binary.LittleEndian.Uint32(write[at:]))
			binary.LittleEndian.PutUint32(write[at:], uint32(replaced))
		} else {
			read = binary.LittleEndian.Uint64(write[at:])
			binary.LittleEndian.PutUint64(write[at:], replaced)
		}
		if read == old {
			out = append(out, &flight.FlightData{DataHeader: write, DataBody: d.DataBody})
		}
	}
	return out
}

func TestCheckDataRefusesWhatWouldTakeAllMemory(t *testing.T) {
	messages := manyTypes(t, ipc.WithLZ4())
	schema, batch := messages[0], messages[len(messages)-1]
	refused := 0
	for _, d := range withLength(schema, 7, 1<<31, 4) { // 7 fields
		if sqlstate.CodeOf(CheckData(d, 1<<20)) == sqlstate.ProtocolViolation {
			refused++
		}
	}
	if refused == 0 {
		t.Error("2^31 fields are taken")
	}
	refused = 0
	for _, d := range withLength(batch, 2, 1<<40, 8) { // 2 rows
		if sqlstate.CodeOf(CheckData(d, 1<<20)) == sqlstate.ProgramLimitExceeded {
			refused++
		}
	}
	if refused == 0 {
		t.Error("2^40 rows are taken")
	}
	if err := CheckData(batch, 8); sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded {
		t.Errorf("more bytes decompressed than the limit: %v", err)
	}
}

// Whatever the bytes, the check comes to an end without a panic.
func TestCheckDataOfDamage(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	messages := append(manyTypes(t), manyTypes(t, ipc.WithLZ4())...)
	refused := 0
	for range 200_000 {
		d := messages[rng.IntN(len(messages))]
		spoilt := &flight.FlightData{DataHeader: append([]byte(nil), d.DataHeader...), DataBody: d.DataBody}
		for range 1 + rng.IntN(3) {
			spoilt.DataHeader[rng.IntN(len(spoilt.DataHeader))] = byte(rng.Uint32())
		}
		if CheckData(spoilt, 1<<20) != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no damage was found")
	}
}
