package exec

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// randomFunctions draw a new value for every row of every execution. Numbers
// come from the runtime's ChaCha8 generators, which are seeded by the operating
// system; UUIDs from the operating system itself.
func randomFunctions() []*function {
	return []*function{
		{name: "random", volatility: Volatile, doc: "A random number, at least 0 and below 1; with two arguments, a whole number from the first to the second.",
			overloads: []overload{
				{result: returns(catalog.Double), make: plain(func(f *frame) error {
					out := fixedOut[float64](f)
					for i := range out {
						out[i] = rand.Float64()
					}
					return nil
				})},
				{params: []kind{kInt4, kInt4}, result: returns(catalog.Integer), make: plain(randomBetween[int32])},
				{params: []kind{kInt8, kInt8}, result: returns(catalog.BigInt), make: plain(randomBetween[int64])},
			}},
		{name: "gen_random_uuid", volatility: Volatile, neverNull: true, doc: "A random UUID (version 4).", overloads: []overload{
			{result: returns(catalog.UUID), make: plain(randomUUIDs)}}},
	}
}

// randomBetween draws whole numbers from a range, its ends included.
func randomBetween[T int32 | int64](f *frame) error {
	out := fixedOut[T](f)
	return f.each(func(i int) error {
		low, high := at[T](f.args[0], i), at[T](f.args[1], i)
		if low > high {
			return sqlstate.New(sqlstate.InvalidParameter, "the lower bound of random, %d, is above the upper one, %d", low, high)
		}
		if span := uint64(int64(high)) - uint64(int64(low)) + 1; span != 0 {
			out[i] = T(uint64(int64(low)) + rand.Uint64N(span))
		} else { // all of BIGINT
			out[i] = T(rand.Uint64())
		}
		return nil
	})
}

const uuidBytes = 16

// randomUUIDs fills the rows with random bits and sets the version, 4, and the
// variant of RFC 9562.
func randomUUIDs(f *frame) error {
	out := fixedOut[[uuidBytes]byte](f)
	if _, err := crand.Read(columnar.Bytes(out)); err != nil {
		return fmt.Errorf("drawing random UUIDs: %w", err)
	}
	for i := range out {
		out[i][6] = out[i][6]&0x0f | 0x40
		out[i][8] = out[i][8]&0x3f | 0x80
	}
	return nil
}
