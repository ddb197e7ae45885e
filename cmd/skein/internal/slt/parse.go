package slt

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is what a record expects of its statement.
type Kind string

// The kinds.
const (
	OK    Kind = "ok"
	Count Kind = "count"
	Error Kind = "error"
	Query Kind = "query"
)

// Record is one statement and its expectation.
type Record struct {
	Line  int // of the directive, from 1
	Kind  Kind
	SQL   string
	Rows  int64  // of Count
	Code  string // SQLSTATE of Error
	Types string // of Query: I, R or T for each column
	Sort  bool   // of Query: the order of rows does not count
	Want  [][]string
}

// Parse reads a file. Anything it does not know is an error, never skipped.
func Parse(text string) ([]Record, error) {
	p := &parser{lines: strings.Split(text, "\n")}
	var records []Record
	for {
		line, ok := p.directive()
		if !ok || line == "halt" {
			return records, nil
		}
		r := Record{Line: p.next}
		if err := r.expect(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.Line, err)
		}
		if err := p.body(&r); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.Line, err)
		}
		records = append(records, r)
	}
}

type parser struct {
	lines []string
	next  int // lines read
}

func (p *parser) line() (string, bool) {
	if p.next == len(p.lines) {
		return "", false
	}
	p.next++
	return strings.TrimSuffix(p.lines[p.next-1], "\r"), true
}

// directive skips to the next line that is neither empty nor a comment.
func (p *parser) directive() (string, bool) {
	for {
		line, ok := p.line()
		if !ok {
			return "", false
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			return line, true
		}
	}
}

func (r *Record) expect(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "statement" && words[1] == "ok":
		r.Kind = OK
		return nil
	case len(words) == 3 && words[0] == "statement" && words[1] == "error":
		r.Kind, r.Code = Error, words[2]
		if len(r.Code) != 5 {
			return fmt.Errorf("%q is no SQLSTATE", r.Code)
		}
		return nil
	case len(words) == 3 && words[0] == "statement" && words[1] == "count":
		r.Kind = Count
		var err error
		r.Rows, err = strconv.ParseInt(words[2], 10, 64)
		return err
	case len(words) >= 2 && words[0] == "query":
		r.Kind, r.Types = Query, words[1]
		if strings.Trim(r.Types, "IRT") != "" {
			return fmt.Errorf("column types %q are not of I, R and T", r.Types)
		}
		if len(words) == 2 || len(words) == 3 && words[2] == "nosort" {
			return nil
		}
		r.Sort = len(words) == 3 && words[2] == "rowsort"
		if r.Sort {
			return nil
		}
	}
	return fmt.Errorf("unknown directive %q", strings.Join(words, " "))
}

// body reads the statement and, of a query, its rows.
func (p *parser) body(r *Record) error {
	var sql []string
	rows := false
	for {
		line, ok := p.line()
		if !ok || line == "" {
			break
		}
		if line == "----" && r.Kind == Query {
			rows = true
			break
		}
		sql = append(sql, line)
	}
	r.SQL = strings.Join(sql, "\n")
	switch {
	case r.SQL == "":
		return fmt.Errorf("no statement")
	case r.Kind == Query && !rows:
		return fmt.Errorf("a query without ----")
	case r.Kind != Query:
		return nil
	}
	for {
		line, ok := p.line()
		if !ok || line == "" {
			return nil
		}
		row := strings.Split(line, "\t")
		if len(row) != len(r.Types) {
			return fmt.Errorf("a row of %d columns where the types name %d: %q", len(row), len(r.Types), line)
		}
		r.Want = append(r.Want, row)
	}
}
