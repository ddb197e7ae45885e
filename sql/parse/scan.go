package parse

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"skein/sqlstate"
)

// MaxTextBytes bounds the size of one request's SQL text.
const MaxTextBytes = 1 << 20

// MaxParams is the highest parameter number, as in PostgreSQL's protocol.
const MaxParams = 65535

// MaxNameBytes is what PostgreSQL's lexer, which is in the parser, cuts names down
// to. Longer ones are refused, for another name than the statement's would be meant.
const MaxNameBytes = 63

// maxNesting bounds an upper estimate of the depth of the syntax tree, in tree
// nodes: WebAssembly's stack, the smallest one involved, takes more than it.
const maxNesting = 1400

// A bracket costs several levels, since a subquery in it does.
const bracketLevels = 4

// scanner walks SQL text token by token, as PostgreSQL's lexer cuts it, to find
// `?` placeholders and to bound nesting before the real parser runs.
type scanner struct {
	text         string
	pos          int
	placeholders []placeholder
	numbered     bool // the text has a $n parameter
	frames       []frame
	depth        int
	lastOffset   int // first byte of the last token
}

// placeholder is a lone `?` at a byte offset.
type placeholder struct{ offset int }

// frame is one open bracket or CASE. chain counts the tokens that may each add
// a level since the last separator; joins those that no separator resets.
type frame struct {
	kind  byte
	chain int
	joins int
}

const caseFrame = 'C'

// scan checks the limits on text and finds its placeholders.
func scan(text string) (*scanner, error) {
	if len(text) > MaxTextBytes {
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded,
			"the statement has %d bytes, the limit is %d", len(text), MaxTextBytes).
			WithHint("Split it, or load the data with ingest.")
	}
	if !utf8.ValidString(text) {
		return nil, sqlstate.New(sqlstate.InvalidByteSequence, "the statement is not valid UTF-8")
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, sqlstate.New(sqlstate.InvalidByteSequence, "the statement contains a NUL character").
			At(characters(text, i))
	}
	s := &scanner{text: text, frames: []frame{{}}}
	for s.pos < len(s.text) {
		s.token()
		if n := identifierBytes(s.text[s.lastOffset:s.pos]); n > MaxNameBytes {
			return nil, sqlstate.New(sqlstate.NameTooLong, "a name has %d bytes, %d are possible", n, MaxNameBytes).
				At(characters(text, s.lastOffset)).
				WithHint("Give it a shorter name.")
		}
		if s.depth > maxNesting {
			return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement is nested too deeply").
				At(characters(text, s.lastOffset)).
				WithHint("Simplify the expression, or split the statement.")
		}
	}
	return s, nil
}

// identifierBytes is the length of the name that a token is, 0 if it is none.
func identifierBytes(token string) int {
	switch {
	case token == "":
		return 0
	case token[0] == '"':
		return len(token) - strings.Count(token[1:], `"`) + strings.Count(token[1:], `""`) - 1
	case !isWordStart(token[0]):
		return 0
	}
	for i := range len(token) {
		if !isWordPart(token[i]) {
			return 0 // a word that begins a string
		}
	}
	return len(token)
}

// token consumes one token, comment or run of white space.
func (s *scanner) token() {
	s.lastOffset = s.pos
	c := s.text[s.pos]
	switch {
	case isSpace(c):
		s.pos++
	case strings.HasPrefix(s.text[s.pos:], "--"):
		s.skipLine()
	case strings.HasPrefix(s.text[s.pos:], "/*"):
		s.skipComment()
	case c == '\'':
		s.skipString(false)
	case c == '"':
		s.skipQuoted('"')
		s.link()
	case c == '$':
		s.dollar()
	case isWordStart(c):
		s.word()
	case isDigit(c):
		s.number()
	case isOperator(c):
		s.operator()
	default:
		s.pos++
		s.punctuation(c)
	}
}

func (s *scanner) skipLine() {
	if i := strings.IndexAny(s.text[s.pos:], "\n\r"); i >= 0 {
		s.pos += i
		return
	}
	s.pos = len(s.text)
}

