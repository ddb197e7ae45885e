package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Default addresses. All listen on the loopback interface: Skein is reachable
// from elsewhere only when told so.
const (
	DefaultFlight       = "127.0.0.1:8815"
	DefaultHTTP         = "127.0.0.1:8816"
	DefaultGrace        = 10 * time.Second
	DefaultCluster      = "skein"
	InMemory            = ":memory:" // data directory that is removed at exit
	DefaultSlow         = 10 * time.Second
	DefaultLogFormat    = "text"
	DefaultDevLogLevel  = "warn"
	DefaultNodeLogLevel = "info"
	// ToolLogLevel is that of an operator's tools.
	ToolLogLevel = slog.LevelWarn
)

// Process holds the settings that every serving process has.
type Process struct {
	Flight    string        `koanf:"flight"`        // host:port of the Flight service
	HTTP      string        `koanf:"http"`          // host:port of health and metrics, "" for none
	HTTPCert  string        `koanf:"http_tls_cert"` // PEM files, "" for plaintext
	HTTPKey   string        `koanf:"http_tls_key"`
	LogLevel  slog.Level    `koanf:"log_level"`
	LogFormat string        `koanf:"log_format"` // text or json
	Grace     time.Duration `koanf:"grace"`      // bound of a graceful stop
	Memory    `koanf:",squash"`
}

// Statements holds the settings of a process that runs statements.
type Statements struct {
	SlowStatement    time.Duration `koanf:"slow_statement"`     // logged from this long on, 0 for never
	StatementTimeout time.Duration `koanf:"statement_timeout"`  // ended after this long, 0 for never
	FragmentLease    time.Duration `koanf:"fragment_lease"`     // of fragments that nobody pulls, 0 for 5m
	DirectTicketLife time.Duration `koanf:"direct_ticket_life"` // of direct endpoints, 0 for 1m
	SessionIdle      time.Duration `koanf:"session_idle"`       // sessions that are not used end after this long, 0 for 1h
	MaxSessions      int           `koanf:"max_sessions"`
	Admission        `koanf:",squash"`
}

// minSecret is the least length of a cluster's secret.
const minSecret = 16

// Secret holds the setting by which workers and gateways know each other.
type Secret struct {
	ClusterSecret string `koanf:"cluster_secret"` // "" for none
}

func (s *Secret) validate() error {
	if n := len(s.ClusterSecret); n > 0 && n < minSecret {
		return fmt.Errorf("cluster_secret has %d characters; give at least %d random ones, the same to every worker and gateway", n, minSecret)
	}
	return nil
}

// NodeTLS holds the settings of the traffic between nodes.
type NodeTLS struct {
	CA        string `koanf:"node_tls_ca"` // PEM files
	Cert      string `koanf:"node_tls_cert"`
	Key       string `koanf:"node_tls_key"`
	Plaintext bool   `koanf:"node_plaintext"` // beyond this machine
}

// On reports whether the traffic between nodes is encrypted.
func (n *NodeTLS) On() bool { return n.CA != "" }

func (n *NodeTLS) validate() error {
	if set := n.CA != ""; set != (n.Cert != "") || set != (n.Key != "") {
		return errors.New("node_tls_ca, node_tls_cert and node_tls_key must be given together")
	}
	if n.On() && n.Plaintext {
		return errors.New("node_plaintext contradicts node_tls_ca")
	}
	return nil
}

// CheckPlaintext refuses to send what nodes tell each other in the clear beyond
// this machine's loopback interface, unless the settings say so.
func (n *NodeTLS) CheckPlaintext(addresses ...string) error {
	if n.On() || n.Plaintext {
		return nil
	}
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err == nil && !loopback(address) {
			return fmt.Errorf("%s is beyond this machine, and the traffic between nodes is not encrypted; "+
				"give node_tls_ca, node_tls_cert and node_tls_key, or node_plaintext where the network is to be trusted", address)
		}
	}
	return nil
}

// Authentication of clients: none, or as users of the cluster.
const (
	AuthNone  = "none"
	AuthUsers = "users"
)

// Clients holds the settings of a process that clients connect to.
type Clients struct {
	Cert      string        `koanf:"tls_cert"` // PEM files
	Key       string        `koanf:"tls_key"`
	Auth      string        `koanf:"auth"`       // AuthNone or AuthUsers
	TokenLife time.Duration `koanf:"token_life"` // of what clients get for a password, 0 for 8h
	// Insecure lets clients beyond this machine in without TLS or without asking who
	// they are.
	Insecure bool `koanf:"insecure"`
}

// TLS reports whether the traffic with clients is encrypted.
func (c *Clients) TLS() bool { return c.Cert != "" }

