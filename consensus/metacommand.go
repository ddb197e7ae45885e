package consensus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A meta log entry is
//
//	magic "SKMC" | format version, 1 byte | CRC-32C of the rest, 4 bytes | JSON
//
// and the JSON is a MetaCommand. All replicas must read an entry alike, so any
// change to what a request may hold takes a new format version.
const (
	metaMagic      = "SKMC"
	metaFormat     = 1
	metaHeaderSize = len(metaMagic) + 1 + 4
)

// maxMetaCommand bounds one command's encoding; a table of 1,600 columns and a
// thousand tablets is far below it.
const maxMetaCommand = 1 << 20

// errBadMetaEntry is an entry that is damaged or of a newer release. Skipping it
// would make replicas differ, so it stops the replica.
var errBadMetaEntry = errors.New("unreadable meta log entry")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MetaCommand is a command's name and its JSON request.
type MetaCommand struct {
	Command string          `json:"command"`
	Body    json.RawMessage `json:"body"`
}

func encodeMetaCommand(command string, request any) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encoding meta command %s: %w", command, err)
	}
	payload, err := json.Marshal(MetaCommand{Command: command, Body: body})
	if err != nil {
		return nil, fmt.Errorf("encoding meta command %s: %w", command, err)
	}
	out := make([]byte, 0, metaHeaderSize+len(payload))
	out = append(out, metaMagic...)
	out = append(out, metaFormat)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(payload, castagnoli))
	return append(out, payload...), nil
}

func decodeMetaCommand(entry []byte) (MetaCommand, error) {
	var c MetaCommand
	if len(entry) < metaHeaderSize || string(entry[:len(metaMagic)]) != metaMagic {
		return c, fmt.Errorf("%w: no header", errBadMetaEntry)
	}
	if v := entry[len(metaMagic)]; v != metaFormat {
		return c, fmt.Errorf("%w: format %d, this release reads %d", errBadMetaEntry, v, metaFormat)
	}
	payload := entry[metaHeaderSize:]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(entry[len(metaMagic)+1:]) {
		return c, fmt.Errorf("%w: checksum mismatch", errBadMetaEntry)
	}
	if err := decodeStrict(payload, &c); err != nil {
		return c, fmt.Errorf("%w: %v", errBadMetaEntry, err)
	}
	switch c.Command {
	case MetaCreateTable, MetaPublishTable, MetaDropTable, MetaAlterTable, MetaRegisterNode, MetaAddKey,
		MetaRepairReplica, MetaAskRepair, MetaVouchRepair, MetaFinishRepair,
		MetaCreateJob, MetaClaimJob, MetaAdvanceJob, MetaEndJob, MetaReshape, MetaPublishReshape,
		MetaMoveReplica, MetaAdvanceMove, MetaAskMove, MetaVouchMove, MetaAbortMove, MetaFinishMove, MetaReportTablets,
		MetaPutUser, MetaDropUser,
		MetaSetNodeState, MetaSetSeat, MetaHeartbeat, MetaAddToken, MetaRedeemToken, MetaSetSetting,
		MetaCreateSchema, MetaDropSchema, MetaLeaseGateway, MetaEndSessions:
		return c, nil
	}
	return c, fmt.Errorf("%w: unknown command %q", errBadMetaEntry, c.Command)
}

// decodeStrict decodes one JSON document with no unknown fields and nothing
// after it.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("trailing data after the JSON document")
	}
	return nil
}
