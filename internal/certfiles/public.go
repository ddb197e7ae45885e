package certfiles

import "crypto/tls"

// Public is the configuration of a listener that clients of any make connect to:
// TLS 1.2 and 1.3, and no certificates of theirs. Protocols are those that the
// listener speaks, as ALPN names them, the preferred one first.
func (s *Source) Public(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			now := s.get()
			return &now.certificate, nil
		},
	}
}
