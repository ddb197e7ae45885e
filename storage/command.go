package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"skein/catalog"
	"skein/sqlstate"
)

// Command is one replicated step of a transaction on one tablet: Begin, Stage,
// StageDelete, Truncate, Prepare, Commit, Abort, Resolve or Adopt. Txn is an id
// the coordinator made up, unique for ever; repeating a step returns the first
// answer. Hold is about time and Seal about the tablet: they belong to no
// transaction.
//
// A transaction first deletes what its StageDeletes and its Truncate name, then
// inserts its segments in the order of their numbers, all at one timestamp.
type Command interface {
	kind() commandKind
	txn() string
	append(dst []byte) []byte
}

// ConflictMode says what becomes of an incoming row whose primary key exists.
// On a table without a key all modes are the same.
type ConflictMode byte

// The modes. Keys are compared with the rows committed before, less those that
// the transaction deletes, and with the transaction's earlier rows.
const (
	// OnConflictError aborts the transaction with error 23505.
	OnConflictError ConflictMode = 0
	// OnConflictIgnore leaves the incoming row out: of equal keys in one
	// transaction the first stays.
	OnConflictIgnore ConflictMode = 1
	// OnConflictReplace deletes the existing row: of equal keys in one
	// transaction the last stays.
	OnConflictReplace ConflictMode = 2
)

// Stage stores one part of one segment of a transaction. The parts of a
// segment and the segments of a transaction may come in any order.
type Stage struct {
	Txn   string
	Seq   uint32 // segment, numbered from 0
	Part  uint32 // of Parts
	Parts uint32
	Data  []byte // Segment.Parts()[Part]
	// OnConflict is of the whole segment: all its parts must say the same.
	OnConflict ConflictMode
}

// StageDelete stores a list of rows that the transaction deletes. A row that
// another transaction has deleted, or is prepared to delete, by the time of the
// Prepare or Commit aborts the transaction with error 40001. Naming a row twice
// within a transaction is fine.
type StageDelete struct {
	Txn string
	Seq uint32 // list, numbered from 0; segments have numbers of their own
	// Snapshot is the timestamp at which the rows were read.
	Snapshot uint64
	// Rows are RowIDs, at most MaxDeleteRows; ascending ones encode smallest.
	Rows []uint64
}

// Truncate deletes all rows, as the first thing that the transaction does. With
// a Timestamp it also is the commit, of all that the transaction has staged;
// without one a Prepare or Commit follows. It aborts with error 40001 while
// another transaction is prepared on the tablet, and prepared it makes others
// abort.
type Truncate struct {
	Txn       string
	Timestamp uint64
	Bounds
}

// Prepare checks the staged rows' keys and promises to commit: until its
// outcome is known the transaction holds its keys and the rows it deletes.
type Prepare struct {
	Txn      string
	Segments uint32 // staged, to detect a lost one
	// Primary is the tablet whose Commit decides the transaction.
	Primary catalog.TabletID
	// Floor is a timestamp that the commit timestamp will exceed, 0 if
	// unknown: readers at or below it need not wait for the outcome.
	Floor uint64
	// Deletes is how many StageDelete lists are staged, to detect a lost one.
	Deletes uint32
	Bounds
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
	// OnConflict is of the inline segment.
	OnConflict ConflictMode
	// Deletes is how many StageDelete lists are staged, InlineDelete not
	// counted. It is not looked at when the transaction is prepared.
	Deletes uint32
	// InlineDelete are RowIDs of further rows to delete. It must be empty when
	// the transaction is prepared, as must Inline.
	InlineDelete []uint64
	Bounds
}

// Abort drops what the transaction staged, prepared or not.
type Abort struct{ Txn string }

// Resolve asks the primary for the outcome of a transaction and records an
// abort if there is none yet. On a participant that is not the primary it
// changes nothing for a prepared transaction.
type Resolve struct{ Txn string }

type commandKind byte

const (
	kindStage       commandKind = 1
	kindPrepare     commandKind = 2
	kindCommit      commandKind = 3
	kindAbort       commandKind = 4
	kindResolve     commandKind = 5
	kindStageDelete commandKind = 6
	kindTruncate    commandKind = 7
	kindHold        commandKind = 8
	kindBegin       commandKind = 9
	kindSeal        commandKind = 10
	kindAdopt       commandKind = 11
)

func (Stage) kind() commandKind       { return kindStage }
func (StageDelete) kind() commandKind { return kindStageDelete }
func (Truncate) kind() commandKind    { return kindTruncate }
func (Prepare) kind() commandKind     { return kindPrepare }
func (Commit) kind() commandKind      { return kindCommit }
func (Abort) kind() commandKind       { return kindAbort }
func (Resolve) kind() commandKind     { return kindResolve }
func (Hold) kind() commandKind        { return kindHold }

