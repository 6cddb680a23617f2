package sidecar

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c8e606e4/leaderelection"
)

// Metrics are a sidecar's, for Prometheus.
type Metrics struct {
	registry    *prometheus.Registry
	ops         *prometheus.HistogramVec
	leaderships prometheus.Counter
	ends        *prometheus.CounterVec
	remaining   prometheus.Histogram
	feeds       *prometheus.CounterVec
	skews       prometheus.Counter
}

// NewMetrics returns the metrics of a candidate or observer: what hub knows, and
// what Trace is told.
func NewMetrics(hub *Hub, campaign func() *leaderelection.Campaign) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		ops: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "leaderelect_store_operation_seconds",
			Help: "How long store operations took, by kind and result.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, []string{"op", "result"}),
		leaderships: prometheus.NewCounter(prometheus.CounterOpts{Name: "leaderelect_leaderships_total", Help: "Leaderships of this process."}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leaderelect_leadership_ends_total",
			Help: "Leaderships of this process that have ended, by cause."}, []string{"cause"}),
		remaining: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leaderelect_extension_remaining_seconds",
			Help: "What was left of the view when an extension was confirmed.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 13)}),
		feeds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leaderelect_feed_events_total",
			Help: "Starts and failures of the store's feed of changes."}, []string{"event"}),
		skews: prometheus.NewCounter(prometheus.CounterOpts{Name: "leaderelect_clock_skews_total",
			Help: "How often this machine's clock was newly proved to be off by more than --skew."}),
	}
	// A counter that is born at 1 has no increase that a rate could see.
	for _, c := range causes {
		m.ends.WithLabelValues(c.name)
	}
	m.ends.WithLabelValues("stopped")
	m.feeds.WithLabelValues("started")
	m.feeds.WithLabelValues("failed")
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.registry.MustRegister(m.ops, m.leaderships, m.ends, m.remaining, m.feeds, m.skews,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("leaderelect_leading", "1 while this process leads by its view.", func() float64 {
			if c := campaign(); c != nil && c.View().ValueInFuture() && c.Status() == leaderelection.Leading {
				return 1
			}
			return 0
		}),
		gauge("leaderelect_view_seconds_left", "What is left of this process's view; 0 while not leading.", func() float64 {
			if c := campaign(); c != nil && c.View().ValueInFuture() {
				return max(time.Until(c.View().Get()).Seconds(), 0)
			}
			return 0
		}),
		gauge("leaderelect_led", "1 while somebody is known to lead.", func() float64 {
			if hub.Now().State == "led" {
				return 1
			}
			return 0
		}),
		gauge("leaderelect_term_seconds_left", "What is left of the leader's term.", func() float64 { return hub.Now().Left }),
		gauge("leaderelect_election_number", "The number of the newest leadership known: the fencing token.", func() float64 { return float64(hub.Now().Election) }),
	)
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Trace fills in the hooks of t that the metrics need. What t has, is called too.
func (m *Metrics) Trace(t *leaderelection.Trace) *leaderelection.Trace {
	if t == nil {
		t = &leaderelection.Trace{}
	}
	extended := t.Extended
	t.StoreOp = func(op leaderelection.StoreOp) {
		m.ops.WithLabelValues(string(op.Kind), result(op)).Observe(op.Duration.Seconds())
	}
	t.Extended = func(e leaderelection.ViewExtended) {
		if extended != nil {
			extended(e)
		}
		if e.Remaining != 0 {
			m.remaining.Observe(e.Remaining.Seconds())
		}
	}
	t.StatusChanged = func(s leaderelection.StatusChange) {
		switch {
		case s.To == leaderelection.Leading:
			m.leaderships.Inc()
		case s.From == leaderelection.Leading:
			m.ends.WithLabelValues(cause(s.Cause)).Inc()
		}
	}
	t.ClockSkew = func(leaderelection.ClockSkewError) { m.skews.Inc() }
	t.Feed = func(f leaderelection.FeedEvent) {
		event := "started"
		if f.Err != nil {
			event = "failed"
		}
		m.feeds.WithLabelValues(event).Inc()
	}
	return t
}

func result(op leaderelection.StoreOp) string {
	switch {
	case op.Err == nil:
		return "ok"
	case op.Abandoned:
		return "timeout"
	case errors.Is(op.Err, leaderelection.ErrLostRace):
		return "lost_race"
	}
	return "error"
}

// causes are the ends that have a name.
var causes = []struct {
	err  error
	name string
}{
	{leaderelection.ErrOusted, "ousted"}, {leaderelection.ErrExpired, "expired"}, {leaderelection.ErrResigned, "resigned"},
	{leaderelection.ErrUnhealthy, "unhealthy"}, {leaderelection.ErrClockSkew, "clock_skew"},
}

func cause(err error) string {
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return "stopped"
}
