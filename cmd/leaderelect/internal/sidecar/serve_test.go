//go:build unix

package sidecar_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
)

// dial opens a connection and asks for path, unless that is empty.
func dial(t *testing.T, address, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if path != "" {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	}
	return c
}

// status is the first line of an answer; empty if the connection was closed.
func status(c net.Conn) string {
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

// limitedServer is a sidecar that has most connections.
func limitedServer(t *testing.T, most int) (hub *sidecar.Hub, server *http.Server, address string) {
	t.Helper()
	hub = sidecar.NewHub(time.Second)
	ended := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	limited := sidecar.Limit(l, most)
	config := sidecar.Config{Hub: hub, Campaign: none, Metrics: http.NotFoundHandler(), Ended: ended, MaxWaiting: most / 2,
		StepDown: func(context.Context, bool) error { return nil }}
	server = sidecar.Server(sidecar.Handler(config), limited, log.New(io.Discard, "", 0))
	served := make(chan error)
	go func() { served <- server.Serve(limited) }()
	t.Cleanup(func() {
		close(ended)
		_ = server.Close()
		<-served
		hub.Close()
	})
	return hub, server, l.Addr().String()
}

// Idle connections take a bounded number of file descriptors, and keep no probe out;
// nor do those that wait for news.
func TestConnectionsAreLimited(t *testing.T) {
	const most = 8
	hub, server, address := limitedServer(t, most)
	if server.IdleTimeout <= 0 || server.IdleTimeout > time.Minute || server.ReadHeaderTimeout <= 0 {
		t.Errorf("idle connections are kept for %v, and ones that send no header for %v", server.IdleTimeout, server.ReadHeaderTimeout)
	}
	var idle []net.Conn
	for range 10 * most {
		idle = append(idle, dial(t, address, ""))
	}
	// Whoever asks is answered, and the oldest idle one is closed for it.
	if s := status(dial(t, address, "/livez")); s != "HTTP/1.1 200 OK" {
		t.Errorf("a probe is answered %q", s)
	}
	closed := 0
	for _, c := range idle[:9*most+1] { // an eighth is not for this machine
		if _, err := c.Read(make([]byte, 1)); err == io.EOF || strings.Contains(fmt.Sprint(err), "reset") {
			closed++
		}
	}
	if want := 9*most + 1; closed != want {
		t.Errorf("of the %d oldest idle connections %d were closed", want, closed)
	}
	// As many as may wait for news; the next is told so, and a probe is answered.
	var waiting []net.Conn
	for range most / 2 {
		c := dial(t, address, "/events")
		if s := status(c); s != "HTTP/1.1 200 OK" {
			t.Fatalf("events are answered %q", s)
		}
		waiting = append(waiting, c)
	}
	for _, path := range []string{"/events", "/election?wait=10s"} {
		if s := status(dial(t, address, path)); s != "HTTP/1.1 503 Service Unavailable" {
			t.Errorf("%s by one too many is answered %q", path, s)
		}
	}
	for range 3 * most {
		dial(t, address, "")
	}
	if s := status(dial(t, address, "/livez")); s != "HTTP/1.1 200 OK" {
		t.Errorf("a probe is answered %q", s)
	}
	// Who waits is not idle: the stream goes on.
	hub.Record(led("a", 1, 0, 10*time.Second))
	for _, c := range waiting {
		lines := bufio.NewScanner(c)
		for lines.Scan() && lines.Text() != "event: elected" {
		}
		if lines.Text() != "event: elected" {
			t.Errorf("a stream was cut: %v", lines.Err())
		}
	}
}

// A request whose body never comes is answered and closed at once, and keeps no probe out.
func TestBodiesThatNeverComeKeepNoProbeOut(t *testing.T) {
	const most = 8
	for _, head := range []string{
		"GET /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
		"GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
		"POST /stepdown HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: 1000\r\n\r\n",
		"POST /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
		"POST /stepdown HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
		"GET /nothing HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n",
		"BREW / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 300000\r\n\r\n",
	} {
		_, _, address := limitedServer(t, most)
		held := make([]net.Conn, most-1)
		for i := range held {
			held[i] = dial(t, address, "")
			fmt.Fprint(held[i], head)
		}
		for _, c := range held {
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // less than any timeout
			said, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 ") {
				t.Errorf("%q: %q, %v", head, said, err)
			}
		}
		if s := status(dial(t, address, "/livez")); s != "HTTP/1.1 200 OK" {
			t.Errorf("%q: a probe is answered %q", head, s)
		}
	}
}