func (c Stage) txn() string       { return c.Txn }
func (c StageDelete) txn() string { return c.Txn }
func (c Truncate) txn() string    { return c.Txn }
func (c Prepare) txn() string     { return c.Txn }
func (c Commit) txn() string      { return c.Txn }
func (c Abort) txn() string       { return c.Txn }
func (c Resolve) txn() string     { return c.Txn }
func (c Hold) txn() string        { return "" }

const (
	// firstCommandVersion had no deletes and no conflict modes.
	firstCommandVersion = 1
	// deletesCommandVersion had no bounds of timestamps.
	deletesCommandVersion = 2
	commandVersion        = 3
	// MaxDeleteRows bounds the rows of one StageDelete or InlineDelete.
	MaxDeleteRows = 1 << 18
	// maxTxnID bounds the bytes of a transaction id.
	maxTxnID = 256
	// maxParts bounds the parts of a segment.
	maxParts = 1 << 12
	// maxSegments bounds the segments of a transaction, and its delete lists.
	maxSegments = 1 << 13
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeCommand returns version, kind, fields and a CRC-32C of all of them. It
// refuses commands without a transaction id or with one over 256 bytes, and
// delete lists of more than MaxDeleteRows.
func EncodeCommand(c Command) ([]byte, error) {
	if c == nil {
		return nil, fmt.Errorf("encoding a nil command")
	}
	size := 64
	switch c := c.(type) {
	case Stage:
		size += len(c.Data)
	case StageDelete:
		size += 2 * len(c.Rows)
	case Commit:
		size += len(c.Inline) + 2*len(c.InlineDelete)
	case Adopt:
		size += len(c.Inline) + 8*(len(c.Times)+len(c.Dead)+len(c.Marks)) + 64*len(c.Finished)
	}
	if err := checkCommand(c); err != nil {
		return nil, fmt.Errorf("encoding a command: %w", err)
	}
	b := append(make([]byte, 0, size+len(c.txn())), commandVersion, byte(c.kind()))
	b = c.append(b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// checkCommand bounds what every replica would have to carry.
func checkCommand(c Command) error {
	switch c.(type) {
	case Hold, Seal:
		return nil // of no transaction
	}
	if n := len(c.txn()); n == 0 || n > maxTxnID {
		return fmt.Errorf("a transaction id of %d bytes, the bounds are 1 and %d", n, maxTxnID)
	}
	rows, mode := 0, OnConflictError
	switch c := c.(type) {
	case Stage:
		mode = c.OnConflict
	case StageDelete:
		rows = len(c.Rows)
	case Commit:
		rows, mode = len(c.InlineDelete), c.OnConflict
	}
	if rows > MaxDeleteRows {
		return fmt.Errorf("a list of %d rows to delete, the bound is %d", rows, MaxDeleteRows)
	}
	if mode > OnConflictReplace {
		return fmt.Errorf("unknown conflict mode %d", mode)
	}
	return nil
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
	version := body[0]
	if version < firstCommandVersion || version > commandVersion {
		return nil, fmt.Errorf("command version %d, this release reads up to %d", version, commandVersion)
	}
	r := &reader{b: body[2:]}
	c := readCommand(r, version, commandKind(body[1]))
	if c == nil {
		return nil, fmt.Errorf("unknown command kind %d", body[1])
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if err := checkCommand(c); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	return c, nil
}

// readCommand returns nil for an unknown kind.
func readCommand(r *reader, version byte, kind commandKind) Command {
	modes := version > firstCommandVersion
	bounds := func() (b Bounds) {
		if version > deletesCommandVersion {
			b = Bounds{Session: r.uint64(), After: r.uvarint()}
		}
		return b
	}
	switch kind {
	case kindStage:
		c := Stage{Txn: r.string(), Seq: r.uint32(), Part: r.uint32(), Parts: r.uint32(), Data: r.bytes()}
		if modes {
			c.OnConflict = ConflictMode(r.byte())
		}
		return c
	case kindStageDelete:
		return StageDelete{Txn: r.string(), Seq: r.uint32(), Snapshot: r.uint64(), Rows: readRowIDs(r)}
	case kindTruncate:
		return Truncate{Txn: r.string(), Timestamp: r.uint64(), Bounds: bounds()}
	case kindPrepare:
		c := Prepare{Txn: r.string(), Segments: r.uint32(), Primary: catalog.TabletID(r.uint64()), Floor: r.uint64()}
		if modes {
			c.Deletes = r.uint32()
		}
		c.Bounds = bounds()
		return c
	case kindCommit:
		c := Commit{Txn: r.string(), Segments: r.uint32(), Timestamp: r.uint64(), Inline: r.bytes()}
		if modes {
			c.OnConflict, c.Deletes, c.InlineDelete = ConflictMode(r.byte()), r.uint32(), readRowIDs(r)
		}
		c.Bounds = bounds()
		return c
	case kindAbort:
		return Abort{Txn: r.string()}
	case kindResolve:
		return Resolve{Txn: r.string()}
	case kindBegin:
		return Begin{Txn: r.string()}
	case kindSeal:
		c := Seal{Job: r.uint64(), Number: r.uint64(), Timestamp: r.uint64(), Release: r.byte() == 1}
		c.Bounds = bounds()
		return c
	case kindAdopt:
		return readAdopt(r)
	case kindHold:
		return Hold{Session: r.uint64(), Until: r.uint64(), Closed: r.uint64(), Release: r.byte() == 1}
	}
	return nil
}

func (c Stage) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Seq)
	dst = binary.LittleEndian.AppendUint32(dst, c.Part)
	dst = binary.LittleEndian.AppendUint32(dst, c.Parts)
	return append(appendBytes(dst, c.Data), byte(c.OnConflict))
}

func (c StageDelete) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, c.Snapshot)
	return appendRowIDs(dst, c.Rows)
}

