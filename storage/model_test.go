package storage

import (
	"slices"

	"skein/sqlstate"
)

// model is what a tablet should hold, kept in lists and maps. The place of a
// row in the list is its id.
type model struct {
	rows     []modelRow
	txns     map[string]*modelTxn
	outcomes map[string]Result
	latest   uint64 // commit timestamp
}

type modelRow struct {
	key, value int64
	column     int // id of the added column that the row was written with
	extra      int64
	born       uint64
	died       uint64 // 0 while it lives
}

type modelSegment struct {
	rows []modelRow
	mode ConflictMode
}

type modelTxn struct {
	segments []modelSegment
	lists    [][]uint64
	truncate bool
	prepared bool
	effect   modelEffect
}

// modelEffect is what a checked transaction does.
type modelEffect struct {
	deletes map[uint64]bool
	born    [][]bool // by segment: whether a row gets to be seen
	counts  Result
}

// decide works a transaction out row by row, as if each was a statement.
func (m *model) decide(tx *modelTxn) sqlstate.Code {
	tx.effect = modelEffect{deletes: make(map[uint64]bool)}
	if code := m.decideDeletes(tx); code != "" {
		return code
	}
	e := &tx.effect
	committed := make(map[int64]uint64) // live rows by key
	for id, r := range m.rows {
		if r.died == 0 && !tx.truncate && !e.deletes[uint64(id)] {
			committed[r.key] = uint64(id)
		}
	}
	type place struct{ segment, row int }
	own := make(map[int64]place)
	waits := false
	for s, seg := range tx.segments {
		e.born = append(e.born, make([]bool, len(seg.rows)))
		for i, r := range seg.rows {
			old, exists := committed[r.key]
			if exists && m.held(tx, old) {
				waits, exists = true, false
			}
			at, mine := own[r.key]
			switch {
			case !exists && !mine:
				e.counts.Inserted++
			case seg.mode == OnConflictError:
				return sqlstate.UniqueViolation
			case seg.mode == OnConflictIgnore:
				e.counts.Ignored++
				continue
			default:
				e.counts.Replaced++
				if mine {
					e.born[at.segment][at.row] = false
				} else {
					e.deletes[old] = true
					delete(committed, r.key)
				}
			}
			own[r.key] = place{s, i}
			e.born[s][i] = true
		}
	}
	for key := range own {
		waits = waits || m.keyHeld(tx, key)
	}
	if waits {
		return sqlstate.SerializationFailure
	}
	return ""
}

func (m *model) decideDeletes(tx *modelTxn) sqlstate.Code {
	for _, id := range slices.Concat(tx.lists...) {
		tx.effect.deletes[id] = true
	}
	for _, other := range m.txns {
		if other != tx && other.prepared && (tx.truncate || other.truncate) {
			return sqlstate.SerializationFailure
		}
	}
	for id := range tx.effect.deletes {
		if id >= uint64(len(m.rows)) {
			if m.lost(tx) {
				return sqlstate.SerializationFailure
			}
			return sqlstate.ProtocolViolation
		}
	}
	tx.effect.counts.Deleted = uint64(len(tx.effect.deletes))
	if m.lost(tx) {
		return sqlstate.SerializationFailure
	}
	if tx.truncate {
		tx.effect.counts.Deleted = 0
		for _, r := range m.rows {
			if r.died == 0 {
				tx.effect.counts.Deleted++
			}
		}
	}
	return ""
}

// lost reports that a prepared transaction deletes one of the rows, or, if all
// of them were once there, that one is gone.
func (m *model) lost(tx *modelTxn) bool {
	all := true
	for id := range tx.effect.deletes {
		if m.held(tx, id) {
			return true
		}
		all = all && id < uint64(len(m.rows))
	}
	for id := range tx.effect.deletes {
		if all && m.rows[id].died != 0 {
			return true
		}
	}
	return false
}

func (m *model) held(tx *modelTxn, id uint64) bool {
	for _, other := range m.txns {
		if other != tx && other.prepared && other.effect.deletes[id] {
			return true
		}
	}
	return false
}

func (m *model) keyHeld(tx *modelTxn, key int64) bool {
	for _, other := range m.txns {
		if other == tx || !other.prepared {
			continue
		}
		for s, seg := range other.segments {
			for i, r := range seg.rows {
				if r.key == key && other.effect.born[s][i] {
					return true
				}
			}
		}
	}
	return false
}

// land commits a decided transaction.
func (m *model) land(tx *modelTxn, ts uint64) Result {
	e := tx.effect
	for id := range m.rows {
		if r := &m.rows[id]; r.died == 0 && (tx.truncate || e.deletes[uint64(id)]) {
			r.died = ts
		}
	}
	for s, seg := range tx.segments {
		for i, r := range seg.rows {
			r.born = ts
			if !e.born[s][i] {
				r.died = ts
			}
			m.rows = append(m.rows, r)
		}
	}
	res := e.counts
	res.Outcome, res.Timestamp, res.Rows = Committed, ts, e.counts.Inserted+e.counts.Replaced
	return res
}

// doubt is how many transactions are prepared.
func (m *model) doubt() int {
	n := 0
	for _, tx := range m.txns {
		if tx.prepared {
			n++
		}
	}
	return n
}
