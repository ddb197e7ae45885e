package parse

import (
	"fmt"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/sqlstate"
)

// Statement is one parsed statement. It is immutable and may be shared.
type Statement struct {
	// Tree is the statement's node in PostgreSQL's syntax tree. Locations in
	// it are meaningful to Position only.
	Tree *pgquery.Node
	// Text is the whole request that the statement came from.
	Text string

	rewritten string // what the grammar saw
	moved     offsets
}

// Position converts a location of the tree to a 1-based character of Text; a
// negative location is unknown and yields 0.
func (s *Statement) Position(location int32) int {
	if location < 0 {
		return 0
	}
	return characters(s.Text, s.moved.original(int(location)))
}

// Source is the statement's SQL between two locations of the tree, with
// placeholders numbered.
func (s *Statement) Source(from, to int32) string {
	lo := min(max(int(from), 0), len(s.rewritten))
	hi := min(max(int(to), lo), len(s.rewritten))
	return s.rewritten[lo:hi]
}

// Parse cuts text into statements; a text of white space and comments has
// none. Errors are *sqlstate.Error: SyntaxError with the position and the token
// that the grammar did not expect, ProgramLimitExceeded for texts too large or
// too deeply nested, InvalidByteSequence for what is not UTF-8 text.
func Parse(text string) ([]*Statement, error) {
	s, err := scan(text)
	if err != nil {
		return nil, err
	}
	if s.numbered && len(s.placeholders) > 0 {
		return nil, sqlstate.New(sqlstate.SyntaxError, "the statement mixes ? placeholders and $n parameters").
			At(characters(text, s.placeholders[0].offset)).
			WithHint("Use one of the two.")
	}
	if len(s.placeholders) > MaxParams {
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded,
			"the statement has %d parameters, the limit is %d", len(s.placeholders), MaxParams)
	}
	rewritten, moved := s.numberPlaceholders()
	tree, message, position, err := guardedParse(rewritten)
	if message != "" {
		at := 0
		if position > 0 {
			at = characters(text, moved.original(byteOffset(rewritten, position)))
		}
		code := sqlstate.SyntaxError
		if strings.HasPrefix(message, "invalid byte sequence") {
			code = sqlstate.InvalidByteSequence // the grammar's words for an escape such as E'\xff'
		}
		return nil, sqlstate.New(code, "%s", message).At(at)
	}
	if err != nil {
		return nil, err
	}
	statements := make([]*Statement, 0, len(tree.Stmts))
	for _, raw := range tree.Stmts {
		statements = append(statements, &Statement{
			Tree: raw.Stmt, Text: text, rewritten: rewritten, moved: moved,
		})
	}
	return statements, nil
}

// guardedParse turns a parser that gives up, by a trap of the WebAssembly
// machine or by the depth limit of protobuf, into an error of this statement.
func guardedParse(text string) (tree *pgquery.ParseResult, message string, position int, err error) {
	defer func() {
		if r := recover(); r != nil {
			tree, message, position = nil, "", 0
			err = tooComplex(fmt.Errorf("the parser gave up: %v", r))
		}
	}()
	tree, message, position, err = parseTree(text)
	if err != nil {
		err = tooComplex(err)
	}
	return tree, message, position, err
}

func tooComplex(cause error) error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement is too complex to parse: %w", cause).
		WithHint("Split it into simpler statements.")
}
