package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime/debug"

	"github.com/dgraph-io/badger/v4"
)

// Badger verifies small values, which lie in its tables and logs, but not the
// large ones of its value log. Those carry a CRC-32C of their own at the end,
// which the entry's user byte says.
const valueSummed = 1

// entryOf is the entry that stores a value. It keeps the key, and the value if
// it is small.
func entryOf(key, value []byte) *badger.Entry {
	if len(value) < valueThreshold {
		return badger.NewEntry(key, value)
	}
	summed := append(make([]byte, 0, len(value)+crc32.Size), value...)
	summed = binary.BigEndian.AppendUint32(summed, crc32.Checksum(value, castagnoli))
	return badger.NewEntry(key, summed).WithMeta(valueSummed)
}

// isPart reports whether a database key is that of a segment's part. Chunks in
// it have checksums, so that reading one need not read all of the part.
func isPart(key []byte) bool {
	return len(key) > len("dt")+16 && key[1] == byte(spaceTablet) && key[len("dt")+16] == keyPart
}

// itemValue passes an item's value to read, which must not keep it; whole asks
// for the checksum of parts, too. Badger answers with nothing when a value log
// file is rewritten between the look-up and the read. On damaged files it
// panics, or meets a memory fault, which become errors.
func itemValue(item *badger.Item, whole bool, read func([]byte) error) (err error) {
	reading := false
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reading {
			return // not Badger's: an ordinary return, or a panic of read
		}
		if r := recover(); r != nil {
			err = fmt.Errorf("the value log does not parse: %v", r)
		}
	}()
	return item.Value(func(value []byte) error {
		if item.UserMeta()&valueSummed != 0 && len(value) > 0 {
			if len(value) < crc32.Size {
				return errChecksum
			}
			sum := binary.BigEndian.Uint32(value[len(value)-crc32.Size:])
			value = value[:len(value)-crc32.Size]
			if (whole || !isPart(item.Key())) && crc32.Checksum(value, castagnoli) != sum {
				return fmt.Errorf("the value in the value log: %w", errChecksum)
			}
		}
		reading = true
		return read(value)
	})
}
