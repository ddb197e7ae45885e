package exec

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"skein/sqlstate"
)

// likePattern is a compiled LIKE pattern: literal runs between wildcards. The
// common shapes (exact, prefix, suffix, contains, several runs in order) need
// only byte searches; patterns with "_" are matched character by character.
type likePattern struct {
	runs []likeRun
	// anchored tell whether the first run must start, and the last must end,
	// the text.
	anchorStart, anchorEnd bool
	single                 bool // some run has a "_"
}

// likeRun is what must occur contiguously between two "%".
type likeRun struct {
	text []byte
	any  []bool // per byte of text: this position is "_" (one character)
}

// compileLike parses a pattern. escape is the escape character, 0 for none.
func compileLike(pattern []byte, escape rune) (*likePattern, error) {
	p := &likePattern{anchorStart: true}
	run := likeRun{}
	ended := false // the last thing seen was a "%"
	flush := func() {
		if len(run.text) > 0 {
			p.runs = append(p.runs, run)
			run = likeRun{}
		}
	}
	for i := 0; i < len(pattern); {
		r, n := utf8.DecodeRune(pattern[i:])
		switch {
		case escape != 0 && r == escape:
			i += n
			if i >= len(pattern) {
				return nil, sqlstate.New(sqlstate.InvalidEscape, "LIKE pattern must not end with escape character")
			}
			_, n = utf8.DecodeRune(pattern[i:])
			run.append(pattern[i:i+n], false)
			ended = false
		case pattern[i] == '%':
			flush()
			if i == 0 {
				p.anchorStart = false
			}
			ended = true
		case pattern[i] == '_':
			run.append(pattern[i:i+1], true)
			p.single, ended = true, false
		default:
			run.append(pattern[i:i+n], false)
			ended = false
		}
		i += n
	}
	flush()
	p.anchorEnd = !ended
	return p, nil
}

func (r *likeRun) append(text []byte, any bool) {
	r.text = append(r.text, text...)
	for range text {
		r.any = append(r.any, any)
	}
}

// match reports whether the whole text matches.
func (p *likePattern) match(s []byte) bool {
	if len(p.runs) == 0 {
		// "" matches only the empty text, "%" everything.
		return !p.anchorStart || !p.anchorEnd || len(s) == 0
	}
	if p.single {
		return p.matchChars(s)
	}
	runs := p.runs
	if p.anchorStart {
		if !bytes.HasPrefix(s, runs[0].text) {
			return false
		}
		s, runs = s[len(runs[0].text):], runs[1:]
		if len(runs) == 0 {
			return !p.anchorEnd || len(s) == 0
		}
	}
	if p.anchorEnd {
		last := runs[len(runs)-1].text
		if !bytes.HasSuffix(s, last) {
			return false
		}
		s, runs = s[:len(s)-len(last)], runs[:len(runs)-1]
	}
	for i := range runs {
		k := bytes.Index(s, runs[i].text)
		if k < 0 {
			return false
		}
		s = s[k+len(runs[i].text):]
	}
	return true
}

// matchChars places the runs from left to right, each as early as possible,
// the last one at the end when it is anchored there.
func (p *likePattern) matchChars(s []byte) bool {
	for k := range p.runs {
		r := &p.runs[k]
		last := k == len(p.runs)-1
		if k == 0 && p.anchorStart {
			n := r.matchAt(s)
			if n < 0 {
				return false
			}
			if last && p.anchorEnd {
				return n == len(s)
			}
			s = s[n:]
			continue
		}
		if last && p.anchorEnd {
			return r.matchEnd(s)
		}
		found := false
		for from := 0; from <= len(s); from += runeStep(s[from:]) {
			if n := r.matchAt(s[from:]); n >= 0 {
				s, found = s[from+n:], true
				break
			}
			if from == len(s) {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func runeStep(s []byte) int {
	if len(s) == 0 {
		return 1
	}
	_, n := utf8.DecodeRune(s)
	return n
}

// matchAt matches the run at the start of s and returns its length, -1 if it
// does not match.
func (r *likeRun) matchAt(s []byte) int {
	at := 0
	for i, c := range r.text {
		if at >= len(s) {
			return -1
		}
		if r.any[i] {
			at += runeStep(s[at:])
			continue
		}
		if s[at] != c {
			return -1
		}
		at++
	}
	return at
}

// matchEnd tries every start that leaves the run ending exactly at the end.
func (r *likeRun) matchEnd(s []byte) bool {
	for from := 0; from < len(s); from += runeStep(s[from:]) {
		if n := r.matchAt(s[from:]); n == len(s)-from && n >= 0 {
			return true
		}
	}
	return false
}

// lowered is the pattern's text in lower case, for ILIKE.
func lowered(p []byte) []byte { return appendMapped(nil, p, unicode.ToLower) }
