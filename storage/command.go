package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"skein/catalog"
	"skein/sqlstate"
)

// Command is one replicated step of a transaction on one tablet: Stage,
// Prepare, Commit, Abort or Resolve. Txn is an id the coordinator made up,
// unique for ever; repeating a step returns the first answer.
type Command interface {
	kind() commandKind
	txn() string
	append(dst []byte) []byte
}

// Stage stores one part of one segment of a transaction. The parts of a
// segment and the segments of a transaction may come in any order.
type Stage struct {
	Txn   string
	Seq   uint32 // segment, numbered from 0
	Part  uint32 // of Parts
	Parts uint32
	Data  []byte // Segment.Parts()[Part]
}

// Prepare checks the staged rows' keys and promises to commit: until its
// outcome is known the transaction holds its keys.
type Prepare struct {
	Txn      string
	Segments uint32 // staged, to detect a lost one
	// Primary is the tablet whose Commit decides the transaction.
	Primary catalog.TabletID
	// Floor is a timestamp that the commit timestamp will exceed, 0 if
	// unknown: readers at or below it need not wait for the outcome.
	Floor uint64
}

// Commit makes the rows visible to readers at Timestamp and later. Of a
// transaction that is not prepared it first does what Prepare does.
type Commit struct {
	Txn       string
	Segments  uint32 // staged, Inline not counted
	Timestamp uint64
	// Inline, when not empty, is the only part of one more segment, the last
	// of the transaction.
	Inline []byte
}

// Abort drops what the transaction staged, prepared or not.
type Abort struct{ Txn string }

// Resolve asks the primary for the outcome of a transaction and records an
// abort if there is none yet. On a participant that is not the primary it
// changes nothing for a prepared transaction.
type Resolve struct{ Txn string }

type commandKind byte

const (
	kindStage   commandKind = 1
	kindPrepare commandKind = 2
	kindCommit  commandKind = 3
	kindAbort   commandKind = 4
	kindResolve commandKind = 5
)

func (Stage) kind() commandKind   { return kindStage }
func (Prepare) kind() commandKind { return kindPrepare }
func (Commit) kind() commandKind  { return kindCommit }
func (Abort) kind() commandKind   { return kindAbort }
func (Resolve) kind() commandKind { return kindResolve }

func (c Stage) txn() string   { return c.Txn }
func (c Prepare) txn() string { return c.Txn }
func (c Commit) txn() string  { return c.Txn }
func (c Abort) txn() string   { return c.Txn }
func (c Resolve) txn() string { return c.Txn }

const (
	commandVersion = 1
	// maxTxnID bounds the bytes of a transaction id.
	maxTxnID = 256
	// maxParts bounds the parts of a segment.
	maxParts = 1 << 12
	// maxSegments bounds the segments of a transaction.
	maxSegments = 1 << 13
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeCommand returns version, kind, fields and a CRC-32C of all of them. It
// refuses commands without a transaction id or with one over 256 bytes.
func EncodeCommand(c Command) ([]byte, error) {
	if c == nil {
		return nil, fmt.Errorf("encoding a nil command")
	}
	if n := len(c.txn()); n == 0 || n > maxTxnID {
		return nil, fmt.Errorf("encoding a command: a transaction id of %d bytes, the bounds are 1 and %d", n, maxTxnID)
	}
	size := 64
	switch c := c.(type) {
	case Stage:
		size += len(c.Txn) + len(c.Data)
	case Commit:
		size += len(c.Txn) + len(c.Inline)
	}
	b := append(make([]byte, 0, size), commandVersion, byte(c.kind()))
	b = c.append(b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// DecodeCommand reverses EncodeCommand. Byte fields of the result alias b.
// Damaged bytes, unknown versions and trailing bytes are errors.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) < 6 {
		return nil, fmt.Errorf("command of %d bytes", len(b))
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("command fails its checksum")
	}
	if body[0] != commandVersion {
		return nil, fmt.Errorf("command version %d, this release reads %d", body[0], commandVersion)
	}
	r := &reader{b: body[2:]}
	var c Command
	switch kind := commandKind(body[1]); kind {
	case kindStage:
		c = Stage{Txn: r.string(), Seq: r.uint32(), Part: r.uint32(), Parts: r.uint32(), Data: r.bytes()}
	case kindPrepare:
		c = Prepare{Txn: r.string(), Segments: r.uint32(), Primary: catalog.TabletID(r.uint64()), Floor: r.uint64()}
	case kindCommit:
		c = Commit{Txn: r.string(), Segments: r.uint32(), Timestamp: r.uint64(), Inline: r.bytes()}
	case kindAbort:
		c = Abort{Txn: r.string()}
	case kindResolve:
		c = Resolve{Txn: r.string()}
	default:
		return nil, fmt.Errorf("unknown command kind %d", kind)
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if n := len(c.txn()); n == 0 || n > maxTxnID {
		return nil, fmt.Errorf("command with a transaction id of %d bytes", n)
	}
	return c, nil
}

func (c Stage) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Seq)
	dst = binary.LittleEndian.AppendUint32(dst, c.Part)
	dst = binary.LittleEndian.AppendUint32(dst, c.Parts)
	return appendBytes(dst, c.Data)
}

