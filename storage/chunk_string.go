package storage

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/pierrec/lz4/v4"

	"skein/columnar"
)

// Strings are stored as a dictionary when they repeat enough, else as packed
// lengths followed by their bytes, compressed when that pays.

// maxDictionary bounds the distinct strings of one chunk's dictionary.
const maxDictionary = 1 << 15

func encodeStrings(dst []byte, v *columnar.Vector) (encoding, byte, []byte) {
	if codes, firsts := buildDictionary(v); codes != nil {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(firsts)))
		dst = appendPacked(dst, codes)
		return encDict, 0, appendStringBlock(dst, columnar.Gather(v, firsts, nil))
	}
	if v.Len > minTextBlock && int(v.Offsets[v.Len]-v.Offsets[0]) > textBlockBytes {
		return encSizedTextBlocks, 0, appendTextBlocks(dst, v)
	}
	return encBytes, 0, appendStringBlock(dst, v)
}

// buildDictionary numbers the distinct strings of v by first occurrence and
// returns each row's number and each string's first row, or nils when too many
// are distinct.
func buildDictionary(v *columnar.Vector) (codes, firsts []int32) {
	const probe = 2048 // rows after which an unpromising column is given up
	limit := min(v.Len/4+1, maxDictionary)
	if v.Len < 8 {
		return nil, nil
	}
	mask := uint64(255)
	table := make([]int32, mask+1) // code+1, by hash
	codes = make([]int32, v.Len)
	hashes := make([]uint64, 0, 256)
	for i := range codes {
		s := v.Data[v.Offsets[i]:v.Offsets[i+1]]
		h := xxhash.Sum64(s)
		slot := h & mask
		for {
			c := table[slot]
			if c == 0 {
				break
			}
			if f := firsts[c-1]; hashes[c-1] == h && string(v.Data[v.Offsets[f]:v.Offsets[f+1]]) == string(s) {
				codes[i] = c - 1
				break
			}
			slot = (slot + 1) & mask
		}
		if table[slot] != 0 {
			continue
		}
		if len(firsts) >= limit || (i >= probe && len(firsts) > i/2) {
			return nil, nil
		}
		codes[i] = int32(len(firsts))
		firsts = append(firsts, int32(i))
		hashes = append(hashes, h)
		table[slot] = int32(len(firsts))
		if uint64(len(firsts))*2 > mask {
			mask = mask*2 + 1
			table = rehash(hashes, mask)
		}
	}
	return codes, firsts
}

func rehash(hashes []uint64, mask uint64) []int32 {
	table := make([]int32, mask+1)
	for c, h := range hashes {
		slot := h & mask
		for table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		table[slot] = int32(c + 1)
	}
	return table
}

// appendStringBlock appends the packed lengths of plain strings, a flag byte
// and their bytes.
func appendStringBlock(dst []byte, v *columnar.Vector) []byte {
	lengths := make([]int32, v.Len)
	for i := range lengths {
		lengths[i] = v.Offsets[i+1] - v.Offsets[i]
	}
	dst = appendPacked(dst, lengths)
	at := len(dst)
	dst, flags := appendCompressed(append(dst, 0), v.Data[v.Offsets[0]:v.Offsets[v.Len]])
	dst[at] = flags
	return dst
}

func decodeDict(v *columnar.Vector, src []byte) error {
	if len(src) < 4 {
		return fmt.Errorf("dictionary header does not fit %d bytes", len(src))
	}
	n := binary.LittleEndian.Uint32(src)
	if n == 0 || n > maxDictionary || columnar.Width(v.Type) > 0 {
		return fmt.Errorf("dictionary of %d entries of type %s", n, v.Type)
	}
	codes, src, err := unpackNew[int32](v.Len, src[4:])
	if err != nil {
		return err
	}
	var seen int32
	for _, c := range codes {
		seen |= c
		if c >= int32(n) {
			return fmt.Errorf("code %d of a dictionary of %d", c, n)
		}
	}
	if seen < 0 {
		return fmt.Errorf("negative dictionary code")
	}
	dict := &columnar.Vector{Type: v.Type, Len: int(n)}
	if err := decodeBytes(dict, src); err != nil {
		return err
	}
	v.Codes, v.Dict = codes, dict
	return nil
}

func decodeBytes(v *columnar.Vector, src []byte) error {
	if columnar.Width(v.Type) > 0 {
		return fmt.Errorf("strings of type %s", v.Type)
	}
	offsets, src, err := decodeOffsets(v.Len, src)
	if err != nil {
		return err
	}
	if len(src) == 0 {
		return fmt.Errorf("strings without bytes")
	}
	flags, src := src[0], src[1:]
	if flags&flagCompressed != 0 {
		v.Data, err = decompress(src)
	} else {
		v.Data = append(make([]byte, 0, len(src)), src...)
	}
	if err == nil && len(v.Data) != int(offsets[v.Len]) {
		err = fmt.Errorf("strings of %d bytes in %d", offsets[v.Len], len(v.Data))
	}
	v.Offsets = offsets
	return err
}

// appendCompressed appends data as an LZ4 block behind its length, or as it is
// when that saves less than an eighth.
func appendCompressed(dst, data []byte) ([]byte, byte) {
	const least, sample = 256, 16 << 10
	if len(data) < least {
		return append(dst, data...), 0
	}
	var c lz4.Compressor
	if len(data) > 4*sample {
		// Incompressible columns are recognised by their middle.
		mid := len(data)/2 - sample/2
		trial := make([]byte, lz4.CompressBlockBound(sample))
		n, err := c.CompressBlock(data[mid:mid+sample], trial)
		if err != nil || n == 0 || n > sample-sample/8 {
			return append(dst, data...), 0
		}
	}
	bound := lz4.CompressBlockBound(len(data))
	out := slices.Grow(dst, 4+bound)
	at := len(dst) + 4
	n, err := c.CompressBlock(data, out[at:at+bound])
	if err != nil || n == 0 || n > len(data)-len(data)/8 {
		return append(dst, data...), 0
	}
	binary.LittleEndian.PutUint32(out[len(dst):at], uint32(len(data)))
	return out[:at+n], flagCompressed
}

func decompress(src []byte) ([]byte, error) {
	size, src, err := decompressedSize(src)
	if err != nil {
		return nil, err
	}
	words := make([]uint64, (size+7)/8)
	out := columnar.Bytes(words)[:size]
	n, err := lz4.UncompressBlock(src, out)
	if err != nil {
		return nil, fmt.Errorf("decompressing %d bytes: %w", len(src), err)
	}
	if n != size {
		return nil, fmt.Errorf("decompressed %d bytes of %d", n, size)
	}
	return out, nil
}

// decompressedSize splits what appendCompressed wrote into the size of the data
// and the block.
func decompressedSize(src []byte) (int, []byte, error) {
	const maxRatio = 256 // of the LZ4 block format
	if len(src) < 4 {
		return 0, nil, fmt.Errorf("compressed bytes end early")
	}
	size := binary.LittleEndian.Uint32(src)
	src = src[4:]
	// Nothing is never compressed, and the library does not bear an empty output.
	if size == 0 || uint64(size) > uint64(len(src))*maxRatio || size > 1<<31-1 {
		return 0, nil, fmt.Errorf("%d compressed bytes claim %d", len(src), size)
	}
	return int(size), src, nil
}
