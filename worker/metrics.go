package worker

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a worker counts itself; the rest is read when asked for.
type metrics struct {
	spilled atomic.Int64 // bytes written by operators out of memory
}

// register makes the worker's metrics known; a nil registerer has none.
func (m *metrics) register(to prometheus.Registerer, s *Server) error {
	if to == nil {
		return nil
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	for _, c := range []prometheus.Collector{
		gauge("skein_worker_queries", "Queries with fragments here.", func() float64 {
			n, _ := s.registry.size()
			return float64(n)
		}),
		gauge("skein_worker_fragments", "Fragments started and not ended.", func() float64 {
			_, n := s.registry.size()
			return float64(n)
		}),
		gauge("skein_worker_memory_bytes", "Bytes reserved by operators.", func() float64 { return float64(s.budget.Used()) }),
		gauge("skein_worker_writes", "Streams of rows being written.", func() float64 { return float64(len(s.writes)) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "skein_worker_spilled_bytes_total", Help: "Bytes that operators out of memory have written to disk.",
		}, func() float64 { return float64(m.spilled.Load()) }),
	} {
		if err := to.Register(c); err != nil {
			return fmt.Errorf("registering the worker's metrics: %w", err)
		}
	}
	return nil
}