// skipComment skips a block comment; they nest.
func (s *scanner) skipComment() {
	s.pos += 2
	for open := 1; open > 0 && s.pos < len(s.text); {
		switch {
		case strings.HasPrefix(s.text[s.pos:], "/*"):
			open++
			s.pos += 2
		case strings.HasPrefix(s.text[s.pos:], "*/"):
			open--
			s.pos += 2
		default:
			s.pos++
		}
	}
}

// skipQuoted skips to the closing quote, which a doubled one does not close.
func (s *scanner) skipQuoted(quote byte) {
	s.pos++
	for s.pos < len(s.text) {
		if s.text[s.pos] != quote {
			s.pos++
			continue
		}
		if s.pos+1 < len(s.text) && s.text[s.pos+1] == quote {
			s.pos += 2
			continue
		}
		s.pos++
		return
	}
}

// skipString skips a string constant; in an escape string a backslash takes
// the next character, also in its continuations on later lines.
func (s *scanner) skipString(escapes bool) {
	if !escapes {
		s.skipQuoted('\'')
		return
	}
	for {
		s.pos++
		for s.pos < len(s.text) && s.text[s.pos] != '\'' {
			if s.text[s.pos] == '\\' {
				s.pos++
			}
			s.pos++
		}
		s.pos = min(s.pos+1, len(s.text))
		next := s.pos
		newline := false
		for next < len(s.text) && isSpace(s.text[next]) {
			newline = newline || s.text[next] == '\n' || s.text[next] == '\r'
			next++
		}
		if next >= len(s.text) || s.text[next] != '\'' || (!newline && next != s.pos) {
			return
		}
		s.pos = next
	}
}

// dollar consumes a $n parameter or a dollar-quoted string.
func (s *scanner) dollar() {
	rest := s.text[s.pos+1:]
	if rest != "" && isDigit(rest[0]) {
		s.numbered = true
		s.pos++
		for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
			s.pos++
		}
		return
	}
	tag := 0
	for tag < len(rest) && isWordPart(rest[tag]) && rest[tag] != '$' && (tag > 0 || isWordStart(rest[tag])) {
		tag++
	}
	if tag >= len(rest) || rest[tag] != '$' {
		s.pos++
		return
	}
	quote := s.text[s.pos : s.pos+tag+2]
	s.pos += len(quote)
	if i := strings.Index(s.text[s.pos:], quote); i >= 0 {
		s.pos += i + len(quote)
		return
	}
	s.pos = len(s.text)
}

// number consumes a numeric constant. A sign is not part of it, but one after
// an exponent's e is.
func (s *scanner) number() {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		exponent := (c == '+' || c == '-') && (s.text[s.pos-1] == 'e' || s.text[s.pos-1] == 'E')
		if !isWordPart(c) && c != '.' && !exponent {
			return
		}
		s.pos++
	}
}

// word consumes a keyword or identifier, or a string constant with a prefix.
func (s *scanner) word() {
	start := s.pos
	for s.pos < len(s.text) && isWordPart(s.text[s.pos]) {
		s.pos++
	}
	word := s.text[start:s.pos]
	if s.pos < len(s.text) && s.text[s.pos] == '\'' && len(word) == 1 {
		s.skipString(word == "e" || word == "E")
		return
	}
	s.keyword(strings.ToLower(word))
}

// keyword accounts for a word in the nesting estimate.
func (s *scanner) keyword(word string) {
	top := &s.frames[len(s.frames)-1]
	switch word {
	case "and", "or":
		s.separate()
	case "when", "then", "else":
		if top.kind == caseFrame {
			s.separate()
		}
	case "case":
		s.open(caseFrame)
	case "end":
		s.close(caseFrame)
	case "join", "union", "except", "intersect":
		s.separate()
		top.joins += 2
		s.depth += 2
	default:
		s.link()
	}
}

