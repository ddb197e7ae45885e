package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skein/sqlstate"
)

func newTestManager(limit int, ended *[]string) (*Manager, *time.Time) {
	now := time.Unix(1000, 0)
	return NewManager(Config{
		Limit: limit, Idle: time.Minute, Defaults: NewSettings("v", 0), Now: func() time.Time { return now },
		Ended: func(s *Session) { *ended = append(*ended, s.ID) },
	}), &now
}

func TestSessionsExpire(t *testing.T) {
	var ended []string
	m, now := newTestManager(10, &ended)
	token := NewToken()
	if m.Find(token, "u") != nil {
		t.Error("found before it was opened")
	}
	s, err := m.Open(token, "u")
	if err != nil || m.Find(token, "u") != s {
		t.Fatalf("%v, %v", s, err)
	}
	if m.Find(token, "other") != nil {
		t.Error("another user has found it")
	}
	if _, err := m.Open(token, "other"); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("another user opens it: %v", err)
	}
	*now = now.Add(50 * time.Second)
	if m.Find(token, "u") != s {
		t.Error("expired too early")
	}
	*now = now.Add(50 * time.Second) // renewed by the look-up before
	if again, err := m.Open(token, "u"); again != s || err != nil {
		t.Errorf("%v, %v", again, err)
	}
	end := m.Begin(s)
	*now = now.Add(time.Hour)
	m.Sweep()
	if m.Find(token, "u") != s {
		t.Error("expired while a statement ran")
	}
	end()
	*now = now.Add(time.Minute)
	m.Sweep()
	if len(ended) != 0 {
		t.Error("expired before it was idle for long enough")
	}
	*now = now.Add(time.Second)
	if m.Find(token, "u") != nil {
		t.Error("found after it has expired")
	}
	m.Sweep()
	m.Sweep()
	if diff := cmp.Diff([]string{token.ID}, ended); diff != "" || !s.Closed() || m.Count() != 0 {
		t.Errorf("%s, closed %t, %d left", diff, s.Closed(), m.Count())
	}
	if m.Close(s) || m.Close(nil) {
		t.Error("closed twice")
	}
}

func TestLostSessionsAreToldOnce(t *testing.T) {
	var ended []string
	m, _ := newTestManager(3, &ended)
	tokens := []Token{NewToken(), NewToken(), NewToken(), NewToken()}
	for _, token := range tokens[:3] {
		if !m.Lost(token) || m.Lost(token) {
			t.Error("not told just once")
		}
	}
	if _, err := m.Open(tokens[1], "u"); err != nil {
		t.Fatal(err)
	}
	if !m.Lost(tokens[1]) {
		t.Error("not told that the next session is lost, too")
	}
	if !m.Lost(tokens[3]) || m.Lost(tokens[3]) || len(m.lost) > 3 || len(m.order) > 3 {
		t.Errorf("%d and %d remembered", len(m.lost), len(m.order))
	}
}

