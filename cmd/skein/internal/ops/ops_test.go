package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestHTTP(t *testing.T) {
	var ready atomic.Bool
	l := listen(t)
	s := Serve(l, Endpoints{Metrics: NewRegistry("v1"), Ready: func() error {
		if ready.Load() {
			return nil
		}
		return errors.New("no quorum")
	}}, slog.New(slog.DiscardHandler))
	base := "http://" + l.Addr().String()
	for _, step := range []struct {
		path string
		code int
		want string
	}{
		{"/healthz", 200, "ok"},
		{"/readyz", 503, "not ready: no quorum"},
		{"/metrics", 200, `skein_build_info{version="v1"} 1`},
		{"/other", 404, "not found"},
	} {
		if code, body := get(t, base+step.path); code != step.code || !strings.Contains(body, step.want) {
			t.Errorf("%s: %d %q, want %d with %q", step.path, code, body, step.code, step.want)
		}
	}
	ready.Store(true)
	if code, _ := get(t, base+"/readyz"); code != 200 {
		t.Errorf("/readyz: %d after getting ready", code)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// health panics where it is asked for the service "bug".
type health struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if r.Service == "bug" {
		panic("boom")
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

// Clients cannot make up methods without end.
func TestMethodsAreBounded(t *testing.T) {
	m, err := NewRPC(NewRegistry("v1"), "gateway", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range 10 * maxMethods {
		names[m.method(fmt.Sprintf("/service/m%d", i)).name] = true
	}
	if len(names) != maxMethods+1 || !names[otherMethods] || m.method("/service/m3").name != "m3" {
		t.Errorf("%d methods are told apart", len(names))
	}
}

func TestCallsAreMeasuredAndPanicsContained(t *testing.T) {
	registry := NewRegistry("v1")
	m, err := NewRPC(registry, "gateway", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(m.ServerOptions()...)
	grpc_health_v1.RegisterHealthServer(server, health{})
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := grpc_health_v1.NewHealthClient(conn)
	for service, want := range map[string]codes.Code{"": codes.OK, "bug": codes.Internal} {
		_, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if status.Code(err) != want {
			t.Errorf("service %q: %v, want %v", service, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "boom") {
			t.Errorf("the client was told what panicked: %v", err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	server.GracefulStop() // so that all calls have been counted
	if err := <-served; err != nil {
		t.Error(err)
	}
	h := listen(t)
	s := Serve(h, Endpoints{Metrics: registry, Ready: func() error { return nil }}, slog.New(slog.DiscardHandler))
	_, body := get(t, "http://"+h.Addr().String()+"/metrics")
	for _, want := range []string{
		`skein_flight_calls_total{code="OK",method="Check",role="gateway"} 1`,
		`skein_flight_calls_total{code="Internal",method="Check",role="gateway"} 1`,
		`skein_flight_panics_total{role="gateway"} 1`,
		`skein_flight_calls_running{method="Check",role="gateway"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := NewRPC(registry, "gateway", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("registering one role twice gave no error")
	}
}
