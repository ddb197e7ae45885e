package sqldiff

import (
	"fmt"
	"strings"
)

// value draws a constant of a type, edge values included.
func (g *generator) value(t Type) Literal {
	typed := func(text string) Literal { return same("CAST('" + text + "' AS " + t.String() + ")") }
	switch t {
	case Bool:
		return same(pick(g, []string{"TRUE", "FALSE"}))
	case Small:
		return g.integer(t, "-32768", "32767")
	case Int:
		return g.integer(t, "-2147483648", "2147483647")
	case Big:
		return g.integer(t, "-9223372036854775808", "9223372036854775807")
	case Double, Approx:
		if g.chance(12) {
			return typed(pick(g, []string{"NaN", "Infinity", "-Infinity", "-0.0"}))
		}
		return typed(fmt.Sprintf("%g", float64(g.r.IntN(8000)-4000)/4))
	case Dec:
		if g.chance(10) {
			return same("CAST(" + pick(g, []string{"0.0000", "-0.0001", "0.5000", "-0.5", "99999999.9999"}) + " AS DECIMAL(18,4))")
		}
		return same(fmt.Sprintf("CAST(%d.%0*d AS DECIMAL(18,4))", g.r.IntN(2000)-1000, 4, g.r.IntN(10000)))
	case Text:
		return same("'" + pick(g, words) + "'")
	case Date:
		if g.chance(10) {
			return typed(pick(g, []string{"0001-01-01", "9999-12-31", "1970-01-01", "1969-12-31", "2000-02-29", "1900-03-01"}))
		}
		return typed(fmt.Sprintf("%04d-%02d-%02d", 1960+g.r.IntN(90), 1+g.r.IntN(12), 1+g.r.IntN(28)))
	case Stamp:
		if g.chance(10) {
			return typed(pick(g, []string{"1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59"}))
		}
		return typed(fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d%s", 1960+g.r.IntN(90), 1+g.r.IntN(12), 1+g.r.IntN(28),
			g.r.IntN(24), g.r.IntN(60), g.r.IntN(60), pick(g, []string{"", ".5", ".123456", ".000001"})))
	case Clock:
		return typed(fmt.Sprintf("%02d:%02d:%02d%s", g.r.IntN(24), g.r.IntN(60), g.r.IntN(60), pick(g, []string{"", ".25", ".999999"})))
	case Span, Elapsed:
		return typed(pick(g, []string{
			"0 days", "1 day", "-1 day", "1 month", "30 days", "31 days", "1 year 2 months", "-3 months 10 days", "24:00:00",
			"00:00:01.5", "1 day -01:00:00", "720:00:00", "10 years", "2 days 03:04:05.000006",
		}))
	case UUID:
		return typed(fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(g.r.IntN(4))<<30+uint32(g.r.IntN(3)), g.r.IntN(1<<40)))
	}
	return g.bytes()
}

func (g *generator) integer(t Type, least, most string) Literal {
	text := fmt.Sprint(g.r.IntN(41) - 20)
	switch {
	case g.chance(4):
		text = pick(g, []string{least, most})
	case g.chance(25):
		text = fmt.Sprint(g.r.IntN(20001) - 10000)
	}
	cast := "CAST(" + text + " AS " + t.String() + ")"
	if t == Int && text != least {
		return Literal{"(" + text + ")", cast}
	}
	return same(cast)
}

// bytes is a bytea constant, whose hex text DuckDB writes byte by byte.
func (g *generator) bytes() Literal {
	var skein, duck strings.Builder
	for range g.r.IntN(4) {
		b := pick(g, []byte{0, 1, 127, 128, 255})
		fmt.Fprintf(&skein, "%02x", b)
		fmt.Fprintf(&duck, `\x%02X`, b)
	}
	return Literal{`CAST('\x` + skein.String() + `' AS BYTEA)`, "CAST('" + duck.String() + "' AS BYTEA)"}
}

// words are texts: empty, of one letter, with spaces, wild cards, quotes and
// letters of one to four bytes.
var words = []string{
	"", "a", "A", "b", "ab", "abc", "goose", "Goose", "GEESE", " lead", "trail ", "a b c", "100%", "a_c", "it''s",
	"Ünïcode", "naïve", "日本", "🦆", "x🦆y", "zzz", "10", "2", "-5", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "É", "é", "a,b,c", ",", "\t",
}

// leaf is a constant as an expression, sometimes NULL.
func (g *generator) leaf(t Type) *Expr {
	if g.chance(8) {
		return nullOf(t)
	}
	l := g.value(t)
	return &Expr{Type: t, Skein: l.Skein, Duck: l.Duck, Leaf: true}
}

func nullOf(t Type) *Expr { return &Expr{Type: t, Skein: "CAST(NULL AS " + t.String() + ")"} }

func small(n int) *Expr {
	return &Expr{Type: Int, Skein: fmt.Sprintf("(%d)", n), Duck: fmt.Sprintf("CAST(%d AS INTEGER)", n)}
}