func TestSessionsAreBounded(t *testing.T) {
	var ended []string
	m, now := newTestManager(3, &ended)
	for range 3 {
		if _, err := m.Open(NewToken(), "u"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Open(NewToken(), "u"); sqlstate.CodeOf(err) != sqlstate.TooManyRequests {
		t.Errorf("one too many: %v", err)
	}
	*now = now.Add(2 * time.Minute)
	if _, err := m.Open(NewToken(), "u"); err != nil || len(ended) != 3 {
		t.Errorf("after the others have expired: %v, %d ended", err, len(ended))
	}
}

func TestCookies(t *testing.T) {
	token := NewToken()
	kept := Token{ID: token.ID, Kept: true}
	for _, want := range []Token{token, kept} {
		cookie, _, _ := strings.Cut(want.SetCookie(), ";")
		for _, headers := range [][]string{{cookie}, {"a=b; " + cookie}, {"a=b", cookie + ";c=d"}, {"\x00", cookie}} {
			if got, ok := ParseCookies(headers); !ok || got != want {
				t.Errorf("%q: %v, %t", headers, got, ok)
			}
		}
	}
	for _, value := range []string{"", "o", token.ID, "x" + token.ID, "o" + token.ID[1:], "o" + token.ID + "00", "s" + strings.Repeat("z", 32)} {
		if got, ok := ParseCookies([]string{CookieName + "=" + value}); ok {
			t.Errorf("%q is taken for %v", value, got)
		}
	}
	if !strings.Contains(DropCookie(), "Max-Age=0") {
		t.Errorf("%s does not drop the cookie", DropCookie())
	}
}

func TestSettingValues(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []string
		want   string // the value shown, or an error's code after a !
	}{
		{"statement_timeout", []string{"250"}, "250ms"},
		{"STATEMENT_TIMEOUT", []string{" 2 min "}, "2min"},
		{"statement_timeout", []string{"1.5s"}, "1500ms"},
		{"statement_timeout", []string{"0"}, "0"},
		{"statement_timeout", []string{"-1"}, "!22023"},
		{"statement_timeout", []string{"99999999999"}, "!22023"},
		{"statement_timeout", []string{"NaN"}, "!22023"},
		{"statement_timeout", []string{"1 fortnight"}, "!22023"},
		{"statement_timeout", []string{""}, "!22023"},
		{"statement_timeout", nil, "!22023"},
		{"skein.query_memory", []string{"2048"}, "2MB"},
		{"work_mem", []string{"1GB"}, "1GB"},
		{"skein.query_memory", []string{"1kB"}, "!22023"},
		{"skein.query_memory", []string{"9e30TB"}, "!22023"},
		{"search_path", []string{"a", "B c", "$user"}, `a, "B c", "$user"`},
		{"search_path", []string{""}, ""},
		{"search_path", []string{"nul\x00"}, "!22023"},
		{"search_path", strings.Split(strings.Repeat("x ", 100), " "), "!22023"},
		{"application_name", []string{"a b"}, "a b"},
		{"application_name", []string{strings.Repeat("x", 300)}, "!22023"},
		{"skein.direct_endpoints", []string{"ON"}, "on"},
		{"skein.direct_endpoints", []string{"0"}, "off"},
		{"skein.direct_endpoints", []string{"maybe"}, "!22023"},
		{"standard_conforming_strings", []string{"on"}, "on"},
		{"standard_conforming_strings", []string{"off"}, "!22023"},
		{"timezone", []string{"america/new_york"}, "America/New_York"},
		{"time zone", []string{"utc"}, "UTC"},
		{"timezone", []string{"5.5"}, "<+05:30>-05:30"},
		{"timezone", []string{"UTC+3"}, "UTC+3"},
		{"timezone", []string{"16"}, "!22023"},
		{"timezone", []string{"../etc/passwd"}, "!22023"},
		{"timezone", []string{"Local"}, "!22023"},
		{"timezone", []string{""}, "!22023"},
		{"server_version", []string{"1"}, "!55P02"},
		{"nothing", []string{"1"}, "!42704"},
	} {
		s := NewSettings("v", time.Second)
		before := fmt.Sprint(s)
		got := ""
		if err := s.Set(tc.name, tc.values...); err != nil {
			got = "!" + string(sqlstate.CodeOf(err))
			if after := fmt.Sprint(s); after != before {
				t.Errorf("%s = %q failed and changed %s to %s", tc.name, tc.values, before, after)
			}
		} else {
			shown, err := s.Show(tc.name)
			if err != nil {
				t.Fatal(err)
			}
			got = shown.Value
		}
		if got != tc.want {
			t.Errorf("%s = %q: got %q, want %q", tc.name, tc.values, got, tc.want)
		}
	}
}

func TestReset(t *testing.T) {
	defaults := NewSettings("v", time.Second)
	s := defaults
	for _, v := range defaults.All() {
		value := map[string]string{
			"application_name": "x", "client_encoding": "UTF8", "search_path": "x", "skein.direct_endpoints": "on",
			"skein.query_memory": "1GB", "standard_conforming_strings": "on", "statement_timeout": "5", "TimeZone": "Asia/Tokyo",
		}[v.Name]
		if value == "" {
			continue // cannot be changed
		}
		if err := s.Set(v.Name, value); err != nil {
			t.Fatal(err)
		}
		if err := s.Reset(v.Name, &defaults); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(defaults, s); diff != "" {
			t.Errorf("%s is not reset: %s", v.Name, diff)
		}
	}
	if err := s.Set("timezone", "Asia/Tokyo"); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset("", &defaults); err != nil || !cmp.Equal(defaults, s) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := s.Reset("server_version", &defaults); sqlstate.CodeOf(err) != sqlstate.CannotChangeSetting {
		t.Error(err)
	}
}
