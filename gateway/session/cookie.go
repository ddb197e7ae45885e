package session

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// CookieName is the cookie that holds a session's token, by the name that Flight
// SQL's clients and servers use.
const CookieName = "arrow_flight_session_id"

// Token is what a client knows its session by. The gateway offers one to every
// client that has none, before there is anything to keep, since only a client
// that comes back with it can have a session.
type Token struct {
	ID string // 32 hexadecimal digits
	// Kept says that there was something to keep, so that not finding the session
	// means that the client has lost it.
	Kept bool
}

const (
	offeredMark = "o"
	keptMark    = "s"
	idDigits    = 32
)

// NewToken is a token to offer.
func NewToken() Token {
	var b [idDigits / 2]byte
	rand.Read(b[:]) // never fails: it aborts the process when the system has no randomness
	return Token{ID: hex.EncodeToString(b[:])}
}

// ParseCookies finds the token in the values of Cookie headers; false when there
// is none or it is not one of ours.
func ParseCookies(headers []string) (Token, bool) {
	for _, header := range headers {
		cookies, err := http.ParseCookie(header)
		if err != nil {
			continue // another server's cookie is no business of ours
		}
		for _, c := range cookies {
			if c.Name != CookieName {
				continue
			}
			if t, ok := parseToken(c.Value); ok {
				return t, true
			}
		}
	}
	return Token{}, false
}

func parseToken(text string) (Token, bool) {
	id, kept := strings.CutPrefix(text, keptMark)
	if !kept {
		var ok bool
		if id, ok = strings.CutPrefix(text, offeredMark); !ok {
			return Token{}, false
		}
	}
	if _, err := hex.DecodeString(id); err != nil || len(id) != idDigits {
		return Token{}, false
	}
	return Token{ID: id, Kept: kept}, true
}

// SetCookie is the value of a Set-Cookie header that gives a client the token.
func (t Token) SetCookie() string {
	mark := offeredMark
	if t.Kept {
		mark = keptMark
	}
	return (&http.Cookie{Name: CookieName, Value: mark + t.ID, Path: "/", HttpOnly: true}).String()
}

// DropCookie is the value of a Set-Cookie header that has a client forget its
// token.
func DropCookie() string {
	return (&http.Cookie{Name: CookieName, Value: "", Path: "/", MaxAge: -1}).String()
}