// validate checks the settings of a listener at an address.
func (c *Clients) validate(flight string) error {
	if (c.Cert != "") != (c.Key != "") {
		return errors.New("tls_cert and tls_key must be given together")
	}
	if c.Auth != AuthNone && c.Auth != AuthUsers {
		return fmt.Errorf("auth is %q; it must be %s or %s", c.Auth, AuthNone, AuthUsers)
	}
	if c.TokenLife < 0 || (c.TokenLife > 0 && c.TokenLife < time.Minute) {
		return errors.New("token_life is shorter than a minute; give a time such as 8h, or 0 for the default")
	}
	if c.Insecure || loopback(flight) || (c.TLS() && c.Auth == AuthUsers) {
		return nil
	}
	return fmt.Errorf("flight is %s, which is beyond this machine, and clients there need TLS and passwords; "+
		"give tls_cert, tls_key and auth=%s, or insecure where the network is to be trusted", flight, AuthUsers)
}

// loopback reports whether only this machine reaches what listens at an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, perr := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || perr == nil && ip.IsLoopback())
}

// Admission bounds what a gateway runs on the workers at a time; zeros stand for
// its defaults.
type Admission struct {
	MaxFragments      int           `koanf:"max_fragments"`
	MaxBytes          Size          `koanf:"max_bytes"`
	MaxQueryFragments int           `koanf:"max_query_fragments"`
	MaxQueryBytes     Size          `koanf:"max_query_bytes"`
	AdmissionQueue    int           `koanf:"admission_queue"`
	AdmissionWait     time.Duration `koanf:"admission_wait"`
}

// Dev is the configuration of a gateway and a worker in one process.
type Dev struct {
	Process    `koanf:",squash"`
	Cache      `koanf:",squash"`
	Statements `koanf:",squash"`
	Clients    `koanf:",squash"`
	Data       string `koanf:"data"` // directory, or InMemory
	Demo       bool   `koanf:"demo"`
}

// Gateway is the configuration of a stateless gateway.
type Gateway struct {
	Process    `koanf:",squash"`
	Secret     `koanf:",squash"`
	NodeTLS    `koanf:",squash"`
	Statements `koanf:",squash"`
	Clients    `koanf:",squash"`
	Workers    []string `koanf:"workers"` // Flight addresses of the workers
}

// Worker is the configuration of one worker of a cluster.
type Worker struct {
	Process `koanf:",squash"`
	Secret  `koanf:",squash"`
	NodeTLS `koanf:",squash"`
	Cache   `koanf:",squash"`
	Cluster string   `koanf:"cluster"` // name, "" for that of the data directory
	NodeID  uint64   `koanf:"node_id"` // 0 for that of the data directory
	Data    string   `koanf:"data"`
	Members []Member `koanf:"members"` // workers at known addresses
	// Raft and Advertise are where others reach this worker's Raft and Flight
	// services, "" for what members or the data directory say.
	Raft        string `koanf:"raft"`
	Advertise   string `koanf:"advertise"`
	Zone        string `koanf:"zone"`
	InitIfEmpty bool   `koanf:"init_if_empty"`
}

// NodeTools holds the settings of an operator's tool that talks to workers.
type NodeTools struct {
	Secret  `koanf:",squash"`
	NodeTLS `koanf:",squash"`
}

// Member is one worker of the cluster as the others reach it. Its text form,
// used in SKEIN_MEMBERS and --members, is id=raft/flight.
type Member struct {
	ID     uint64 `koanf:"id"`
	Raft   string `koanf:"raft"`   // host:port of Raft traffic
	Flight string `koanf:"flight"` // host:port of the worker's Flight service
}

// ParseMember reads the text form of a Member.
func ParseMember(s string) (Member, error) {
	id, addresses, ok := strings.Cut(s, "=")
	raft, flight, ok2 := strings.Cut(addresses, "/")
	if !ok || !ok2 {
		return Member{}, fmt.Errorf("member %q is not of the form id=raft-address/flight-address", s)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
	if err != nil {
		return Member{}, fmt.Errorf("member %q has an id that is not a number", s)
	}
	return Member{ID: n, Raft: strings.TrimSpace(raft), Flight: strings.TrimSpace(flight)}, nil
}

// Self is where this worker is reached as far as the settings say, and whether it
// is among the members.
func (w *Worker) Self() (Member, bool) {
	self, listed := Member{ID: w.NodeID}, false
	for _, m := range w.Members {
		if m.ID == w.NodeID {
			self, listed = m, true
		}
	}
	self.Raft = cmp.Or(w.Raft, self.Raft)
	self.Flight = cmp.Or(w.Advertise, self.Flight)
	if !listed && self.Flight == "" && reachable(w.Flight) {
		self.Flight = w.Flight
	}
	return self, listed
}

// reachable reports whether others may reach what listens at an address by it.
func reachable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, perr := netip.ParseAddr(host)
	return err == nil && host != "" && (perr != nil || !ip.IsUnspecified())
}

func (p *Process) validate() error {
	if err := checkAddress("flight", p.Flight); err != nil {
		return err
	}
	return p.validateRest()
}

