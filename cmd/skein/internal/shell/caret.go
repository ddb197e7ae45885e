package shell

import (
	"errors"
	"fmt"
	"strings"

	prettytext "github.com/jedib0t/go-pretty/v6/text"

	"skein/sqlstate"
)

// position is the 1-based character of the statement that an error is about, 0
// where it does not say.
func position(err error) int {
	var e *sqlstate.Error
	if errors.As(err, &e) {
		return e.Position
	}
	return 0
}

// caretWidth bounds how much of a long line is shown around the caret.
const caretWidth = 72

// caret shows the line of a statement that has its position-th character, and
// below it a caret there; "" where there is no such character.
func caret(statement string, position int) string {
	chars := []rune(statement)
	if position < 1 || position > len(chars)+1 {
		return ""
	}
	at := position - 1
	begin, number := 0, 1
	for i, c := range chars[:at] {
		if c == '\n' {
			begin, number = i+1, number+1
		}
	}
	end := at
	for end < len(chars) && chars[end] != '\n' {
		end++
	}
	before, after := plain(chars[begin:at]), plain(chars[at:end])
	dots := ""
	if len(before) > caretWidth/2 {
		before, dots = before[len(before)-caretWidth/2:], "..."
	}
	tail := ""
	if len(after) > caretWidth/2 {
		after, tail = after[:caretWidth/2], "..."
	}
	lead := fmt.Sprintf("LINE %d: %s%s", number, dots, string(before))
	return lead + string(after) + tail + "\n" +
		strings.Repeat(" ", prettytext.StringWidthWithoutEscSequences(lead)) + "^"
}

// plain makes tabs and other control characters as wide as they look here.
func plain(chars []rune) []rune {
	out := make([]rune, len(chars))
	for i, c := range chars {
		if c < ' ' {
			c = ' '
		}
		out[i] = c
	}
	return out
}
