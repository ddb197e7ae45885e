package client

import (
	"strings"
	"unicode/utf8"
)

// SplitStatements cuts a script at its top-level semicolons. It returns the
// statements without semicolon, comments and blank ones left out, and what
// follows the last semicolon: "" where that is only space and comments.
func SplitStatements(script string) (statements []string, rest string) {
	for {
		statement, after, ended := NextStatement(script)
		if !ended {
			return statements, statement
		}
		if statement != "" {
			statements = append(statements, statement)
		}
		script = after
	}
}

// NextStatement returns the first statement of a script without its semicolon,
// "" where it is only space and comments, what follows the semicolon, and
// whether there was one.
//
// Only the tokens that may hide a semicolon are recognised (quotes, dollar
// quotes, comments); everything else is the server's to judge.
func NextStatement(script string) (statement, rest string, ended bool) {
	content := false
	for i := 0; i < len(script); {
		if script[i] == ';' {
			if content {
				statement = strings.TrimSpace(script[:i])
			}
			return statement, script[i+1:], true
		}
		end, blank := token(script, i)
		content = content || !blank
		i = end
	}
	if content {
		statement = strings.TrimSpace(script)
	}
	return statement, "", false
}

// SkipBlank returns what follows the space and comments that a script begins
// with.
func SkipBlank(script string) string {
	for i := 0; i < len(script); {
		end, blank := token(script, i)
		if !blank {
			return script[i:]
		}
		i = end
	}
	return ""
}

// token returns where the token at i ends and whether it is space or comment.
// An unclosed one ends with the script.
func token(s string, i int) (end int, blank bool) {
	switch c := s[i]; {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
		return i + 1, true
	case strings.HasPrefix(s[i:], "--"):
		if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
			return i + n + 1, true
		}
		return len(s), true
	case strings.HasPrefix(s[i:], "/*"):
		return blockComment(s, i), true
	case c == '\'':
		return quoted(s, i, '\'', escapeString(s, i)), false
	case c == '"':
		return quoted(s, i, '"', false), false
	case c == '$':
		return dollarQuoted(s, i), false
	case isWord(c):
		for i++; i < len(s) && (isWord(s[i]) || s[i] == '$'); i++ {
		}
		return i, false
	}
	_, size := utf8.DecodeRuneInString(s[i:])
	return i + size, false
}

func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// escapeString reports whether the quote at i belongs to an E'...' string.
func escapeString(s string, i int) bool {
	return i > 0 && (s[i-1] == 'e' || s[i-1] == 'E') && (i == 1 || !isWord(s[i-2]))
}

// quoted skips a quoted token. A doubled quote needs no care: it closes and
// opens again.
func quoted(s string, i int, quote byte, backslash bool) int {
	for i++; i < len(s); i++ {
		if backslash && s[i] == '\\' {
			i++
			continue
		}
		if s[i] == quote {
			return i + 1
		}
	}
	return len(s)
}

// blockComment skips a comment; they nest.
func blockComment(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

// dollarQuoted skips $tag$...$tag$, or the dollar sign alone where it starts
// no such string (a $1 parameter).
func dollarQuoted(s string, i int) int {
	end := i + 1
	for end < len(s) && isWord(s[end]) {
		end++
	}
	if end >= len(s) || s[end] != '$' || s[i+1] >= '0' && s[i+1] <= '9' {
		return i + 1
	}
	tag := s[i : end+1]
	if n := strings.Index(s[end+1:], tag); n >= 0 {
		return end + 1 + n + len(tag)
	}
	return len(s)
}
