package flightproto

import (
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"

	"skein/sqlstate"
)

// Trailers of a stream of rows.
const (
	clockTrailer = "skein-clock" // the clock of the worker
	endTrailer   = "skein-end"   // proves that all rows came
)

// ClockTrailer is the trailer that tells a worker's clock.
func ClockTrailer(clock uint64) metadata.MD {
	return metadata.Pairs(clockTrailer, strconv.FormatUint(clock, 10))
}

// clockOf reads a trailer; 0 if it tells no clock.
func clockOf(trailer metadata.MD) uint64 {
	values := trailer.Get(clockTrailer)
	if len(values) != 1 {
		return 0
	}
	clock, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil {
		return 0
	}
	return clock
}

// tally is what both ends of a stream count of its messages, so that the end
// marker shows when one was lost, repeated, moved or cut. The headers, which hold
// the rows and the size of every buffer, are hashed in order; of bodies, which
// are large and have the transport's checksums, only the sizes count.
type tally struct {
	messages uint64
	bytes    uint64 // of headers, bodies and metadata
	headers  uint32 // CRC-32C of all headers, one after the other
}

func (t *tally) add(header []byte, body, appMetadata int) {
	t.messages++
	t.bytes += uint64(len(header) + body + appMetadata)
	t.headers = crc32.Update(t.headers, castagnoli, header)
}

func (t *tally) addData(m *flight.FlightData) {
	t.add(m.GetDataHeader(), len(m.GetDataBody()), len(m.GetAppMetadata()))
}

func (t tally) String() string { return fmt.Sprintf("%d,%d,%08x", t.messages, t.bytes, t.headers) }

// trailer is the end marker of a stream that was sent.
func (t tally) trailer() metadata.MD { return metadata.Pairs(endTrailer, t.String()) }

// check compares what came of a stream with its end marker. A difference is
// the connection's fault: a sqlstate.ConnectionFailure with reason Unavailable.
func (t tally) check(address string, trailer metadata.MD) error {
	sent := trailer.Get(endTrailer)
	if len(sent) == 1 && sent[0] == t.String() {
		return nil
	}
	failure := sqlstate.New(sqlstate.ConnectionFailure, "the stream of rows from worker %s is incomplete or damaged", address)
	if len(sent) == 1 {
		failure = failure.WithDetail("Messages, bytes and checksum are %s where %s were sent.", t, sent[0])
	} else {
		failure = failure.WithDetail("It ended without its end marker after %d messages.", t.messages)
	}
	return WithReason(Unavailable, failure.WithHint("Run the query again; check the network if this happens more than once."))
}
