//go:build go1.25

package lehttp_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// S is the MaxClockSkew of most tests.
const S = time.Second

// server starts h on the loopback.
func server(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// address is the host and port of a test server.
func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// nobody is an address that takes no connection.
func nobody(t testing.TB) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

// must is for what has to work: must(f())(t) is the result of f.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// record is one of leadership number, with a term that has just begun.
func record(number uint64, leader string, hostPort ...string) le.RaceEntry {
	return le.RaceEntry{
		LeaderID: leader, HostPort: hostPort, ElectionNumber: le.ElectionNumber(number),
		TermLength: 15 * time.Second, TermExpiry: time.Now().Add(15 * time.Second),
	}
}

// vacant is what the leader of leadership number leaves behind.
func vacant(number uint64) le.RaceEntry {
	return le.RaceEntry{ElectionNumber: le.ElectionNumber(number), Extension: 1, TermExpiry: time.Now()}
}

// says answers every request with text.
func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, text) })
}

// proxy starts one on the loopback.
func proxy(t testing.TB, r *lehttp.Router, o *lehttp.ProxyOptions) *httptest.Server {
	t.Helper()
	p := r.Proxy(o)
	t.Cleanup(p.Close)
	return server(t, p)
}

// client has no idle connections left when the test is over.
func client(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask makes a request and returns the answer with its body read.
func ask(t testing.TB, c *http.Client, method, url string, body io.Reader) (*http.Response, string) {
	t.Helper()
	return do(t, c, request(t, method, url, body))
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, url, body))(t)
	return req
}

func do(t testing.TB, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the answer: %v", req.Method, req.URL, err)
	}
	return res, string(text)
}

// wire is a connection to a server that a test writes on byte by byte.
type wire struct {
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, s *httptest.Server) *wire {
	t.Helper()
	c := must(net.Dial("tcp", address(s)))(t)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // no test waits as long
	return &wire{c, bufio.NewReader(c)}
}

// upgrade switches protocols.
func upgrade(t testing.TB, s *httptest.Server) *wire {
	t.Helper()
	w := dial(t, s)
	w.say("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if res, err := http.ReadResponse(w.r, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	return w
}

// upgraded is the handler's side of upgrade.
func upgraded(t testing.TB, w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = rw.Flush()
	return conn, rw
}

func (w *wire) say(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// answer reads one answer.
func (w *wire) answer(t testing.TB) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(w.r, nil)
	if err != nil {
		t.Fatal("no answer:", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal("half an answer:", err)
	}
	return res, string(text)
}

type proxyTransport func(*http.Request) (*http.Response, error)

func (f proxyTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// routerOf returns a Router that has these news.
func routerOf(news ...le.RaceEntry) *lehttp.Router {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	for _, e := range news {
		r.News(e)
	}
	return r
}

// frontOf starts a Proxy to a leader that h serves.
func frontOf(t testing.TB, h http.Handler, o *lehttp.ProxyOptions) *httptest.Server {
	t.Helper()
	return proxy(t, routerOf(record(1, "a", address(server(t, h)))), o)
}

// logger logs to w.
func logger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func get() *http.Request  { return httptest.NewRequest(http.MethodGet, "/", nil) }
func post() *http.Request { return httptest.NewRequest(http.MethodPost, "/", nil) }

// asked is what h answers, without a connection.
func asked(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// leading is a Candidate that leads until its view is over.
func leading() *viewtest.Candidate {
	l := viewtest.NewCandidate(nil)
	lead(l)
	return l
}

func lead(l *viewtest.Candidate) { l.Lead(0, time.Now().Add(time.Hour)) }

// over ends the view.
func over(l *viewtest.Candidate) { l.SetEnd(time.Now()) }

// standby is a Candidate whose view lasts, and that does not lead.
func standby() *viewtest.Candidate {
	l := leading()
	l.SetStatus(le.Following)
	return l
}

// looked is a Candidate that a test changes whenever its view is asked for, for the nth time.
type looked struct {
	*viewtest.Candidate
	n    atomic.Int32
	when func(l *viewtest.Candidate, n int32)
}

func (l *looked) View() *le.TimeView {
	l.when(l.Candidate, l.n.Add(1))
	return l.Candidate.View()
}

// late leads from the fourth time that its view is asked for.
func late() *looked {
	return &looked{Candidate: viewtest.NewCandidate(nil), when: func(l *viewtest.Candidate, n int32) {
		if n == 4 {
			lead(l)
		}
	}}
}
