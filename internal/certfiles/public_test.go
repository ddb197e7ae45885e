package certfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"
)

// Clients without a certificate of their own are served, in TLS 1.2 too, and by the
// certificate that the files hold at the time.
func TestPublic(t *testing.T) {
	ca := newCA(t)
	source, files := open(t, ca, "gate")
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	server := source.Public("h2", "http/1.1")
	for _, tc := range []struct {
		client *tls.Config
		served bool
	}{
		{&tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS12}, true},
		{&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}, true},
		{&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		{&tls.Config{}, false}, // which does not trust it
		{&tls.Config{RootCAs: roots, NextProtos: []string{"other"}}, false},
	} {
		if _, err := shake(t, server, tc.client); (err == nil) != tc.served {
			t.Errorf("%+v: %v", tc.client, err)
		}
	}
	if _, err := ca.Make("gate"); err != nil {
		t.Fatal(err)
	}
	before := source.Leaf().SerialNumber
	source.SkipPause(time.Minute)
	var served *x509.Certificate
	client := &tls.Config{RootCAs: roots, VerifyConnection: func(s tls.ConnectionState) error {
		served = s.PeerCertificates[0]
		return nil
	}}
	if _, err := shake(t, server, client); err != nil || served.SerialNumber.Cmp(before) <= 0 {
		t.Errorf("after the files have changed: %v, certificate %v, formerly %v", err, served.SerialNumber, before)
	}
}
