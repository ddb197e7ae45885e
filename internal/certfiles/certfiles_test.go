package certfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"testing"
	"time"

	"skein/internal/certfiles"
	"skein/internal/certfiles/certtest"
)

func newCA(t *testing.T) *certtest.CA {
	t.Helper()
	ca, err := certtest.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func open(t *testing.T, ca *certtest.CA, name string, uris ...*url.URL) (*certfiles.Source, certfiles.Files) {
	t.Helper()
	files, err := ca.Make(name, uris...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := certfiles.Open(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s, files
}

// shake makes a connection and returns each end's error.
func shake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = c.Write([]byte("x"))
			err = errors.Join(err, c.Close())
		}
		done <- err
	}()
	c, clientErr := tls.Dial("tcp", l.Addr().String(), client)
	if clientErr == nil { // a refusal of the client's certificate comes with the first read
		_, clientErr = io.ReadFull(c, make([]byte, 1))
		_ = c.Close() // the test is over
	}
	serverErr = <-done
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return serverErr, clientErr
}

func TestMutualTLS(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	node := certfiles.Owner{Cluster: "c", Node: 1}
	server, _ := open(t, ca, "server", node.URI())
	client, _ := open(t, ca, "client", certfiles.Owner{Cluster: "c"}.URI())
	other, _ := open(t, stranger, "client", certfiles.Owner{Cluster: "c"}.URI())
	is := func(want certfiles.Owner) func(*x509.Certificate) error {
		return func(c *x509.Certificate) error {
			got, err := certfiles.OwnerOf(c)
			if err == nil && got != want {
				err = errors.New("another owner")
			}
			return err
		}
	}
	gateway := certfiles.Owner{Cluster: "c"}
	for _, tc := range []struct {
		name           string
		server, client *tls.Config
		both           bool
	}{
		{"fit", server.Server(is(gateway)), client.Client(is(node)), true},
		{"no check of owners", server.Server(nil), client.Client(nil), true},
		{"wrong node", server.Server(nil), client.Client(is(certfiles.Owner{Cluster: "c", Node: 2})), false},
		{"wrong client", server.Server(is(node)), client.Client(nil), false},
		{"other CA", server.Server(nil), other.Client(nil), false},
		{"no client certificate", server.Server(nil), &tls.Config{InsecureSkipVerify: true}, false},
	} {
		serverErr, clientErr := shake(t, tc.server, tc.client)
		if both := serverErr == nil && clientErr == nil; both != tc.both {
			t.Errorf("%s: server %v, client %v", tc.name, serverErr, clientErr)
		}
	}
}

func TestChangedFilesAreRead(t *testing.T) {
	ca := newCA(t)
	first := certfiles.Owner{Cluster: "c", Node: 1}
	s, files := open(t, ca, "node", first.URI())
	owner := func() certfiles.Owner {
		o, err := certfiles.OwnerOf(s.Leaf())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if got := owner(); got != first {
		t.Fatalf("owner is %v", got)
	}
	// Garbage leaves the former certificate in use.
	if err := os.WriteFile(files.Cert, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.SkipPause(time.Hour)
	if got := owner(); got != first {
		t.Fatalf("owner is %v", got)
	}
	second := certfiles.Owner{Cluster: "c", Node: 22}
	if _, err := ca.Make("node", second.URI()); err != nil {
		t.Fatal(err)
	}
	s.SkipPause(2 * time.Hour)
	if got := owner(); got != second {
		t.Fatalf("owner is %v", got)
	}
	_, err := certfiles.Open(certfiles.Files{Cert: files.Cert, Key: files.Cert}, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("a certificate was taken for a key")
	}
}

func TestOwners(t *testing.T) {
	for _, tc := range []struct {
		uris []string
		want certfiles.Owner
		ok   bool
	}{
		{[]string{"skein://c/node/7", "spiffe://x/y"}, certfiles.Owner{Cluster: "c", Node: 7}, true},
		{[]string{"skein://c/gateway"}, certfiles.Owner{Cluster: "c"}, true},
		{nil, certfiles.Owner{}, false},
		{[]string{"skein://c/node/7", "skein://c/node/8"}, certfiles.Owner{}, false},
		{[]string{"skein://c/node/0"}, certfiles.Owner{}, false},
		{[]string{"skein://c/node/07"}, certfiles.Owner{}, false},
		{[]string{"skein://c/node/x"}, certfiles.Owner{}, false},
		{[]string{"skein://c/node/7/8"}, certfiles.Owner{}, false},
		{[]string{"skein:///node/7"}, certfiles.Owner{}, false},
		{[]string{"skein://c/gateway?x"}, certfiles.Owner{}, false},
	} {
		c := &x509.Certificate{}
		for _, text := range tc.uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		got, err := certfiles.OwnerOf(c)
		if (err == nil) != tc.ok || tc.ok && got != tc.want {
			t.Errorf("%v: %v, %v", tc.uris, got, err)
		}
		if tc.ok && len(tc.uris) == 1 && got.URI().String() != tc.uris[0] {
			t.Errorf("%v: URI is %v", tc.uris, got.URI())
		}
	}
}
