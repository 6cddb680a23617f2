//go:build go1.25

package lehttp_test

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// relay returns a handler that counts its calls, and passes each on to a service
// behind another election, which refuses it.
func relay(t *testing.T, calls *atomic.Int32, election string) http.Handler {
	t.Helper()
	other := leading()
	other.status = le.Following
	service := server(t, lehttp.RequireLeader(other, &lehttp.RequireOptions{Election: election})(says("never")))
	target, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	pass := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		pass.ServeHTTP(w, r)
	})
}

// A leader that passes a request on to a service behind another election has
// worked on it, also when that service refuses: the request is not sent again.
func TestProxyDoesNotRepeatWhatARelayRefused(t *testing.T) {
	for _, c := range []struct {
		name, election, relayed string
		guarded                 bool
	}{
		{"the leader has RequireLeader", "", "", true},
		{"it has none, and the elections have names", "orders", "users", false},
		{"it has none, and its own election has a name", "orders", "", false},
		{"it has none, and the other election has a name", "", "users", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls atomic.Int32
			h := relay(t, &calls, c.relayed)
			if c.guarded {
				h = lehttp.RequireLeader(leading(), &lehttp.RequireOptions{Election: c.election})(h)
			}
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(record(1, "a", address(server(t, h))))
			front := proxy(t, r, &lehttp.ProxyOptions{Wait: 200 * time.Millisecond, Election: c.election})
			res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("payload"))
			if n := calls.Load(); n != 1 || res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("the leader's handler was called %d times; %d %q", n, res.StatusCode, body)
			}
		})
	}
}

// A named election's refusals are known as such.
func TestProxyKnowsTheRefusalsOfItsElection(t *testing.T) {
	young := &late{after: 3}
	b := server(t, lehttp.RequireLeader(young, &lehttp.RequireOptions{Election: "a b/ü"})(says("hello")))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "b", address(b)))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute, Election: "a b/ü"})
	if res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("x")); body != "hello" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// A header goes out as it was when the handler said WriteHeader, or wrote first:
// as without RequireLeader.
func TestHeaderIsSettledWhenItIsSaid(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"Write":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
		"neither":     func(http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h.Set("Before", "1")
				h.Set("Trailer", "Sum")
				begin(w)
				h.Set("After", "2")
				h.Add("Before", "2")
				h.Set("Sum", "42")
				h.Set(http.TrailerPrefix+"Late", "43")
			})
			bare, _ := ask(t, client(t), http.MethodGet, server(t, h).URL, nil)
			got, _ := ask(t, client(t), http.MethodGet, server(t, lehttp.RequireLeader(leading(), nil)(h)).URL, nil)
			for _, k := range []string{"Before", "After", "Sum", "Late"} {
				if g, w := strings.Join(got.Header[k], ","), strings.Join(bare.Header[k], ","); g != w {
					t.Errorf("header %s: %q, without RequireLeader %q", k, g, w)
				}
				if g, w := strings.Join(got.Trailer[k], ","), strings.Join(bare.Trailer[k], ","); g != w {
					t.Errorf("trailer %s: %q, without RequireLeader %q", k, g, w)
				}
			}
		})
	}
}

// What a standby does instead of leading may relay a refusal, too, which is not the standby's.
func TestAStandbyRelaysNoMark(t *testing.T) {
	var calls atomic.Int32
	standby := leading()
	standby.status = le.Following
	h := lehttp.RequireLeader(standby, &lehttp.RequireOptions{Otherwise: relay(t, &calls, "")})(says("never"))
	res, body := ask(t, client(t), http.MethodPost, server(t, h).URL, strings.NewReader("payload"))
	if n := calls.Load(); n != 1 || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Leaderelection-Not-Leading") != "" {
		t.Errorf("the standby's handler was called %d times; %d %q %v", n, res.StatusCode, body, res.Header)
	}
}

// Otherwise can do with its ResponseWriter what it could without RequireLeader.
func TestOtherwiseHasAWholeResponseWriter(t *testing.T) {
	standby := leading()
	standby.status = le.Following
	s := server(t, lehttp.RequireLeader(standby, &lehttp.RequireOptions{Otherwise: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "0\r\n\r\n") // the end of what Flush began
		_ = conn.Close()
	})})(says("never")))
	if res, body := ask(t, client(t), http.MethodGet, s.URL, nil); res.StatusCode != http.StatusOK || body != "" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// A trailer arrives once, and as a trailer alone, whatever it passes through.
func TestTrailersArriveOnce(t *testing.T) {
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "42")
		w.Header().Set(http.TrailerPrefix+"Late", "43")
	})
	guard := lehttp.RequireLeader(leading(), nil)
	to := func(h http.Handler) http.Handler {
		r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
		r.News(record(1, "a", address(server(t, h))))
		p := r.Proxy(nil)
		t.Cleanup(p.Close)
		return p
	}
	standby := leading()
	standby.status = le.Following
	for name, h := range map[string]http.Handler{
		"leader":                          guard(app),
		"proxy":                           to(app),
		"proxy, leader":                   to(guard(app)),
		"standby's proxy, leader":         lehttp.RequireLeader(standby, &lehttp.RequireOptions{Otherwise: to(guard(app))})(app),
		"leader that is a proxy, another": guard(to(guard(app))),
	} {
		res, body := ask(t, client(t), http.MethodGet, server(t, h).URL, nil)
		if body != "body" || strings.Join(res.Trailer["Sum"], ",") != "42" || strings.Join(res.Trailer["Late"], ",") != "43" || res.Header["Sum"] != nil || res.Header["Late"] != nil {
			t.Errorf("%s: %q, header %v, trailer %v", name, body, res.Header, res.Trailer)
		}
	}
}