func (c Truncate) append(dst []byte) []byte {
	return c.Bounds.append(binary.LittleEndian.AppendUint64(appendString(dst, c.Txn), c.Timestamp))
}

func (c Prepare) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Segments)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.Primary))
	dst = binary.LittleEndian.AppendUint64(dst, c.Floor)
	return c.Bounds.append(binary.LittleEndian.AppendUint32(dst, c.Deletes))
}

func (c Commit) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Segments)
	dst = binary.LittleEndian.AppendUint64(dst, c.Timestamp)
	dst = append(appendBytes(dst, c.Inline), byte(c.OnConflict))
	dst = binary.LittleEndian.AppendUint32(dst, c.Deletes)
	return c.Bounds.append(appendRowIDs(dst, c.InlineDelete))
}

func (c Abort) append(dst []byte) []byte   { return appendString(dst, c.Txn) }
func (c Resolve) append(dst []byte) []byte { return appendString(dst, c.Txn) }

// appendRowIDs appends the number of ids and the difference of each to the one
// before.
func appendRowIDs(dst []byte, rows []uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(rows)))
	last := uint64(0)
	for _, row := range rows {
		dst = binary.AppendVarint(dst, int64(row-last))
		last = row
	}
	return dst
}

// readRowIDs returns nil for none.
func readRowIDs(r *reader) []uint64 {
	n := r.count(uint64(len(r.b))) // an id takes at least a byte
	if n == 0 {
		return nil
	}
	rows := make([]uint64, n)
	last := uint64(0)
	for i := range rows {
		last += uint64(r.varint())
		rows[i] = last
	}
	return rows
}

// Outcome is where a transaction stands after a command.
type Outcome byte

// The outcomes. Aborted and Committed are final. Sealed says that the tablet
// knows nothing of the transaction and takes on no others.
const (
	Staged    Outcome = 1
	Prepared  Outcome = 2
	Committed Outcome = 3
	Aborted   Outcome = 4
	Sealed    Outcome = 5
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
	case Sealed:
		return "sealed"
	}
	return fmt.Sprintf("outcome %d", byte(o))
}

// Result is the answer to one command, the same on every replica.
type Result struct {
	Outcome   Outcome
	Timestamp uint64 // of a committed transaction
	Rows      uint64 // inserted or replaced by a committed transaction
	// Inserted, Replaced and Ignored tell what became of the rows of a
	// committed transaction's segments; a row is replaced when its key existed,
	// before or earlier in the transaction. Deleted counts the rows that its
	// StageDeletes, InlineDelete and Truncate deleted.
	Inserted, Replaced, Ignored, Deleted uint64
	// Err says why a transaction was aborted or a step refused; a refused
	// step leaves the transaction as Outcome says.
	Err *sqlstate.Error
}

// firstResultVersion had no counts but Rows.
const (
	firstResultVersion = 1
	resultVersion      = 2
)

// EncodeResult returns the bytes of a result for the way through Raft.
func EncodeResult(r Result) []byte { return r.append([]byte{resultVersion}) }

func (r Result) append(dst []byte) []byte {
	dst = append(dst, byte(r.Outcome))
	for _, n := range []uint64{r.Timestamp, r.Rows, r.Inserted, r.Replaced, r.Ignored, r.Deleted} {
		dst = binary.AppendUvarint(dst, n)
	}
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
	version := r.byte()
	if r.err == nil && (version < firstResultVersion || version > resultVersion) {
		return Result{}, fmt.Errorf("result version %d, this release reads up to %d", version, resultVersion)
	}
	res := readResult(r, version)
	if err := r.done(); err != nil {
		return Result{}, fmt.Errorf("result: %w", err)
	}
	return res, nil
}

func readResult(r *reader, version byte) Result {
	res := Result{Outcome: Outcome(r.byte()), Timestamp: r.uvarint(), Rows: r.uvarint()}
	res.Inserted = res.Rows
	if version > firstResultVersion {
		res.Inserted, res.Replaced, res.Ignored, res.Deleted = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	}
	if r.byte() == 0 {
		return res
	}
	code := r.string()
	res.Err = &sqlstate.Error{Code: sqlstate.Code(code), Message: r.string(), Detail: r.string(), Hint: r.string()}
	return res
}
