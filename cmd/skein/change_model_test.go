package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skein/sqlstate"
)

// TestChangesAgainstModel runs random statements that change rows against a
// server and a map, and expects the same counts, errors and rows.
func TestChangesAgainstModel(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	for _, tablets := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d tablets", tablets), func(t *testing.T) {
			t.Parallel()
			table := fmt.Sprintf("model%d", tablets)
			c := dial(t, server.flight)
			mustExec(t, c, fmt.Sprintf("CREATE TABLE %s (k BIGINT PRIMARY KEY, v BIGINT NOT NULL, s TEXT) WITH (tablets = %d)", table, tablets))
			m := &rowModel{table: table, rng: rand.New(rand.NewPCG(7, uint64(tablets))), rows: map[int64]modelRow{}}
			var script []string
			for range 250 {
				step := m.step()
				script = append(script, step.sql)
				affected, err := c.Exec(testContext(t), step.sql)
				if code := sqlstate.Code(codeOf(err)); err != nil && code != step.code || err == nil && step.code != "" {
					t.Fatalf("%s: got %v, want code %q, after\n%s", step.sql, err, step.code, strings.Join(script, ";\n"))
				}
				if err == nil && affected != step.affected {
					t.Fatalf("%s: %d rows, want %d, after\n%s", step.sql, affected, step.affected, strings.Join(script, ";\n"))
				}
				if m.rng.IntN(5) > 0 {
					continue
				}
				got, err := query(testContext(t), c, "SELECT k, v, s FROM "+table+" ORDER BY k")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(m.lines(), got); diff != "" {
					t.Fatalf("%s\nafter\n%s", diff, strings.Join(script, ";\n"))
				}
			}
		})
	}
}

type modelRow struct {
	v int64
	s string
}

// rowModel is what a table should hold.
type rowModel struct {
	table string
	rng   *rand.Rand
	rows  map[int64]modelRow
}

// modelStep is a statement and what it should answer.
type modelStep struct {
	sql      string
	affected int64
	code     sqlstate.Code
}

const modelKeys = 60

func (m *rowModel) step() modelStep {
	switch m.rng.IntN(11) {
	case 0, 1:
		return m.insert("", func(k int64, _, _ modelRow) (modelRow, bool) { return modelRow{}, false })
	case 2:
		return m.insert(" ON CONFLICT DO NOTHING", nil)
	case 3, 4:
		return m.insert(" ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = excluded.s",
			func(_ int64, _, in modelRow) (modelRow, bool) { return in, true })
	case 5, 6:
		return m.insert(fmt.Sprintf(" ON CONFLICT (k) DO UPDATE SET v = %s.v + excluded.v WHERE %s.v < 50", m.table, m.table),
			func(_ int64, old, in modelRow) (modelRow, bool) {
				return modelRow{old.v + in.v, old.s}, old.v < 50
			})
	case 7:
		return m.delete()
	case 8:
		return m.move()
	case 9:
		if m.rng.IntN(10) == 0 {
			m.rows = map[int64]modelRow{}
			return modelStep{sql: "TRUNCATE " + m.table}
		}
	}
	return m.update()
}

// insert inserts a few rows. change says what becomes of a stored row, nil is
// DO NOTHING; without a clause a taken key fails the statement.
func (m *rowModel) insert(clause string, change func(k int64, old, in modelRow) (modelRow, bool)) modelStep {
	after := maps.Clone(m.rows)
	affected := map[int64]bool{}
	step := modelStep{}
	var values []string
	for range 1 + m.rng.IntN(6) {
		k, in := m.rng.Int64N(modelKeys), modelRow{m.rng.Int64N(100), fmt.Sprintf("s%d", m.rng.IntN(9))}
		values = append(values, fmt.Sprintf("(%d, %d, '%s')", k, in.v, in.s))
		old, taken := after[k]
		switch {
		case !taken:
			after[k], affected[k] = in, true
			step.affected++
		case clause == "":
			step.code = sqlstate.UniqueViolation
		case change == nil:
		case affected[k]:
			step.code = sqlstate.CardinalityViolation
		default:
			if row, ok := change(k, old, in); ok {
				after[k], affected[k] = row, true
				step.affected++
			}
		}
	}
	step.sql = fmt.Sprintf("INSERT INTO %s VALUES %s%s", m.table, strings.Join(values, ", "), clause)
	if step.code == "" {
		m.rows = after
	}
	return step
}

func (m *rowModel) update() modelStep {
	low, by := m.rng.Int64N(modelKeys), m.rng.Int64N(20)
	high := low + m.rng.Int64N(20)
	step := modelStep{sql: fmt.Sprintf("UPDATE %s AS x SET v = x.v + %d, s = 'u' || x.s WHERE k BETWEEN %d AND %d AND v %% 2 = 0", m.table, by, low, high)}
	for k, row := range m.rows {
		if k >= low && k <= high && row.v%2 == 0 {
			m.rows[k] = modelRow{row.v + by, "u" + row.s}
			step.affected++
		}
	}
	if m.rng.IntN(2) == 0 {
		step.sql += " RETURNING k, v * 2"
	}
	return step
}

// move changes keys, which may be taken by rows that do not move.
func (m *rowModel) move() modelStep {
	mod, by := 1+m.rng.Int64N(3), 1+m.rng.Int64N(modelKeys)
	step := modelStep{sql: fmt.Sprintf("UPDATE %s SET k = (k + %d) %% %d WHERE k %% %d = 0", m.table, by, modelKeys, mod)}
	after := map[int64]modelRow{}
	for k, row := range m.rows {
		if k%mod != 0 {
			after[k] = row
		}
	}
	for k, row := range m.rows {
		if k%mod == 0 {
			to := (k + by) % modelKeys
			if _, taken := after[to]; taken {
				step.code = sqlstate.UniqueViolation
			}
			after[to] = row
			step.affected++
		}
	}
	if step.code == "" {
		m.rows = after
	}
	return step
}

func (m *rowModel) delete() modelStep {
	low := m.rng.Int64N(modelKeys)
	high := low + m.rng.Int64N(10)
	step := modelStep{sql: fmt.Sprintf("DELETE FROM %s WHERE k >= %d AND k < %d", m.table, low, high)}
	for k := range m.rows {
		if k >= low && k < high {
			delete(m.rows, k)
			step.affected++
		}
	}
	if m.rng.IntN(2) == 0 {
		step.sql += " RETURNING *"
	}
	return step
}

func (m *rowModel) lines() []string {
	lines := []string{}
	for _, k := range slices.Sorted(maps.Keys(m.rows)) {
		lines = append(lines, fmt.Sprintf("%d,%d,%s", k, m.rows[k].v, m.rows[k].s))
	}
	return lines
}