// operator consumes a run of operator characters, which ends where a comment
// starts, and takes a `?` in it for a placeholder if the rest of the run is made of
// SQL's own operators: "=?" is, "?|" and "@?" are operators of their own.
func (s *scanner) operator() {
	start := s.pos
	for s.pos < len(s.text) && isOperator(s.text[s.pos]) {
		if rest := s.text[s.pos:]; strings.HasPrefix(rest, "--") || strings.HasPrefix(rest, "/*") {
			break
		}
		s.pos++
	}
	run := s.text[start:s.pos]
	s.link()
	if !strings.Contains(run, "?") {
		return
	}
	parts := strings.Split(run, "?")
	for i, part := range parts {
		inner := i > 0 && i < len(parts)-1
		if (part == "" && inner) || !plainOperator(part) {
			return
		}
	}
	for i := range len(run) {
		if run[i] == '?' {
			s.placeholders = append(s.placeholders, placeholder{start + i})
		}
	}
}

// plainOperator reports whether an operator run may touch a placeholder.
func plainOperator(op string) bool {
	switch op {
	case "", "=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "^", "||",
		"=-", "<-", ">-", "<=-", ">=-", "+-", "*-", "/-", "%-":
		return true
	}
	return false
}

func (s *scanner) punctuation(c byte) {
	switch c {
	case '(', '[':
		s.open(c)
	case ')':
		s.close('(')
	case ']':
		s.close('[')
	case ',':
		s.separate()
	case ';':
		s.frames = append(s.frames[:0], frame{})
		s.depth = 0
	case ':':
		s.link()
	}
}

// link accounts for a token that may put a level on what precedes it.
func (s *scanner) link() {
	s.frames[len(s.frames)-1].chain++
	s.depth++
}

// separate ends the chain of links of the innermost bracket.
func (s *scanner) separate() {
	top := &s.frames[len(s.frames)-1]
	s.depth -= top.chain
	top.chain = 0
}

func (s *scanner) open(kind byte) {
	s.frames = append(s.frames, frame{kind: kind})
	s.depth += bracketLevels
}

// close leaves the innermost bracket if it is of this kind. An unmatched one
// is left open: the grammar refuses it anyway.
func (s *scanner) close(kind byte) {
	last := len(s.frames) - 1
	if last == 0 || s.frames[last].kind != kind {
		return
	}
	s.depth -= bracketLevels + s.frames[last].chain + s.frames[last].joins
	s.frames = s.frames[:last]
	s.link()
}

// numberPlaceholders writes $1, $2, ... for the placeholders, set off by spaces
// where they would run into a neighbour, and returns how the new text's offsets
// map to the old one's.
func (s *scanner) numberPlaceholders() (string, offsets) {
	if len(s.placeholders) == 0 {
		return s.text, nil
	}
	var out strings.Builder
	var moved offsets
	last := 0
	for i, p := range s.placeholders {
		out.WriteString(s.text[last:p.offset])
		if p.offset > 0 && isWordPart(s.text[p.offset-1]) {
			out.WriteByte(' ')
		}
		moved = append(moved, offset{out.Len(), p.offset})
		out.WriteByte('$')
		out.WriteString(strconv.Itoa(i + 1))
		last = p.offset + 1
		if last < len(s.text) && isWordPart(s.text[last]) {
			out.WriteByte(' ')
		}
		moved = append(moved, offset{out.Len(), last})
	}
	out.WriteString(s.text[last:])
	return out.String(), moved
}

// offsets maps byte offsets of rewritten text to the original's: from each
// entry on, both advance in step.
type offsets []offset

type offset struct{ to, from int }

func (o offsets) original(at int) int {
	for i := len(o) - 1; i >= 0; i-- {
		if at >= o[i].to {
			// Inside a written parameter every byte stands for the `?`.
			if i%2 == 0 {
				return o[i].from
			}
			return o[i].from + at - o[i].to
		}
	}
	return at
}

// characters is the 1-based character position of a byte offset.
func characters(text string, at int) int {
	return utf8.RuneCountInString(text[:min(max(at, 0), len(text))]) + 1
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordStart(c byte) bool {
	return c == '_' || c >= 0x80 || (c|0x20 >= 'a' && c|0x20 <= 'z')
}

func isWordPart(c byte) bool { return isWordStart(c) || isDigit(c) || c == '$' }

func isOperator(c byte) bool { return strings.IndexByte("~!@#^&|`?+-*/%<>=", c) >= 0 }

// byteOffset is the byte offset of a 1-based character position.
func byteOffset(text string, position int) int {
	at := 0
	for ; position > 1 && at < len(text); position-- {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}