// Nor do bodies that are awaited, headers that never end, and answers that nobody reads: whatever came first is
// closed for a probe, and at last by its deadline.
func TestSlowClientsKeepNoProbeOut(t *testing.T) {
	const most = 8
	for what, begin := range map[string]func(net.Conn){
		"a form": func(c net.Conn) {
			fmt.Fprint(c, "POST /stepdown HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nfor")
		},
		"a header": func(c net.Conn) { fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: loc") },
		"answers": func(c net.Conn) {
			_ = c.(*net.TCPConn).SetReadBuffer(2048)
			_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) // until the server reads no more
			for err := error(nil); err == nil; {
				_, err = c.Write([]byte(strings.Repeat("GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 20)))
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, server, address := limitedServer(t, most)
			if server.WriteTimeout > 10*time.Second || server.ReadHeaderTimeout > 10*time.Second {
				t.Errorf("an answer may take %v, a header %v", server.WriteTimeout, server.ReadHeaderTimeout)
			}
			var all sync.WaitGroup
			for range 2 * most {
				c := dial(t, address, "")
				all.Go(func() { begin(c) })
			}
			all.Wait()
			for range most {
				if s := status(dial(t, address, "/livez")); s != "HTTP/1.1 200 OK" {
					t.Fatalf("a probe is answered %q", s)
				}
			}
		})
	}
}

// Programs on this machine and all others leave each other an eighth, and another address has half at most.
func TestAddressesShare(t *testing.T) {
	const most = 16
	many := func(address string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(address, i))
		}
		return all
	}
	for name, c := range map[string]struct {
		first []string
		next  string
		lost  int // which of the first is closed for the next; -1: none
	}{
		"room":                          {many("127.0.0.1:%d", 13), "127.0.0.1:99", -1},
		"this machine alone":            {many("127.0.0.1:%d", 14), "[::1]:99", 0},
		"this machine, and another":     {many("127.0.0.1:%d", 14), "10.0.0.1:1", -1},
		"one address":                   {append([]string{"10.0.0.2:1"}, many("10.0.0.1:%d", 8)...), "10.0.0.1:99", 1},
		"one network":                   {append([]string{"[2001:db8:0:1::1]:1"}, many("[2001:db8::%x]:1", 8)...), "[2001:db8::99]:1", 1},
		"one address in IPv6":           {append([]string{"10.0.0.2:1"}, many("10.0.0.1:%d", 8)...), "[::ffff:10.0.0.1]:99", 1},
		"many addresses":                {many("10.0.0.%d:1", 14), "10.0.1.1:1", 0},
		"many addresses, and a program": {many("10.0.0.%d:1", 14), "127.0.0.1:1", -1},
		"all, and a program":            {append(many("10.0.0.%d:1", 14), many("127.0.0.1:%d", 2)...), "127.0.0.1:9", 0},
		"all, and another address":      {append(many("127.0.0.1:%d", 14), many("10.0.0.%d:1", 2)...), "10.0.0.9:1", 0},
		"no address":                    {many("@%d", 8), "@9", 0},
	} {
		t.Run(name, func(t *testing.T) {
			from := make(chan string, 1)
			limited := sidecar.Limit(made{from: from}, most)
			admit := func(address string) net.Conn {
				from <- address
				c, err := limited.Accept()
				must(t, err)
				return c
			}
			var ends []*end
			for _, address := range c.first {
				ends = append(ends, endOf(admit(address)))
			}
			admit(c.next)
			for i, e := range ends {
				if e.closed != (i == c.lost) {
					t.Errorf("%s is closed: %v", c.first[i], e.closed)
				}
			}
		})
	}
}

// made is a listener that accepts connections from made up addresses.
type made struct {
	net.Listener
	from chan string
}

func (m made) Accept() (net.Conn, error) { return &end{address: <-m.from}, nil }

// end is such a connection.
type end struct {
	net.Conn
	address string
	closed  bool
}

func endOf(c net.Conn) *end { return reflect.ValueOf(c).Elem().FieldByName("Conn").Interface().(*end) }

func (e *end) Close() error         { e.closed = true; return nil }
func (e *end) RemoteAddr() net.Addr { return e }
func (*end) Network() string        { return "tcp" }
func (e *end) String() string       { return e.address }

// So they do with the requests that wait for news. A request that a proxy of this machine passes on is another
// address's.
func TestAddressesShareTheNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, ended := sidecar.NewHub(time.Second), make(chan struct{})
		h := sidecar.Handler(sidecar.Config{Hub: hub, Campaign: none, Metrics: http.NotFoundHandler(), Ended: ended, MaxWaiting: 8})
		ask := func(from, path, via string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "http://localhost"+path, nil)
			if r.RemoteAddr = from; via != "" {
				r.Header.Set("Via", via)
			}
			w := httptest.NewRecorder()
			go h.ServeHTTP(w, r)
			synctest.Wait()
			return w
		}
		for _, c := range []struct {
			from, via string
			want      int
		}{
			{"10.0.0.1:1", "", 4}, {"127.0.0.1:1", "1.1 a", 3}, {"10.0.0.2:1", "", 0}, {"127.0.0.1:1", "", 1}, {"127.0.0.1:1", "", 0},
		} {
			n := 0
			for range 9 {
				if w := ask(c.from, "/election?wait=1m", c.via); !w.Flushed && w.Body.Len() == 0 {
					n++
				} else if w.Code != http.StatusServiceUnavailable {
					t.Errorf("%s: %d", c.from, w.Code)
				}
			}
			if n != c.want {
				t.Errorf("of %s %s %d wait, want %d", c.from, c.via, n, c.want)
			}
		}
		close(ended)
		hub.Close()
	})
}

// Names that somebody else can give are not answered to, unless they are allowed.
func TestHosts(t *testing.T) {
	s := serve(t, nil)
	for host, want := range map[string]int{
		"evil.example": 421, "evil.example:4040": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example.": 421, "a.internal.example": 421,
		"localhost": 200, "127.0.0.1:4040": 200, "[::1]:4040": 200, "10.1.2.3": 200, "election": 200, "App.Localhost:1": 200, "election.default.svc": 200,
		"election.default.svc.cluster.local:4040": 200, "allowed.example": 200, "Allowed.Example.:4040": 200,
	} {
		for _, path := range []string{"/election", "/events", "/self", "/", "/metrics", "/stepdown"} {
			got := ask(t, "GET", s.URL+path, func(r *http.Request) { r.Host = host })
			if path == "/stepdown" && want == 200 {
				continue // not by GET
			}
			if got != want {
				t.Errorf("Host %s, %s: %d, want %d", host, path, got, want)
			}
		}
	}
}

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
