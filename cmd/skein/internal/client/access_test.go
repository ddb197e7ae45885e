package client

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestAddresses(t *testing.T) {
	ann := Access{User: "ann", Password: "p"}
	for _, tc := range []struct {
		addr    string
		access  Access
		refused string
	}{
		{"h:1", Access{}, ""}, {"grpc://h:1", Access{}, ""}, {"grpc+tcp://h:1/", Access{}, ""}, {"grpc+tls://h:1", ann, ""},
		{"127.0.0.1:1", ann, ""}, {"localhost:1", ann, ""}, {"grpc://[::1]:1", ann, ""},
		{"h:1", ann, "unencrypted"}, {"grpc://10.0.0.1:1", ann, "unencrypted"}, {"h:1", Access{User: "ann", Insecure: true}, ""},
		{"http://h:1", Access{}, "scheme"}, {"grpc://h:1", Access{CA: "ca.pem"}, "contradicts"},
		{"h:1", Access{CA: filepath.Join(t.TempDir(), "none")}, "reading"}, {"127.0.0.1:1", Access{User: "a:b"}, "colon"},
	} {
		c, err := DialAs(tc.addr, tc.access)
		if (err == nil) != (tc.refused == "") || (err != nil && !strings.Contains(err.Error(), tc.refused)) {
			t.Errorf("%s, %+v: %v, want an error with %q", tc.addr, tc.access, err, tc.refused)
		}
		if err == nil {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A client shows its password until it has a token, takes up newer ones, and shows
// the password again when its token is not taken any more.
func TestAuthorization(t *testing.T) {
	a := &authorization{basic: "Basic x"}
	shown := func() string {
		sent, _ := metadata.FromOutgoingContext(a.StartCall(t.Context()))
		return strings.Join(sent.Get("authorization"), ",")
	}
	if got := shown(); got != "Basic x" {
		t.Error(got)
	}
	for _, token := range []string{"Bearer 1", "Bearer 2"} {
		a.HeadersReceived(t.Context(), metadata.Pairs("authorization", token))
		a.HeadersReceived(t.Context(), metadata.Pairs("other", "y"))
		a.CallCompleted(t.Context(), errors.New("something else"))
		a.CallCompleted(t.Context(), nil)
		if got := shown(); got != token {
			t.Errorf("%s, want %s", got, token)
		}
	}
	a.CallCompleted(context.Background(), status.Error(codes.Unauthenticated, "expired"))
	if got := shown(); got != "Basic x" {
		t.Error(got)
	}
}
