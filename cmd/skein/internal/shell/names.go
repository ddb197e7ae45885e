package shell

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"skein/cmd/skein/internal/client"
)

// keywords are completed anywhere in a statement.
var keywords = strings.Fields(`ALL ALTER ANALYZE AND ANY AS ASC BEGIN BETWEEN BIGINT BOOLEAN BY BYTEA CALL CASCADE CASE CAST COLUMN
	COMMIT CONFLICT CREATE CROSS CUBE CURRENT_DATE CURRENT_TIMESTAMP DATE DECIMAL DEFAULT DELETE DESC DISTINCT DO DOUBLE DROP
	ELSE END EXCEPT EXISTS EXPLAIN FALSE FETCH FILTER FIRST FOLLOWING FORMAT FROM FULL GROUP GROUPING HAVING IF ILIKE IN INNER
	INSERT INTEGER INTERSECT INTERVAL INTO IS JOIN JSON KEY LAST LATERAL LEFT LIKE LIMIT MATERIALIZED NATURAL NOT NOTHING NULL
	NULLS OFFSET ON ONLY OR ORDER OUTER OVER PARTITION PRECEDING PRECISION PRIMARY RANGE REAL RECURSIVE RENAME RESET RESTRICT
	RETURNING RIGHT ROLLBACK ROLLUP ROW ROWS SCHEMA SELECT SET SETS SHOW SMALLINT SOME TABLE TEMPORARY TEXT THEN TIME
	TIMESTAMP TIMESTAMPTZ TO TRUE TRUNCATE UNBOUNDED UNION UNIQUE UPDATE USING UUID VALUES VARCHAR VIEW WHEN WHERE WINDOW WITH`)

const (
	// namesAge is how long names that were read are good.
	namesAge = 30 * time.Second
	// namesTimeout bounds the wait of a completion for names.
	namesTimeout = 2 * time.Second
)

// names are the tables, columns and functions of the server, read when a
// completion first needs them.
type names struct {
	client    *client.Client
	read      time.Time
	schemas   []string
	tables    []tableNames
	functions []string
}

type tableNames struct {
	schema, name string
	columns      []string
}

var definition = regexp.MustCompile(`(?i)^\s*(create|drop|alter)\b`)

// ran notes a statement that was run: it may have changed names.
func (n *names) ran(statement string) {
	if definition.MatchString(statement) {
		n.read = time.Time{}
	}
}

// refresh reads the names anew where they are old. Those of a server that gives
// none stay as they are.
func (n *names) refresh() {
	if time.Since(n.read) < namesAge {
		return
	}
	n.read = time.Now() // a server without such tables is not asked at every key
	ctx, cancel := context.WithTimeout(context.Background(), namesTimeout)
	defer cancel()
	columns, err := texts(ctx, n.client, "SELECT table_schema, table_name, column_name FROM information_schema.columns ORDER BY table_schema, table_name, ordinal_position")
	if err != nil {
		return
	}
	n.tables, n.schemas = nil, nil
	for _, c := range columns {
		last := len(n.tables) - 1
		if last < 0 || n.tables[last].schema != c[0] || n.tables[last].name != c[1] {
			n.tables = append(n.tables, tableNames{schema: c[0], name: c[1]})
			last++
		}
		n.tables[last].columns = append(n.tables[last].columns, c[2])
	}
	if rows, err := texts(ctx, n.client, "SELECT schema_name FROM information_schema.schemata ORDER BY 1"); err == nil {
		n.schemas = firsts(rows)
	}
	if rows, err := texts(ctx, n.client, "SELECT function_name FROM skein.functions ORDER BY 1"); err == nil {
		n.functions = slices.DeleteFunc(firsts(rows), func(f string) bool { return !isWord(f) })
	}
}

func firsts(rows [][]string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r[0]
	}
	return out
}

func isWord(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return !wordRune(c) }) < 0
}

func wordRune(c rune) bool { return c == '_' || c == '$' || unicode.IsLetter(c) || unicode.IsDigit(c) }

// candidate is something that a word may become.
type candidate struct{ text, kind string }

