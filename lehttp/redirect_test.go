//go:build go1.25

package lehttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

func TestRedirect(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	front := server(t, r.Redirect(&lehttp.RedirectOptions{LeaderID: "me", Wait: -1}))
	get := func(method string) *http.Response {
		t.Helper()
		res, _ := ask(t, client(t), method, front.URL+"/a%2Fb//c?d=e", strings.NewReader("x"))
		return res
	}
	if res := get(http.MethodGet); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Errorf("nothing known: %s %v", res.Status, res.Header)
	}
	r.News(record(1, "a", "10.0.0.1:80"))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if res := get(method); res.StatusCode != http.StatusTemporaryRedirect || res.Header.Get("Location") != "http://10.0.0.1:80/a%2Fb//c?d=e" {
			t.Errorf("%s: %s %v", method, res.Status, res.Header)
		}
	}
	r.News(record(2, "b", "[fd00::1]:443"))
	if res := get(http.MethodGet); res.Header.Get("Location") != "http://[fd00::1]:443/a%2Fb//c?d=e" {
		t.Errorf("IPv6: %v", res.Header)
	}
	r.News(record(3, "me", "10.0.0.3:80"))
	if res := get(http.MethodGet); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("to itself: %s", res.Status)
	}
	r.News(record(4, "c", address(front)))
	if res := get(http.MethodGet); res.StatusCode != http.StatusLoopDetected {
		t.Errorf("a loop: %s", res.Status)
	}
	r.News(record(5, "d", "evil.example/x?:80"))
	if res := get(http.MethodGet); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Location") != "" {
		t.Errorf("a bad HostPort: %s %v", res.Status, res.Header)
	}
}

// A client that came to the leader's own address by the scheme's port, said or left out, is not sent
// round in a circle; one that came to another port is sent there.
func TestRedirectKnowsDefaultPorts(t *testing.T) {
	for _, c := range []struct {
		host, leader, scheme string
		loops                bool
	}{
		{"app.example", "app.example:80", "", true},
		{"APP.example:80", "app.example:80", "", true},
		{"app.example", "app.example:443", "https", true},
		{"[::1]", "[::1]:80", "", true},
		{"app.example", "app.example:443", "", false},
		{"app.example", "app.example:80", "https", false},
		{"app.example:8080", "app.example:80", "", false},
		{"other.example", "app.example:80", "", false},
	} {
		r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
		r.News(record(1, "a", c.leader))
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Host = c.host
		w := httptest.NewRecorder()
		r.Redirect(&lehttp.RedirectOptions{Scheme: c.scheme}).ServeHTTP(w, req)
		want := http.StatusTemporaryRedirect
		if c.loops {
			want = http.StatusLoopDetected
		}
		if w.Code != want {
			t.Errorf("%+v: %d %s", c, w.Code, w.Header().Get("Location"))
		}
	}
}
