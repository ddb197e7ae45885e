// Package certtest makes certificates for tests. No program may use it.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"skein/internal/certfiles"
)

// CA is a certificate authority with a directory for the files it makes.
type CA struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// NewCA makes an authority; its certificate is in dir/ca.pem.
func NewCA(dir string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	ca := &CA{dir: dir, key: key, serial: 1}
	if ca.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return ca, write(filepath.Join(dir, "ca.pem"), "CERTIFICATE", der)
}

// Make writes a certificate with the URIs as files of a name, replacing former
// ones whole.
func (ca *CA) Make(name string, uris ...*url.URL) (certfiles.Files, error) {
	files := certfiles.Files{
		CA: filepath.Join(ca.dir, "ca.pem"), Cert: filepath.Join(ca.dir, name+".pem"), Key: filepath.Join(ca.dir, name+".key"),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	ca.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(ca.serial), Subject: pkix.Name{CommonName: name}, URIs: uris, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, &key.PublicKey, ca.key)
	if err != nil {
		return files, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return files, err
	}
	if err := write(files.Cert, "CERTIFICATE", der); err != nil {
		return files, err
	}
	return files, write(files.Key, "EC PRIVATE KEY", private)
}

func write(path, kind string, der []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(temporary, path)
}
