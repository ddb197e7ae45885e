// Package certfiles serves TLS from PEM files that are read again when they
// change, so that certificates are renewed without a restart, and tells who a
// certificate of a cluster belongs to.
//
// Processes open a Source for each set of files: for the traffic between the
// cluster's nodes, and for a listener that clients connect to. It must never know
// what is spoken over the connections.
package certfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files names PEM files. CA holds the certificates that peers' certificates are
// checked with; "" asks clients for none.
type Files struct {
	CA, Cert, Key string
}

// checkEvery bounds how often the files are looked at.
const checkEvery = time.Second

// Source keeps what the files hold. It is safe for concurrent use.
type Source struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	current *loaded
	checked time.Time
	tried   stamp // of the files that could not be read, or of current
}

// loaded is the content of the files at one time.
type loaded struct {
	certificate tls.Certificate
	roots       *x509.CertPool // nil without a CA
}

// stamp changes with the files.
type stamp [3]struct {
	modified time.Time
	size     int64
}

// Open reads the files. An error names the file.
func Open(files Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, log: log, now: time.Now}
	var err error
	if s.tried, err = files.stamp(); err != nil {
		return nil, err
	}
	if s.current, err = files.load(); err != nil {
		return nil, err
	}
	s.checked = s.now()
	return s, nil
}

func (f Files) list() []string { return []string{f.CA, f.Cert, f.Key} }

func (f Files) stamp() (s stamp, err error) {
	for i, path := range f.list() {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return s, fmt.Errorf("reading certificates: %w", err)
		}
		s[i].modified, s[i].size = info.ModTime(), info.Size()
	}
	return s, nil
}

func (f Files) load() (*loaded, error) {
	certificate, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s with the key %s: %w", f.Cert, f.Key, err)
	}
	l := &loaded{certificate: certificate}
	if f.CA == "" {
		return l, nil
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's certificates: %w", err)
	}
	l.roots = x509.NewCertPool()
	if !l.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the CA's certificates: %s holds none", f.CA)
	}
	return l, nil
}

// get returns what the files hold now. While they cannot be read, as in the middle
// of being replaced, it is what they held before.
func (s *Source) get() *loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.checked) >= checkEvery {
		s.checked = now
		s.refresh()
	}
	return s.current
}

// refresh reads files that have changed.
func (s *Source) refresh() {
	found, err := s.files.stamp()
	if err == nil && found == s.tried {
		return
	}
	var fresh *loaded
	if err == nil {
		fresh, err = s.files.load()
	}
	if err != nil {
		s.log.Warn("certificates have changed but cannot be read, the former ones stay in use", "error", err)
		return // and is tried again: a key may be written after its certificate
	}
	s.tried, s.current = found, fresh
	s.log.Info("certificates were read again", "certificate", s.files.Cert)
}

// Leaf is the certificate in use.
func (s *Source) Leaf() *x509.Certificate { return s.get().certificate.Leaf }

// Server is the configuration of a listener. With a CA, clients must show a
// certificate of it that verify accepts; verify may be nil.
func (s *Source) Server(verify func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := s.get()
			c := &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
				Certificates: []tls.Certificate{now.certificate}, SessionTicketsDisabled: true,
			}
			if now.roots != nil {
				c.ClientAuth = tls.RequireAnyClientCert
				c.VerifyConnection = s.verifier(x509.ExtKeyUsageClientAuth, verify)
			}
			return c, nil
		},
	}
}

// Client is the configuration of connections to nodes, which show a certificate of
// the CA that verify accepts. Who a node is its certificate says, not its address.
func (s *Source) Client(verify func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			now := s.get()
			return &now.certificate, nil
		},
		InsecureSkipVerify: true, // VerifyConnection does it, with the CA of the moment
		VerifyConnection:   s.verifier(x509.ExtKeyUsageServerAuth, verify),
	}
}

// verifier checks the peer's chain with the CA of the moment, then its certificate.
func (s *Source) verifier(usage x509.ExtKeyUsage, verify func(*x509.Certificate) error) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		roots := s.get().roots
		if len(state.PeerCertificates) == 0 || roots == nil {
			return errors.New("the peer shows no certificate that can be checked")
		}
		leaf, between := state.PeerCertificates[0], x509.NewCertPool()
		for _, c := range state.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return fmt.Errorf("checking the peer's certificate: %w", err)
		}
		if verify == nil {
			return nil
		}
		return verify(leaf)
	}
}
