package flightproto

import (
	"strconv"

	"google.golang.org/grpc/metadata"
)

// clockTrailer carries the clock of a worker behind the rows of a stream.
const clockTrailer = "skein-clock"

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
