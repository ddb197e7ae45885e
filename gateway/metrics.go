package gateway

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gateway's counters, by kind of statement.
type metrics struct {
	statements *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	slow       *prometheus.CounterVec
	rowsSent   prometheus.Counter
	rowsWrote  prometheus.Counter
	admission  prometheus.Histogram
	logins     *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, g *Server) (*metrics, error) {
	m := &metrics{
		statements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_gateway_statements_total", Help: "Statements ended, by kind and SQLSTATE (00000: success).",
		}, []string{"kind", "sqlstate"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_gateway_statement_duration_seconds", Help: "Time from the start of execution to the last row.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"kind"}),
		slow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_gateway_slow_statements_total", Help: "Statements that took at least as long as the setting slow_statement, by kind.",
		}, []string{"kind"}),
		rowsSent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_gateway_rows_sent_total", Help: "Rows streamed to clients.",
		}),
		rowsWrote: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_gateway_rows_written_total", Help: "Rows committed by writes.",
		}),
		admission: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_gateway_admission_wait_seconds", Help: "Time that queries waited to be admitted, of those that had to.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
	m.logins = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_gateway_logins_total", Help: "Logins with a password, by result: ok, failed, or refused as too many.",
	}, []string{"result"})
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.statements, m.duration, m.slow, m.rowsSent, m.rowsWrote, m.admission, m.logins,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_admission_queue", Help: "Queries that wait to be admitted.",
		}, func() float64 { return float64(g.ledger.state().waiting) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_admitted_fragments", Help: "Fragments of the queries that are admitted.",
		}, func() float64 { return float64(g.ledger.state().held.fragments) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_admitted_bytes", Help: "Estimated bytes of the queries that are admitted.",
		}, func() float64 { return float64(g.ledger.state().held.bytes) }),
		denials(g, limitFragments), denials(g, limitBytes), denials(g, limitQueue), denials(g, limitQueueDelay),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_running_statements", Help: "Statements running now.",
		}, func() float64 { return float64(len(g.queries.list())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_memory_bytes", Help: "Bytes reserved by coordinator operators.",
		}, func() float64 { return float64(g.budget.Used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_sessions", Help: "Sessions of clients.",
		}, func() float64 { return float64(g.sessions.Count()) }),
		planRequests("hit", &g.plans.hits),
		planRequests("miss", &g.plans.misses),
		planRequests("custom", &g.plans.custom),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "skein_gateway_plan_cache_evictions_total", Help: "Statements and plans dropped to make room for others.",
		}, func() float64 {
			return float64(g.plans.statements.Stats().Evictions + g.plans.templates.Stats().Evictions)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_gateway_plan_cache_bytes", Help: "Estimated bytes of the statements and plans kept.",
		}, func() float64 { return float64(g.plans.statements.Stats().Bytes + g.plans.templates.Stats().Bytes) }),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// denials counts the queries that were not admitted, by the setting that was the
// limit.
func denials(g *Server, limit string) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "skein_gateway_admission_denied_total", Help: "Queries that were not admitted, by the setting that bounds them.",
		ConstLabels: prometheus.Labels{"limit": limit},
	}, func() float64 { return float64(g.ledger.state().denied[limit]) })
}

// planRequests counts the executions of queries whose plan was kept, was made and
// kept, or depends on the values of its parameters and is made each time.
func planRequests(result string, count *atomic.Uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "skein_gateway_plan_cache_requests_total", Help: "Executions of queries, by where their plan came from.",
		ConstLabels: prometheus.Labels{"result": result},
	}, func() float64 { return float64(count.Load()) })
}

// ended records one statement.
func (m *metrics) ended(kind, sqlstate string, took time.Duration) {
	m.statements.WithLabelValues(kind, sqlstate).Inc()
	m.duration.WithLabelValues(kind).Observe(took.Seconds())
}
