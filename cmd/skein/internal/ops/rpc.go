package ops

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// RPC measures the Flight calls of one gRPC server.
type RPC struct {
	logger   *slog.Logger
	running  *prometheus.GaugeVec
	ended    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sent     *prometheus.CounterVec
	received *prometheus.CounterVec
	panics   prometheus.Counter

	// methods are the counters of each method, by full name, looked up once. Names
	// are what clients send, so there is a bound to how many are counted apart.
	methods sync.Map
	apart   atomic.Int32
}

const (
	maxMethods   = 64
	otherMethods = "other"
)

// NewRPC registers the metrics of one server; role is the value of their
// label "role", so that a process may have several.
func NewRPC(r prometheus.Registerer, role string, logger *slog.Logger) (*RPC, error) {
	labels := prometheus.Labels{"role": role}
	m := &RPC{
		logger: logger,
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skein_flight_calls_running", Help: "Flight calls being served.", ConstLabels: labels,
		}, []string{"method"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_flight_calls_total", Help: "Flight calls ended, by gRPC status.", ConstLabels: labels,
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_flight_call_duration_seconds", Help: "Duration of Flight calls, streams included.",
			ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}, []string{"method"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_flight_sent_bytes_total", Help: "Message bytes sent to clients.", ConstLabels: labels,
		}, []string{"method"}),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_flight_received_bytes_total", Help: "Message bytes received from clients.", ConstLabels: labels,
		}, []string{"method"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_flight_panics_total", Help: "Flight calls ended by a panic, each a bug.", ConstLabels: labels,
		}),
	}
	for _, c := range []prometheus.Collector{m.running, m.ended, m.duration, m.sent, m.received, m.panics} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering Flight metrics: %w", err)
		}
	}
	return m, nil
}

// ServerOptions make a gRPC server measured, and turn a panic in one call into
// an error of that call.
func (m *RPC) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.StatsHandler(m),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
			defer m.recover(info.FullMethod, &err)
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
			defer m.recover(info.FullMethod, &err)
			return handle(server, stream)
		}),
	}
}

func (m *RPC) recover(method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	m.panics.Inc()
	m.logger.Error("call panicked", "method", path.Base(method), "panic", p, "stack", string(debug.Stack()))
	*err = status.Errorf(codes.Internal, "internal error in %s (SQLSTATE XX000); the server's log has the details", path.Base(method))
}

// method is what the counters of one method are looked up as.
type method struct {
	name           string
	running        prometheus.Gauge
	sent, received prometheus.Counter
	ok             prometheus.Counter
	duration       prometheus.Observer
}

func (m *RPC) method(full string) *method {
	if known, ok := m.methods.Load(full); ok {
		return known.(*method)
	}
	name := path.Base(full)
	if full != otherMethods && m.apart.Add(1) > maxMethods {
		return m.method(otherMethods)
	}
	made, _ := m.methods.LoadOrStore(full, &method{
		name: name, running: m.running.WithLabelValues(name),
		sent: m.sent.WithLabelValues(name), received: m.received.WithLabelValues(name),
		ok: m.ended.WithLabelValues(name, codes.OK.String()), duration: m.duration.WithLabelValues(name),
	})
	return made.(*method)
}

type callKey struct{}

// TagRPC implements stats.Handler.
func (m *RPC) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	c := m.method(info.FullMethodName)
	c.running.Inc()
	return context.WithValue(ctx, callKey{}, c)
}

// HandleRPC implements stats.Handler.
func (m *RPC) HandleRPC(ctx context.Context, event stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*method)
	if !ok {
		return
	}
	switch e := event.(type) {
	case *stats.InPayload:
		c.received.Add(float64(e.WireLength))
	case *stats.OutPayload:
		c.sent.Add(float64(e.WireLength))
	case *stats.End:
		c.running.Dec()
		c.duration.Observe(e.EndTime.Sub(e.BeginTime).Seconds())
		if e.Error == nil {
			c.ok.Inc()
			return
		}
		m.ended.WithLabelValues(c.name, status.Code(e.Error).String()).Inc()
		m.logger.Debug("call failed", "method", c.name, "error", e.Error,
			"duration", e.EndTime.Sub(e.BeginTime).Round(time.Microsecond))
	}
}

// TagConn implements stats.Handler.
func (m *RPC) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (m *RPC) HandleConn(context.Context, stats.ConnStats) {}
