package sqldiff

import (
	"fmt"
	"strings"
)

// Change is a statement that changes a table.
type Change struct {
	Table string
	Texts [2]string // by dialect
}

// change makes an INSERT, UPDATE or DELETE. next is an id that no row has.
func (g *generator) change(next int) Change {
	g.alias, g.depth, g.ctes = 0, 1, nil
	t := pick(g, g.tables)
	sc := g.tableScope(t, t.Name)
	switch n := g.r.IntN(10); {
	case n < 2:
		return g.insert(t, next)
	case n < 4:
		return g.insertSelect(t, next)
	case n < 6 && t.Key:
		return g.upsert(t, next)
	case n < 7:
		return g.update(t, sc)
	case n < 8:
		return g.changeJoined(t, sc)
	}
	where := g.condition(sc, 2)
	return both(t, func(d Dialect) string { return "DELETE FROM " + t.Name + " WHERE " + where.SQL(d) })
}

func both(t *Table, text func(Dialect) string) Change {
	return Change{t.Name, [2]string{text(Skein), text(Duck)}}
}

func (t *Table) names() string {
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

func (g *generator) rows(t *Table, ids []int) func(Dialect) string {
	var rows [][]Literal
	for _, id := range ids {
		rows = append(rows, g.row(t, id))
	}
	part := &Table{Name: t.Name, Columns: t.Columns, Rows: rows}
	return func(d Dialect) string { return part.InsertSQL(d)[0] }
}

func (g *generator) insert(t *Table, next int) Change {
	ids := []int{next, next + 1}
	if g.chance(20) {
		ids[1] = g.r.IntN(5) // taken, perhaps
	}
	return both(t, g.rows(t, ids))
}

// insertSelect copies rows of a table, moved to new ids.
func (g *generator) insertSelect(t *Table, next int) Change {
	a := g.nextAlias()
	sc := g.tableScope(t, a)
	items := []string{fmt.Sprintf("%s.id + %d", a, next)}
	for _, c := range t.Columns[1:] {
		items = append(items, a+"."+c.Name)
	}
	where := g.condition(sc, 1)
	return both(t, func(d Dialect) string {
		return "INSERT INTO " + t.Name + " (" + t.names() + ") SELECT " + strings.Join(items, ", ") + " FROM " + t.Name + " AS " + a +
			" WHERE " + where.SQL(d)
	})
}

func (g *generator) upsert(t *Table, next int) Change {
	rows := g.rows(t, []int{g.r.IntN(20), 20 + g.r.IntN(20), next})
	if g.chance(35) {
		return both(t, func(d Dialect) string { return rows(d) + " ON CONFLICT (id) DO NOTHING" })
	}
	c := pick(g, t.Columns[1:])
	set := c.Name + " = excluded." + c.Name
	if c.Type == Int && g.chance(50) {
		set = c.Name + " = coalesce(" + t.Name + "." + c.Name + ", 0) % 1000 + 1"
	}
	where := ""
	if g.chance(30) {
		where = " WHERE " + t.Name + ".k > 1"
	}
	return both(t, func(d Dialect) string { return rows(d) + " ON CONFLICT (id) DO UPDATE SET " + set + where })
}

func (g *generator) update(t *Table, sc *scope) Change {
	i := 1 + g.r.IntN(len(t.Columns)-1)
	c := t.Columns[i]
	value, where := g.expr(sc, c.Type, 2), g.condition(sc, 1)
	return both(t, func(d Dialect) string {
		return "UPDATE " + t.Name + " SET " + c.Name + " = " + value.SQL(d) + " WHERE " + where.SQL(d)
	})
}

// changeJoined updates or deletes what a join with another table finds; its id
// makes each row meet one at most.
func (g *generator) changeJoined(t *Table, sc *scope) Change {
	o := pick(g, g.tables)
	if !o.Key { // inserts may have repeated an id
		return g.update(t, sc)
	}
	os := g.tableScope(o, "o")
	where := g.condition(&scope{columns: append(append([]*Expr(nil), sc.columns...), os.columns...)}, 1)
	on := t.Name + ".id = o.id AND "
	c := t.Columns[1+g.r.IntN(len(t.Columns)-1)]
	values := os.of(c.Type)
	if len(values) == 0 {
		return both(t, func(d Dialect) string {
			return "DELETE FROM " + t.Name + " USING " + o.Name + " AS o WHERE " + on + where.SQL(d)
		})
	}
	value := pick(g, values)
	return both(t, func(d Dialect) string {
		return "UPDATE " + t.Name + " SET " + c.Name + " = " + value.SQL(d) + " FROM " + o.Name + " AS o WHERE " + on + where.SQL(d)
	})
}
