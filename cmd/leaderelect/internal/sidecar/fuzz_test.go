//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
)

// FuzzHandler sends anything: no request makes the sidecar panic or wait when it is going down, each is
// answered in a form that goes with its status, and a hand-over is asked for only by who may.
func FuzzHandler(f *testing.F) {
	for _, seed := range []struct{ method, target, host, from, authorization, via, last, body string }{
		{"GET", "/election?after=3&wait=1.5", "127.0.0.1:80", "127.0.0.1:999", "", "", "", ""},
		{"GET", "/election?after=-1&wait=NaN", "[::1]", "[::1]:9", "", "", "", ""},
		{"GET", "/election?wait=1e300", "localhost", "10.0.0.1:1", "", "", "", ""},
		{"GET", "/events", "web.default.svc", "10.0.0.1:1", "", "", "18446744073709551615", ""},
		{"GET", "/self", "evil.example", "127.0.0.1:1", "", "", "", ""},
		{"GET", "/leaderships", "", "", "", "", "", ""},
		{"GET", "/metrics", "a", "", "", "", "", ""},
		{"GET", "/self", "localhost", "127.0.0.1:1", "", "", "", "a body"},
		{"HEAD", "/livez", "a:b:c", "x", "", "", "", ""},
		{"GET", "/standby", "[::1%25eth0]:80", "", "", "", "", ""},
		{"POST", "/stepdown", "localhost:80", "127.0.0.1:1", "", "", "", ""},
		{"POST", "/stepdown", "localhost:80", "127.0.0.1:1", "", "1.2.3.4", "", ""},
		{"POST", "/transfer", "127.0.0.1", "[::ffff:127.0.0.1]:1", "Bearer secret", "", "", "to=b&force=true"},
		{"POST", "/transfer?to=*", "127.0.0.1", "10.0.0.1:1", "bearer secret", "", "", "to=%zz"},
		{"DELETE", "/%2e%2e/election//", "localhost", "", "", "", "", ""},
	} {
		for flags := range byte(4) {
			f.Add(seed.method, seed.target, seed.host, seed.from, seed.authorization, seed.via, seed.last, seed.body, flags)
		}
	}
	f.Fuzz(func(t *testing.T, method, target, host, from, authorization, via, last, body string, flags byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" {
			return // net/http answers these itself
		}
		token, readOnly := "", flags&2 != 0
		if flags&1 != 0 {
			token = "secret"
		}
		var secret func() (string, error)
		if token != "" {
			secret = func() (string, error) { return token, nil }
		}
		asked := 0
		hub := sidecar.NewHub(time.Second)
		defer hub.Close()
		ended := make(chan struct{})
		close(ended)
		h := sidecar.Handler(sidecar.Config{
			Hub: hub, Campaign: none, Skew: time.Second, Metrics: sidecar.NewMetrics().Handler(), Ended: ended, Secret: secret, ReadOnly: readOnly,
			StepDown: func(context.Context, bool) error { asked++; return nil },
			Transfer: func(_ context.Context, id string) error {
				if id == "" || id == "*" {
					t.Errorf("asked to hand over to %q", id)
				}
				asked++
				return nil
			},
		})
		r := httptest.NewRequest("GET", "/", strings.NewReader(body))
		r.Method, r.URL, r.RequestURI, r.Host, r.RemoteAddr = method, u, target, host, from
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for name, value := range map[string]string{"Authorization": authorization, "X-Forwarded-For": via, "Last-Event-ID": last} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code < 200 || w.Code > 599 {
			t.Errorf("status %d", w.Code)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: a browser may take the answer for something else: %v", method, w.Header())
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && method != http.MethodHead && !json.Valid(bytes.TrimSpace(w.Body.Bytes())) {
			t.Errorf("no JSON: %q", w.Body)
		}
		if asked == 0 {
			return
		}
		addr, err := netip.ParseAddrPort(from)
		local := err == nil && addr.Addr().Unmap().IsLoopback() && via == ""
		if readOnly || method != http.MethodPost || token != "" && authorization != "Bearer secret" || token == "" && !local {
			t.Errorf("%s %s from %q, authorized by %q, was let in", method, target, from, authorization)
		}
		if w.Code != http.StatusAccepted {
			t.Errorf("asked, and answered %d", w.Code)
		}
	})
}
