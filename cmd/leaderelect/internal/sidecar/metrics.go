package sidecar

import (
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/leprom"
)

// Metrics are a sidecar's, for Prometheus: the election's, and the process's.
type Metrics struct {
	*leprom.Metrics
	registry *prometheus.Registry
}

// NewMetrics returns metrics that know of no election yet.
func NewMetrics() *Metrics {
	m := &Metrics{Metrics: leprom.New(nil), registry: prometheus.NewRegistry()}
	m.registry.MustRegister(m.Metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// ElectionName is what an election is called in the metrics, if nobody has said: the
// store's URL without whatever may differ between its candidates or be secret. That
// leaves the parameters that name an election.
func ElectionName(raw string) string {
	u, err := url.Parse(redact.URL(raw))
	if err != nil {
		return "election"
	}
	u.User, u.Fragment = nil, ""
	named := url.Values{}
	for _, k := range []string{"key", "election"} {
		if v := u.Query().Get(k); v != "" {
			named.Set(k, v)
		}
	}
	u.RawQuery = named.Encode()
	return u.String()
}
