package certfiles

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Scheme is that of the URIs in certificates: skein://CLUSTER/node/N for a worker,
// skein://CLUSTER/gateway for a gateway or an operator's tool.
const Scheme = "skein"

// Owner is who a certificate was made for.
type Owner struct {
	Cluster string
	Node    uint64 // 0 for a gateway
}

// String names the owner.
func (o Owner) String() string {
	if o.Node == 0 {
		return fmt.Sprintf("a gateway of cluster %q", o.Cluster)
	}
	return fmt.Sprintf("node %d of cluster %q", o.Node, o.Cluster)
}

// URI is what a certificate of the owner must have among its alternative names.
func (o Owner) URI() *url.URL {
	u := &url.URL{Scheme: Scheme, Host: o.Cluster, Path: "/gateway"}
	if o.Node != 0 {
		u.Path = fmt.Sprintf("/node/%d", o.Node)
	}
	return u
}

// OwnerOf reads the one URI of this scheme in a certificate.
func OwnerOf(c *x509.Certificate) (Owner, error) {
	var found []Owner
	for _, u := range c.URIs {
		if u.Scheme != Scheme {
			continue
		}
		o, ok := ownerAt(u)
		if !ok {
			return Owner{}, fmt.Errorf("the certificate names %s; the forms are %s://CLUSTER/node/N and %s://CLUSTER/gateway", u, Scheme, Scheme)
		}
		found = append(found, o)
	}
	if len(found) != 1 {
		return Owner{}, fmt.Errorf("the certificate of %q has %d %s:// URIs among its alternative names, one is needed", c.Subject, len(found), Scheme)
	}
	return found[0], nil
}

func ownerAt(u *url.URL) (Owner, bool) {
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Owner{}, false
	}
	o := Owner{Cluster: u.Host}
	if u.Path == "/gateway" {
		return o, true
	}
	text, ok := strings.CutPrefix(u.Path, "/node/")
	id, err := strconv.ParseUint(text, 10, 64)
	o.Node = id
	return o, ok && err == nil && id != 0 && strconv.FormatUint(id, 10) == text
}
