package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
)

// literal is a text as an SQL literal.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// like is a condition that a column matches a pattern, in which * stands for any
// characters and ? for one. Letters out of double quotes are lower-case, as in
// SQL.
func like(column, pattern string) string {
	var b strings.Builder
	quoted := false
	for _, c := range pattern {
		switch {
		case c == '"':
			quoted = !quoted
			continue
		case c == '*' && !quoted:
			b.WriteByte('%')
			continue
		case c == '?' && !quoted:
			b.WriteByte('_')
			continue
		case c == '%' || c == '_' || c == '\\':
			b.WriteByte('\\')
		}
		if quoted {
			b.WriteRune(c)
		} else {
			b.WriteString(strings.ToLower(string(c)))
		}
	}
	return column + " LIKE " + literal(b.String())
}

// likeName is like for schema.name; without a schema those of the system are
// left out.
func likeName(schema, name, pattern string) string {
	if pattern == "" {
		pattern = "*"
	}
	if before, after, ok := cutName(pattern); ok {
		return like(schema, before) + " AND " + like(name, after)
	}
	return like(name, pattern) + " AND " + schema + " NOT IN ('pg_catalog', 'information_schema', 'skein')"
}

// cutName cuts at the first dot out of double quotes.
func cutName(s string) (before, after string, ok bool) {
	quoted := false
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '.' && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// where is a WHERE clause for an optional pattern.
func where(column, pattern string) string {
	if pattern == "" {
		return ""
	}
	return " WHERE " + like(column, pattern)
}

// list prints a statement's rows; none is said in words.
func (s *Shell) list(ctx context.Context, statement string) error {
	return s.print(ctx, statement, s.shown(), false)
}

func (s *Shell) listTables(ctx context.Context, pattern string) error {
	return s.list(ctx, `SELECT t.table_schema AS "schema", t.table_name AS "name", k.row_count AS "rows", k.bytes, k.tablets, k.replicas
FROM information_schema.tables t LEFT JOIN skein.tables k ON k.table_schema = t.table_schema AND k.table_name = t.table_name
WHERE `+likeName("t.table_schema", "t.table_name", pattern)+" ORDER BY 1, 2")
}

func (s *Shell) listSchemas(ctx context.Context, pattern string) error {
	return s.list(ctx, `SELECT schema_name AS "schema", schema_owner AS owner FROM information_schema.schemata`+
		where("schema_name", pattern)+" ORDER BY 1")
}

func (s *Shell) listFunctions(ctx context.Context, pattern string) error {
	return s.list(ctx, `SELECT function_name AS "name", signatures, description FROM skein.functions`+
		where("function_name", pattern)+" ORDER BY 1")
}

func (s *Shell) listUsers(ctx context.Context, pattern string) error {
	return s.list(ctx, `SELECT rolname AS "user", rolsuper AS superuser, rolcanlogin AS "can log in" FROM pg_catalog.pg_roles`+
		where("rolname", pattern)+" ORDER BY 1")
}

func (s *Shell) listDatabases(ctx context.Context, _ string) error {
	return s.list(ctx, `SELECT datname AS "database" FROM pg_catalog.pg_database ORDER BY 1`)
}

// describe shows the columns of the tables that a pattern matches, their keys and
// how they are stored; without one it lists tables.
func (s *Shell) describe(ctx context.Context, pattern string) error {
	if pattern == "" {
		return s.listTables(ctx, "")
	}
	tables, err := s.texts(ctx, "SELECT table_schema, table_name FROM information_schema.tables WHERE "+
		likeName("table_schema", "table_name", pattern)+" ORDER BY 1, 2")
	if err != nil {
		return err
	}
	if len(tables) == 0 {
		return fmt.Errorf(`there is no table %s; \dt lists them`, pattern)
	}
	for _, t := range tables {
		if err := s.describeTable(ctx, t[0], t[1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shell) describeTable(ctx context.Context, schema, name string) error {
	this := fmt.Sprintf("table_schema = %s AND table_name = %s", literal(schema), literal(name))
	if s.format == render.Table {
		if err := s.say("Table %s.%s", schema, name); err != nil {
			return err
		}
	}
	err := s.list(ctx, `SELECT i.column_name AS "column", coalesce(k.type, i.data_type) AS "type", i.is_nullable AS "nullable", i.column_default AS "default"
FROM information_schema.columns i LEFT JOIN skein.columns k
ON k.table_schema = i.table_schema AND k.table_name = i.table_name AND k.column_name = i.column_name
WHERE i.`+strings.Replace(this, " AND ", " AND i.", 1)+" ORDER BY i.ordinal_position")
	if err != nil || s.format != render.Table {
		return err
	}
	rows, err := s.texts(ctx, `SELECT coalesce(primary_key, ''), partition_kind, coalesce(partition_columns, ''),
tablets::text, replicas::text, row_count::text, bytes::text FROM skein.tables WHERE `+this)
	if err != nil {
		return err
	}
	for _, r := range rows {
		key, kind, columns := r[0], r[1], r[2]
		if key != "" {
			if err := s.say("Primary key: (%s)", key); err != nil {
				return err
			}
		}
		if columns != "" {
			kind += " (" + columns + ")"
		}
		if err := s.say("Partitioning: %s, tablets: %s, replicas: %s\nRows: %s, bytes: %s", kind, r[3], r[4], r[5], r[6]); err != nil {
			return err
		}
	}
	return nil
}

// maxTexts bounds what the shell reads for itself.
const maxTexts = 100_000

var errTooManyTexts = errors.New("the server lists too many names to hold")

// texts runs a statement and returns its rows as texts, "" for NULL.
func (s *Shell) texts(ctx context.Context, statement string) ([][]string, error) {
	return texts(ctx, s.client, statement)
}

func texts(ctx context.Context, c *client.Client, statement string) ([][]string, error) {
	r, err := c.Run(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.Schema() == nil {
		return nil, nil
	}
	var out [][]string
	for {
		b, err := r.Next()
		if b == nil || err != nil {
			return out, err
		}
		if len(out)+int(b.NumRows()) > maxTexts {
			return nil, errTooManyTexts
		}
		for row := range int(b.NumRows()) {
			cells := make([]string, b.NumCols())
			for i, column := range b.Columns() {
				cells[i], _ = render.Cell(column, row)
			}
			out = append(out, cells)
		}
	}
}
