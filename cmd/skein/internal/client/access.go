package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Access says how to reach a server and as whom.
type Access struct {
	// CA is a PEM file with the authorities that the server's certificate is checked
	// with, "" for the system's. Giving one means TLS.
	CA string
	// Insecure takes any certificate, and lets a password go unencrypted beyond this
	// machine.
	Insecure bool
	User     string // "" for nobody
	Password string
}

// parseAddress takes an address apart: host:port, with grpc:// or grpc+tcp:// in
// front where it is plaintext, grpc+tls:// where it is not.
func parseAddress(addr string, a Access) (target string, encrypted bool, err error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		return addr, a.CA != "", nil
	}
	switch scheme {
	case "grpc+tls":
		encrypted = true
	case "grpc", "grpc+tcp":
		if a.CA != "" {
			return "", false, fmt.Errorf("address %q is without TLS, which --tls-ca contradicts; use grpc+tls://", addr)
		}
	default:
		return "", false, fmt.Errorf("address %q has scheme %q; use host:port, grpc://host:port or grpc+tls://host:port", addr, scheme)
	}
	return strings.TrimSuffix(rest, "/"), encrypted, nil
}

// transport is how the bytes travel.
func (a Access) transport(target string, encrypted bool) (credentials.TransportCredentials, error) {
	if encrypted {
		c, err := a.TLS()
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(c), nil
	}
	host, _, err := net.SplitHostPort(target)
	ip, perr := netip.ParseAddr(host)
	if local := err == nil && (host == "localhost" || perr == nil && ip.IsLoopback()); a.User != "" && !local && !a.Insecure {
		return nil, fmt.Errorf("the password would go to %s unencrypted; use grpc+tls://, or --insecure where the network is to be trusted", target)
	}
	return insecure.NewCredentials(), nil
}

// TLS is how servers are checked.
func (a Access) TLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Insecure}
	if a.CA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(a.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's certificates: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the CA's certificates: %s holds none", a.CA)
	}
	return c, nil
}

// authorization shows user and password until the server has given a token for
// them, and then the newest token.
type authorization struct {
	basic string

	mu    sync.Mutex
	token string // "" for none
}

// middleware is that of a client with the access, none for nobody.
func (a Access) middleware() ([]flight.ClientMiddleware, error) {
	if a.User == "" {
		return nil, nil
	}
	if strings.Contains(a.User, ":") {
		return nil, errors.New("a user whose name has a colon cannot log in with a password")
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(a.User+":"+a.Password))
	return []flight.ClientMiddleware{flight.CreateClientMiddleware(&authorization{basic: basic})}, nil
}

// StartCall implements flight.CustomClientMiddleware.
func (a *authorization) StartCall(ctx context.Context) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	shown := a.token
	if shown == "" {
		shown = a.basic
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", shown)
}

// HeadersReceived implements flight.ClientHeadersMiddleware.
func (a *authorization) HeadersReceived(_ context.Context, headers metadata.MD) {
	for _, value := range headers.Get("authorization") {
		if strings.HasPrefix(value, "Bearer ") {
			a.mu.Lock()
			a.token = value
			a.mu.Unlock()
		}
	}
}

// CallCompleted implements flight.ClientPostCallMiddleware. A token that is not
// taken any more is dropped, so that the next call logs in anew.
func (a *authorization) CallCompleted(_ context.Context, err error) {
	if status.Code(err) == codes.Unauthenticated {
		a.mu.Lock()
		a.token = ""
		a.mu.Unlock()
	}
}
