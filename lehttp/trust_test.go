//go:build go1.25

package lehttp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// A record cannot send requests, with their credentials, to anywhere.
func TestProxyAndRedirectCheckAddresses(t *testing.T) {
	leader := server(t, says("hello"))
	_, port, _ := net.SplitHostPort(address(leader))
	dialled := ""
	spy := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled = addr
		return (&net.Dialer{}).DialContext(ctx, network, address(leader))
	}}
	t.Cleanup(spy.CloseIdleConnections)
	only := func(hostPort string) error {
		if hostPort != "10.1.2.3:80" {
			return fmt.Errorf("%s is none of ours", hostPort)
		}
		return nil
	}
	for _, c := range []struct {
		name     string
		check    func(string) error
		hostPort []string
		want     string // that is dialled
	}{
		{"link-local", nil, []string{"169.254.169.254:80"}, ""},
		{"link-local, mapped", nil, []string{"[::ffff:169.254.169.254]:80"}, ""},
		{"the good one of two", nil, []string{"[fe80::1]:80", "10.0.0.1:80"}, "10.0.0.1:80"},
		{"the caller's own rule", only, []string{"10.0.0.1:80", "10.1.2.3:80"}, "10.1.2.3:80"},
		{"the caller's own rule, nothing left", only, []string{"10.0.0.1:80"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log logtest.Log
			logger := slog.New(slog.NewTextHandler(&log, nil))
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(record(1, "a", c.hostPort...))
			dialled = ""
			front := proxy(t, r, &lehttp.ProxyOptions{CheckAddress: c.check, Transport: spy, Wait: time.Hour, Logger: logger})
			res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
			if dialled != c.want || (res.StatusCode == http.StatusOK) != (c.want != "") || c.want == "" && res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("dialled %q, %d %q", dialled, res.StatusCode, body)
			}
			res, _ = ask(t, client(t), http.MethodGet, server(t, r.Redirect(&lehttp.RedirectOptions{CheckAddress: c.check})).URL, nil)
			if location := res.Header.Get("Location"); location != "" && location != "http://"+c.want+"/" || (location == "") != (c.want == "") {
				t.Errorf("redirected to %q", location)
			}
			spy.CloseIdleConnections()
			if !strings.Contains(log.String(), "is refused") && !strings.Contains(log.String(), "none of ours") {
				t.Errorf("the log: %q", log.String())
			}
		})
	}
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", net.JoinHostPort("localhost", port)))
	if res, body := ask(t, client(t), http.MethodGet, proxy(t, r, nil).URL, nil); body != "hello" {
		t.Errorf("localhost: %d %q", res.StatusCode, body)
	}
}

// The Proxy's own Transport does not dial a name that resolves to what is refused.
func TestProxyChecksWhatANameResolvesTo(t *testing.T) {
	routetest.Resolve(t, [4]byte{169, 254, 169, 254})
	var log logtest.Log
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", "leader.example:80"))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(log.String(), "169.254.169.254 is refused") {
		t.Errorf("%d %q, %s", res.StatusCode, body, log.String())
	}
}

// What a client says of where it comes from, and what would raise a fence, does not
// pass, unless the proxy's owner says so.
func TestProxyHeadersFromOutside(t *testing.T) {
	var got http.Header
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header })))))
	trust := func(r *http.Request) bool { return r.Header.Get("From-Ours") != "" }
	fenced := func(p *httputil.ProxyRequest) {
		if p.In.Header.Get("From-Ours") != "" {
			p.Out.Header[fence.Header] = p.In.Header[fence.Header]
		}
	}
	front := proxy(t, r, &lehttp.ProxyOptions{TrustForwarded: trust, Rewrite: fenced})
	for _, c := range []struct {
		ours, want string
	}{
		{"", "For: 127.0.0.1 Proto: http Host: " + address(front) + " Forwarded:  Token: "},
		{"1", "For: 203.0.113.7, 127.0.0.1 Proto: https Host: shop.example Forwarded: for=203.0.113.7 Token: orders:7"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"From-Ours": c.ours, "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example",
			"Forwarded": "for=203.0.113.7", fence.Header: "orders:7",
			"Fencing_Token": "orders:8", "fencing_token": "orders:9", "X_Forwarded_For": "1.2.3.4", "x-forwarded_host": "evil.example",
		} {
			req.Header[k] = []string{v}
		}
		res, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		for k := range got {
			if strings.Contains(k, "_") {
				t.Errorf("ours %q: the leader got %s", c.ours, k)
			}
		}
		h := func(k string) string { return strings.Join(got[k], ", ") }
		if all := fmt.Sprintf("For: %s Proto: %s Host: %s Forwarded: %s Token: %s", h("X-Forwarded-For"), h("X-Forwarded-Proto"), h("X-Forwarded-Host"), h("Forwarded"), h(fence.Header)); all != c.want {
			t.Errorf("ours %q: the leader got\n%s, want\n%s", c.ours, all, c.want)
		}
	}
}
