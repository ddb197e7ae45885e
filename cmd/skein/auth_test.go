package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	driver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"skein/cmd/skein/internal/client"
	"skein/internal/certfiles"
	"skein/internal/certfiles/certtest"
)

// passwordFile writes a password to a file as a command takes it.
func passwordFile(t *testing.T, password string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func publicFiles(t *testing.T) (*certtest.CA, certfiles.Files) {
	t.Helper()
	ca, err := certtest.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Make("gate")
	if err != nil {
		t.Fatal(err)
	}
	return ca, files
}

// securedDev is a database with the superuser ann, whose clients need TLS.
func securedDev(t *testing.T, files certfiles.Files, args ...string) *devServer {
	t.Helper()
	data := t.TempDir()
	open := startDev(t, data)
	if text := strings.Join(open.output, "\n"); !strings.Contains(text, "everybody on this machine") || !strings.Contains(text, "loopback") {
		t.Errorf("it says %s", text)
	}
	if _, stderr, code := command(t, "", "admin", "user", "add", "ann", "--superuser", "--addr", open.flight,
		"--new-password-file", passwordFile(t, "ann's: secret")); code != 0 {
		t.Fatal(stderr)
	}
	open.stop()
	s := startDev(t, data, append([]string{"--auth", "users", "--tls-cert", files.Cert, "--tls-key", files.Key}, args...)...)
	for _, line := range s.output {
		if _, address, ok := strings.Cut(line, "Flight SQL  grpc+tls://"); ok {
			s.flight = address
		}
	}
	return s
}

func dialAs(t *testing.T, address string, access client.Access) *client.Client {
	t.Helper()
	c, err := client.DialAs(address, access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may be gone by then
	return c
}

// refused fails the test unless a statement is refused with a SQLSTATE.
func refused(t *testing.T, c *client.Client, statement, code string) {
	t.Helper()
	if _, err := c.Exec(testContext(t), statement); err == nil || !strings.Contains(err.Error(), "SQLSTATE "+code) {
		t.Errorf("%s: %v, want SQLSTATE %s", statement, err, code)
	}
}

func TestUsers(t *testing.T) {
	ca, files := publicFiles(t)
	s := securedDev(t, files, "--slow-statement", "1ns", "--log-level", "debug")
	address := "grpc+tls://" + s.flight
	as := func(user, password string) *client.Client {
		return dialAs(t, address, client.Access{CA: files.CA, User: user, Password: password})
	}
	ctx := testContext(t)

	for name, c := range map[string]*client.Client{
		"nobody": dialAs(t, address, client.Access{CA: files.CA}), "a wrong password": as("ann", "secret"), "an unknown user": as("eve", "ann's: secret"),
	} {
		if _, err := c.Exec(ctx, "SELECT 1"); err == nil || !strings.Contains(err.Error(), "SQLSTATE 28") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, access := range map[string]client.Access{
		"without the CA": {User: "ann", Password: "ann's: secret"}, "of another CA": {CA: func() string { _, other := publicFiles(t); return other.CA }()},
	} {
		if _, err := dialAs(t, address, access).Exec(ctx, "SELECT 1"); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := dial(t, s.flight).Exec(ctx, "SELECT 1"); err == nil {
		t.Error("plaintext was answered")
	}

	ann := as("ann", "ann's: secret")
	mustExec(t, ann, "CREATE USER bob PASSWORD 'bob''s hidden word'")
	refused(t, ann, "CREATE USER bob", "42710")
	refused(t, ann, "DROP USER ann", "55006")
	refused(t, ann, "ALTER USER ann NOSUPERUSER", "55006")
	refused(t, ann, "CREATE USER weak PASSWORD '$argon2id$v=19$m=1024,t=1,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc'", "22023")
	refused(t, ann, "CREATE USER typo PASSWORD hidden_typo", "42601")
	bob := as("bob", "bob's hidden word")
	for _, statement := range []string{"CREATE USER carl", "ALTER USER ann PASSWORD 'x'", "ALTER USER bob SUPERUSER", "DROP USER IF EXISTS ann",
		"CALL skein.set_setting('meta_voters', '1')"} {
		refused(t, bob, statement, "42501")
	}
	mustExec(t, bob, "CREATE TABLE t (id BIGINT)")
	mustExec(t, bob, "INSERT INTO t VALUES (1), (2)")

	rows, err := query(ctx, ann, "SELECT user_name, superuser, has_password FROM skein.users ORDER BY user_id")
	if text := strings.Join(rows, " "); err != nil || text != "ann,true,true bob,false,true" {
		t.Errorf("%s, %v", text, err)
	}
	for c, name := range map[*client.Client]string{ann: "ann", bob: "bob"} {
		for range 2 {
			rows, err := query(ctx, c, "SELECT current_user, session_user")
			if err != nil || strings.Join(rows, " ") != name+","+name {
				t.Errorf("%s is told to be %v, %v", name, rows, err)
			}
		}
	}
	rows, err = query(ctx, bob, "SELECT user_name, statement FROM skein.queries")
	if err != nil || len(rows) != 1 || !strings.HasPrefix(rows[0], "bob,") {
		t.Errorf("%v, %v", rows, err)
	}

	// A new password voids what the old one was good for, tokens too.
	again := as("bob", "bob's hidden word")
	mustExec(t, again, "SELECT 1")
	mustExec(t, bob, "ALTER USER CURRENT_USER PASSWORD 'another hidden word'")
	refused(t, again, "SELECT 1", "28000") // by its token
	refused(t, again, "SELECT 1", "28P01") // by its password
	out, stderr, code := command(t, "", "sql", "--addr", address, "--tls-ca", files.CA, "--user", "bob",
		"--password-file", passwordFile(t, "another hidden word"), "--format", "csv", "-c", "SELECT count(*) FROM t")
	if code != 0 || !strings.HasSuffix(strings.TrimSpace(out), "2") {
		t.Errorf("%s%s", out, stderr)
	}
	if _, stderr, code := command(t, "", "sql", "--addr", address, "--tls-ca", files.CA, "--user", "bob", "-c", "SELECT 1"); code == 0 || !strings.Contains(stderr, "SKEIN_PASSWORD") {
		t.Errorf("without a password: %d, %s", code, stderr)
	}
	mustExec(t, ann, "DROP USER bob")
	refused(t, as("bob", "another hidden word"), "SELECT 1", "28P01")

	// The certificate is replaced while the server runs.
	before := s.certificate(t, files.CA)
	if _, err := ca.Make("gate"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "serving the new certificate", func(context.Context) error {
		if now := s.certificate(t, files.CA); now == before {
			return fmt.Errorf("certificate %s is served", now)
		}
		return nil
	})
	mustExec(t, ann, "SELECT 1")

	s.stop()
	log := s.stderr.String()
	if !strings.Contains(log, "slow statement") || !strings.Contains(log, "PASSWORD ***") {
		t.Errorf("the log does not have what is looked for in it: %.2000s", log)
	}
	for _, secret := range []string{"hidden", "ann's", "argon2id"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// certificate is the serial number of the certificate that the server shows.
func (s *devServer) certificate(t *testing.T, ca string) string {
	t.Helper()
	c, err := client.Access{CA: ca}.TLS()
	if err != nil {
		t.Fatal(err)
	}
	c.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", s.flight, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// The ways in which Flight's clients log in.
func TestHandshakes(t *testing.T) {
	_, files := publicFiles(t)
	s := securedDev(t, files, "--token-life", "1m")
	ctx := testContext(t)
	trust, err := client.Access{CA: files.CA}.TLS()
	if err != nil {
		t.Fatal(err)
	}
	c, err := flightsql.NewClient(s.flight, nil, nil, grpc.WithTransportCredentials(credentials.NewTLS(trust)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	if _, err := c.Client.AuthenticateBasicToken(ctx, "ann", "wrong"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a wrong password: %v", err)
	}
	known, err := c.Client.AuthenticateBasicToken(ctx, "ann", "ann's: secret")
	if err != nil {
		t.Fatal(err)
	}
	if sent, _ := metadata.FromOutgoingContext(known); !strings.HasPrefix(strings.Join(sent.Get("authorization"), ""), "Bearer ey") {
		t.Errorf("the client sends %v", sent)
	}
	if n, err := c.ExecuteUpdate(known, "CREATE TABLE t (id BIGINT)"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := c.Execute(ctx, "SELECT 1"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}

	// The older handshake, whose token is a payload.
	stream, err := c.Client.Handshake(ctx)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := proto.Marshal(&flight.BasicAuth{Username: "ann", Password: "ann's: secret"})
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&flight.HandshakeRequest{Payload: payload}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	held := metadata.AppendToOutgoingContext(ctx, "auth-token-bin", string(answer.Payload))
	if _, err := c.Execute(held, "SELECT * FROM t"); err != nil {
		t.Error(err)
	}

	pem, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	conn := openADBC(t, s.flight, map[string]string{
		adbc.OptionKeyURI: "grpc+tls://" + s.flight, adbc.OptionKeyUsername: "ann", adbc.OptionKeyPassword: "ann's: secret",
		driver.OptionSSLRootCerts: string(pem),
	})
	if err := execADBC(t, conn, "INSERT INTO t VALUES (1)"); err != nil {
		t.Error(err)
	}
}

// The first user of a cluster is made by way of a worker, users made through one
// gateway are known at another, and a statement is for its user to cancel.
func TestUsersOfCluster(t *testing.T) {
	const secret = "correct horse battery staple"
	c := startCluster(t, "--cluster-secret", secret)
	c.awaitWorkers()
	_, worker, _ := strings.Cut(c.members[0], "/")
	add := []string{"admin", "user", "add", "ann", "--superuser", "--worker", worker, "--new-password-file", passwordFile(t, "ann's")}
	if _, stderr, code := command(t, "", add...); code == 0 || !strings.Contains(stderr, "28000") {
		t.Errorf("without the secret: %d, %s", code, stderr)
	}
	eventually(t, "making the first user", func(context.Context) error {
		if _, stderr, code := command(t, "", append(add, "--cluster-secret", secret)...); code != 0 && !strings.Contains(stderr, "42710") {
			return fmt.Errorf("%s", stderr)
		}
		return nil
	})
	ports := freePorts(t, 2)
	for _, port := range ports {
		start(t, "gateway", "--workers", worker, "--flight", port, "--http", "", "--auth", "users", "--cluster-secret", secret, "--log-level", "warn")
	}
	ann := dialAs(t, ports[0], client.Access{User: "ann", Password: "ann's"})
	eventually(t, "making users", func(ctx context.Context) error {
		_, err := ann.Exec(ctx, "CREATE USER bob PASSWORD 'bob''s'")
		return err
	})
	mustExec(t, ann, "CREATE USER eve PASSWORD 'eve''s'")
	mustExec(t, ann, "CREATE TABLE n (id BIGINT PRIMARY KEY) WITH (tablets = 3, replicas = 1)")
	mustExec(t, ann, "INSERT INTO n SELECT * FROM generate_series(1, 20000)")
	bob := dialAs(t, ports[1], client.Access{User: "bob", Password: "bob's"})
	eve := dialAs(t, ports[0], client.Access{User: "eve", Password: "eve's"})
	ended := make(chan error, 1)
	ctx := testContext(t)
	go func() {
		_, err := bob.Exec(ctx, "SELECT count(*) FROM n a, n b, n c WHERE a.id + b.id + c.id < 0")
		ended <- err
	}()
	var id string
	own := dialAs(t, ports[1], client.Access{User: "bob", Password: "bob's"})
	eventually(t, "running", func(ctx context.Context) error {
		rows, err := query(ctx, own, "SELECT query_id FROM skein.queries WHERE statement LIKE 'SELECT count%'")
		if err != nil || len(rows) != 1 {
			return fmt.Errorf("%v, %w", rows, err)
		}
		id = rows[0]
		return nil
	})
	near := dialAs(t, ports[1], client.Access{User: "eve", Password: "eve's"})
	rows, err := query(ctx, near, "SELECT statement FROM skein.queries WHERE user_name = 'bob'")
	if err != nil || strings.Join(rows, ";") != "<insufficient privilege>" {
		t.Errorf("eve sees %v, %v", rows, err)
	}
	refused(t, near, "CALL skein.cancel_query('"+id+"')", "42501")
	// At another gateway it depends on the workers, where the fragments may not be yet.
	eventually(t, "being refused at another gateway", func(ctx context.Context) error {
		n, err := eve.Exec(ctx, "CALL skein.cancel_query('"+id+"')")
		if err == nil || !strings.Contains(err.Error(), "42501") {
			return fmt.Errorf("%d, %v", n, err)
		}
		return nil
	})
	select {
	case err := <-ended:
		t.Fatalf("the statement ended: %v", err)
	default:
	}
	mustExec(t, ann, "CALL skein.cancel_query('"+id+"')")
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "cancel") {
			t.Errorf("%v", err)
		}
	case <-time.After(timeout):
		t.Error("the statement did not end")
	}
}

// Health and metrics are served with TLS where the settings say so.
func TestHealthOverTLS(t *testing.T) {
	_, files := publicFiles(t)
	s := startDev(t, ":memory:", "--http-tls-cert", files.Cert, "--http-tls-key", files.Key)
	address := ""
	for _, line := range s.output {
		if rest, ok := strings.CutPrefix(line, "  health      "); ok {
			address = strings.TrimSuffix(rest, "/readyz")
		}
	}
	if !strings.HasPrefix(address, "https://") {
		t.Fatalf("it says %s", strings.Join(s.output, "\n"))
	}
	if _, stderr, code := command(t, "", "health", "--http", address, "--tls-ca", files.CA); code != 0 {
		t.Error(stderr)
	}
	for _, args := range [][]string{{"--http", address}, {"--http", strings.TrimPrefix(address, "https://")}} {
		if out, _, code := command(t, "", append([]string{"health"}, args...)...); code == 0 {
			t.Errorf("%v: %s", args, out)
		}
	}
}
