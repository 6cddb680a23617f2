//go:build go1.25

package lehttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
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
	return askCtx(t.Context(), t, c, method, url, body)
}

func askCtx(ctx context.Context, t testing.TB, c *http.Client, method, url string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the answer: %v", method, url, err)
	}
	return res, string(text)
}

// leads is a Candidate whose parts a test sets.
type leads struct {
	view   *viewtest.View
	status le.Status
	entry  le.RaceEntry
}

func (l *leads) View() *le.TimeView   { return l.view.TimeView }
func (l *leads) Status() le.Status    { return l.status }
func (l *leads) Leader() le.RaceEntry { return l.entry }

func (l *leads) Ping(context.Context) error { return nil }

// leading is a Candidate that lasts until its view is set.
func leading() *leads {
	v := viewtest.New(nil, 0)
	v.Set(time.Now().Add(time.Hour))
	return &leads{view: v, status: le.Leading}
}

// over ends the view.
func (l *leads) over() { l.view.Set(time.Now().Add(-time.Second)) }