// complete returns what the word before the cursor may become: whole words, and
// with a qualifier, the qualifier too.
func (n *names) complete(text string) []candidate {
	start := len(text)
	for start > 0 {
		c := text[start-1]
		if c < 0x80 && !wordRune(rune(c)) && c != '.' && c != '"' {
			break
		}
		start--
	}
	before, word := text[:start], text[start:]
	if strings.HasSuffix(before, `\`) && strings.TrimSpace(strings.TrimSuffix(before, `\`)) == "" {
		return completeCommand(word)
	}
	n.refresh()
	var found []candidate
	add := func(prefix, kind string, all ...string) {
		for _, name := range all {
			whole := prefix + quoteName(name)
			if len(whole) > len(word) && strings.EqualFold(whole[:len(word)], word) || whole == word {
				found = append(found, candidate{whole, kind})
			}
		}
	}
	if qualifier, _, ok := cutLast(word); ok {
		n.qualified(text, qualifier, add)
	} else {
		n.unqualified(text, before, add)
		if !wantsTable(before) {
			found = append(found, completeKeyword(word)...)
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.text, b.text) })
	return slices.CompactFunc(found, func(a, b candidate) bool { return a.text == b.text })
}

func completeCommand(word string) []candidate {
	var found []candidate
	for _, c := range commands() {
		if strings.HasPrefix(c.name, word) {
			found = append(found, candidate{c.name, c.help})
		}
	}
	return found
}

// completeKeyword answers in the case that the word was begun in.
func completeKeyword(word string) []candidate {
	if word == "" {
		return nil
	}
	var found []candidate
	for _, k := range keywords {
		if len(k) >= len(word) && strings.EqualFold(k[:len(word)], word) {
			if word != strings.ToUpper(word) {
				k = strings.ToLower(k)
			}
			found = append(found, candidate{k, "keyword"})
		}
	}
	return found
}

var tableContext = regexp.MustCompile(`(?i)(\b(from|join|into|update|table|truncate|describe)\s+|^\s*\\d[t]?\s+)$`)

// wantsTable reports whether a table's name comes next.
func wantsTable(before string) bool { return tableContext.MatchString(before) }

type adder func(prefix, kind string, names ...string)

// unqualified adds what a word without a dot may be.
func (n *names) unqualified(text, before string, add adder) {
	for _, t := range n.tables {
		if !hidden(t.schema) {
			add("", "table", t.name)
		}
	}
	add("", "schema", n.schemas...)
	if wantsTable(before) {
		return
	}
	for _, t := range n.mentioned(text) {
		add("", "column of "+t.name, t.columns...)
	}
	add("", "function", n.functions...)
}

func hidden(schema string) bool {
	return schema == "pg_catalog" || schema == "information_schema" || schema == "skein"
}

// qualified adds what may follow a qualifier: the tables of a schema, the columns
// of a table or of one with that alias.
func (n *names) qualified(text, qualifier string, add adder) {
	name := unquoteName(qualifier)
	for _, t := range n.tables {
		if t.schema == name {
			add(qualifier+".", "table", t.name)
		}
		if t.name == name || n.aliased(text, t, name) {
			add(qualifier+".", "column", t.columns...)
		}
	}
}

// mentioned returns the tables whose names a text has.
func (n *names) mentioned(text string) []tableNames {
	words := strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return !wordRune(c) })
	return slices.DeleteFunc(slices.Clone(n.tables), func(t tableNames) bool {
		return !slices.Contains(words, strings.ToLower(t.name)) || (hidden(t.schema) && !slices.Contains(words, t.schema))
	})
}

// aliased reports whether a text gives a table an alias.
func (n *names) aliased(text string, t tableNames, alias string) bool {
	pattern := `(?i)\b"?` + regexp.QuoteMeta(t.name) + `"?\s+(as\s+)?"?` + regexp.QuoteMeta(alias) + `\b`
	ok, err := regexp.MatchString(pattern, text)
	return ok && err == nil
}

// quoteName writes a name as SQL needs it.
func quoteName(name string) string {
	plain := name != "" && name == strings.ToLower(name) && isWord(name) && !unicode.IsDigit(rune(name[0]))
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func unquoteName(name string) string {
	if _, last, ok := cutLast(name); ok {
		name = last
	}
	if strings.HasPrefix(name, `"`) {
		return strings.ReplaceAll(strings.Trim(name, `"`), `""`, `"`)
	}
	return strings.ToLower(name)
}

// cutLast cuts at the last dot.
func cutLast(s string) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