func (c Prepare) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Segments)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Primary))
	return binary.LittleEndian.AppendUint64(dst, c.Floor)
}

func (c Commit) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Segments)
	dst = binary.LittleEndian.AppendUint64(dst, c.Timestamp)
	return appendBytes(dst, c.Inline)
}

func (c Abort) append(dst []byte) []byte   { return appendString(dst, c.Txn) }
func (c Resolve) append(dst []byte) []byte { return appendString(dst, c.Txn) }

// Outcome is where a transaction stands after a command.
type Outcome byte

// The outcomes. Aborted and Committed are final.
const (
	Staged    Outcome = 1
	Prepared  Outcome = 2
	Committed Outcome = 3
	Aborted   Outcome = 4
)

// String names the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Staged:
		return "staged"
	case Prepared:
		return "prepared"
	case Committed:
		return "committed"
	case Aborted:
		return "aborted"
	}
	return fmt.Sprintf("outcome %d", byte(o))
}

// Result is the answer to one command, the same on every replica.
type Result struct {
	Outcome   Outcome
	Timestamp uint64 // of a committed transaction
	Rows      uint64 // committed
	// Err says why a transaction was aborted or a step refused; a refused
	// step leaves the transaction as Outcome says.
	Err *sqlstate.Error
}

const resultVersion = 1

// EncodeResult returns the bytes of a result for the way through Raft.
func EncodeResult(r Result) []byte { return r.append([]byte{resultVersion}) }

func (r Result) append(dst []byte) []byte {
	dst = append(dst, byte(r.Outcome))
	dst = binary.AppendUvarint(dst, r.Timestamp)
	dst = binary.AppendUvarint(dst, r.Rows)
	if r.Err == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	for _, s := range []string{string(r.Err.Code), r.Err.Message, r.Err.Detail, r.Err.Hint} {
		dst = appendString(dst, s)
	}
	return dst
}

// DecodeResult reverses EncodeResult.
func DecodeResult(b []byte) (Result, error) {
	r := &reader{b: b}
	if v := r.byte(); r.err == nil && v != resultVersion {
		return Result{}, fmt.Errorf("result version %d, this release reads %d", v, resultVersion)
	}
	res := readResult(r)
	if err := r.done(); err != nil {
		return Result{}, fmt.Errorf("result: %w", err)
	}
	return res, nil
}

func readResult(r *reader) Result {
	res := Result{Outcome: Outcome(r.byte()), Timestamp: r.uvarint(), Rows: r.uvarint()}
	if r.byte() == 0 {
		return res
	}
	code := r.string()
	res.Err = &sqlstate.Error{Code: sqlstate.Code(code), Message: r.string(), Detail: r.string(), Hint: r.string()}
	return res
}
