//go:build go1.25

package lehttp_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// A redirect keeps the scheme that the client came by, names the root for what has no path,
// is kept by no cache, and knows its own name in any case.
func TestRedirectSaysWhere(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", "Leader.example:80"))
	for name, c := range map[string]struct {
		method, url, host string
		want              string // "": a loop
	}{
		"by http":       {http.MethodGet, "http://front/x?y=z", "front", "http://Leader.example:80/x?y=z"},
		"by https":      {http.MethodGet, "https://front/x", "front", "https://Leader.example:80/x"},
		"OPTIONS *":     {http.MethodOptions, "*", "front", "http://Leader.example:80/"},
		"its own name":  {http.MethodGet, "http://leader.EXAMPLE:80/x", "leader.EXAMPLE:80", ""},
		"without a dot": {http.MethodGet, "http://leader:80/x", "leader:80", "http://Leader.example:80/x"},
	} {
		req, w := httptest.NewRequest(c.method, c.url, nil), httptest.NewRecorder()
		req.Host = c.host
		r.Redirect(nil).ServeHTTP(w, req)
		if c.want == "" && w.Code != http.StatusLoopDetected || c.want != "" && w.Header().Get("Location") != c.want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	w := httptest.NewRecorder()
	lehttp.Probes(leading(), nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/leader", nil))
	if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a probe's answer: %v", w.Header())
	}
}

// Without TrustForwarded nobody's word on where a request comes from is taken.
func TestProxyTrustsNobodyByDefault(t *testing.T) {
	var got http.Header
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(server(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })))))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy(t, r, nil).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"} {
		req.Header.Set(k, "made-up")
	}
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	for k, v := range got {
		if strings.Contains(strings.Join(v, ","), "made-up") {
			t.Errorf("the leader got %s: %v", k, v)
		}
	}
}

// Also the transport of one leadership, made for TLSFor, does not dial a name that resolves to
// what is refused.
func TestTLSForChecksWhatANameResolvesTo(t *testing.T) {
	routetest.Resolve(t, [4]byte{169, 254, 169, 254})
	var log logtest.Log
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", "leader.example:443"))
	front := proxy(t, r, &lehttp.ProxyOptions{
		Wait: -1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		TLSFor: func(le.RaceEntry) (*tls.Config, error) { return &tls.Config{}, nil },
	})
	res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(log.String(), "169.254.169.254 is refused") {
		t.Errorf("%d %q, %s", res.StatusCode, body, log.String())
	}
}

// What is wrong with a leader's addresses is logged once for each leadership, and a mark
// of a refusal counts with its status alone, and does not reach the client.
func TestProxyComplainsOnce(t *testing.T) {
	var log logtest.Log
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for n := range uint64(2) {
		r.News(record(n+1, "a", "169.254.169.254:80"))
		for range 3 {
			_, _ = ask(t, client(t), http.MethodGet, front.URL, nil)
		}
	}
	if n := strings.Count(log.String(), "hostPort="); n != 2 {
		t.Errorf("%d complaints in two leaderships:\n%s", n, log.String())
	}
	calls := 0
	r.News(record(3, "b", address(server(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Leaderelection-Not-Leading", "refused")
		_, _ = io.WriteString(w, "done")
	})))))
	front = proxy(t, r, &lehttp.ProxyOptions{Wait: 100 * time.Millisecond})
	res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("x"))
	if calls != 1 || body != "done" || res.Header.Get("Leaderelection-Not-Leading") != "" {
		t.Errorf("%d calls, %d %q %v", calls, res.StatusCode, body, res.Header)
	}
}

// Without a Logger the warnings go to slog's default, as those of a Config do.
func TestWarningsWithoutALogger(t *testing.T) {
	var log logtest.Log
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	token := uint64(0)
	for name, c := range map[string]struct {
		h    http.Handler
		want string
	}{
		"a Proxy":    {r.Proxy(&lehttp.ProxyOptions{Wait: -1}), "a request was not answered by a leader"},
		"a Redirect": {r.Redirect(nil), "169.254.169.254 is refused"},
	} {
		token++
		r.News(record(token, "a", "169.254.169.254:80")) // another leadership: each is complained of once
		log.Take()
		c.h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		if got := log.Take(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, c.want) {
			t.Errorf("%s logs %q", name, got)
		}
	}
}