func (p *Process) validateRest() error {
	if p.HTTP != "" {
		if err := checkAddress("http", p.HTTP); err != nil {
			return err
		}
	}
	if (p.HTTPCert != "") != (p.HTTPKey != "") {
		return errors.New("http_tls_cert and http_tls_key must be given together")
	}
	if p.LogFormat != "text" && p.LogFormat != "json" {
		return fmt.Errorf("log_format is %q; it must be text or json", p.LogFormat)
	}
	if p.Grace <= 0 {
		return errors.New("grace must be longer than zero, for example 10s")
	}
	return p.Memory.validate()
}

func (s *Statements) validate() error {
	if s.SlowStatement < 0 {
		return errors.New("slow_statement is negative; give a time such as 10s, or 0 for never")
	}
	if s.StatementTimeout < 0 {
		return errors.New("statement_timeout is negative; give a time such as 5m, or 0 for none")
	}
	if s.FragmentLease < 0 {
		return errors.New("fragment_lease is negative; give a time such as 5m, or 0 for the default")
	}
	if s.DirectTicketLife < 0 || s.DirectTicketLife > 24*time.Hour {
		return errors.New("direct_ticket_life is not between 0 and 24h; give a time such as 1m, or 0 for the default")
	}
	if s.SessionIdle < 0 || s.MaxSessions < 0 {
		return errors.New("session_idle and max_sessions may not be negative; 0 is the default")
	}
	if s.MaxFragments < 0 || s.MaxQueryFragments < 0 || s.AdmissionQueue < 0 || s.AdmissionWait < 0 {
		return errors.New("max_fragments, max_query_fragments, admission_queue and admission_wait may not be negative; 0 is the default")
	}
	return nil
}

func (d *Dev) validate() error {
	if d.Data == "" {
		return errors.New("data is empty; give a directory, or " + InMemory + " for a temporary one")
	}
	if err := d.Statements.validate(); err != nil {
		return err
	}
	if err := d.Process.validate(); err != nil {
		return err
	}
	if d.Demo && (d.TLS() || d.Auth != AuthNone) {
		return errors.New("demo loads its tables as a client without TLS and password; load them once without tls_cert and auth")
	}
	return d.Clients.validate(d.Flight)
}

func (g *Gateway) validate() error {
	if len(g.Workers) == 0 {
		return errors.New("workers is empty; list the Flight address of at least one worker")
	}
	for _, address := range g.Workers {
		if err := checkAddress("workers", address); err != nil {
			return err
		}
	}
	if err := g.Statements.validate(); err != nil {
		return err
	}
	if err := g.Secret.validate(); err != nil {
		return err
	}
	if err := g.NodeTLS.validate(); err != nil {
		return err
	}
	if err := g.CheckPlaintext(g.Workers...); err != nil {
		return err
	}
	if err := g.Process.validate(); err != nil {
		return err
	}
	return g.Clients.validate(g.Flight)
}

func (w *Worker) validate() error {
	switch {
	case w.Data == "":
		return errors.New("data is empty; give the directory that holds this worker's data")
	case w.InitIfEmpty && w.NodeID == 0:
		return errors.New("node_id is missing; with init_if_empty give each founder its own number, starting with 1")
	case w.InitIfEmpty && len(w.Members) == 0:
		return errors.New("members is empty; with init_if_empty list every founder with its id, raft and flight address")
	}
	for _, a := range []struct{ setting, address string }{{"raft", w.Raft}, {"advertise", w.Advertise}} {
		if a.address != "" {
			if err := checkAddress(a.setting, a.address); err != nil {
				return err
			}
		}
	}
	seen := map[uint64]bool{}
	for _, m := range w.Members {
		if m.ID == 0 || seen[m.ID] {
			return fmt.Errorf("members lists id %d, which is zero or not the only one", m.ID)
		}
		seen[m.ID] = true
		if err := checkAddress(fmt.Sprintf("members: raft of %d", m.ID), m.Raft); err != nil {
			return err
		}
		if err := checkAddress(fmt.Sprintf("members: flight of %d", m.ID), m.Flight); err != nil {
			return err
		}
	}
	self, ok := w.Self()
	if !ok && w.NodeID != 0 && len(w.Members) > 0 && (w.Raft == "" || w.InitIfEmpty) {
		return fmt.Errorf("node_id %d is not among the members", w.NodeID)
	}
	if w.Flight == "" {
		w.Flight = self.Flight
	}
	if err := w.Secret.validate(); err != nil {
		return err
	}
	if err := w.NodeTLS.validate(); err != nil {
		return err
	}
	if err := w.Process.validateRest(); err != nil || w.Flight == "" {
		return err // the data directory says where to listen
	}
	return checkAddress("flight", w.Flight)
}

func checkAddress(setting, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %q is not host:port", setting, address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%s: %q has no port between 0 and 65535", setting, address)
	} else if n == 0 && strings.HasPrefix(setting, "members") {
		return fmt.Errorf("%s: %q needs a fixed port", setting, address)
	}
	return nil
}
