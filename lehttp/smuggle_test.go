//go:build go1.25

package lehttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// wire is a connection to a server that a test writes on byte by byte.
type wire struct {
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, s *httptest.Server) *wire {
	t.Helper()
	c, err := net.Dial("tcp", address(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // no test waits as long
	return &wire{c, bufio.NewReader(c)}
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

// early answers a POST before it has read its body, and counts requests that nobody has made.
type early struct {
	status   int
	smuggled atomic.Int32
}

func (e *early) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/smuggled" {
		e.smuggled.Add(1)
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // so that it does not wait for the client
	w.Header().Set("Connection", "close")
	w.WriteHeader(e.status)
	_, _ = io.WriteString(w, "early")
}

// What is left of a body when the answer begins is no request: not if the Proxy streams
// both ways, nor if it does not, nor if its answer is thrown away.
func TestNoPartOfABodyIsARequest(t *testing.T) {
	const inside = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		duplex bool
		header string
		status int
		lost   bool // the answer is thrown away by a RequireLeader before the Proxy
	}{
		"chunked":                     {true, "Transfer-Encoding: chunked", http.StatusUnauthorized, false},
		"long":                        {true, "Content-Length: 1048576", http.StatusRequestEntityTooLarge, false},
		"announced":                   {true, "Expect: 100-continue\r\nContent-Length: 1048576", http.StatusUnauthorized, false},
		"answered with 200":           {true, "Transfer-Encoding: chunked", http.StatusOK, false},
		"the answer is thrown away":   {true, "Transfer-Encoding: chunked", http.StatusUnauthorized, true},
		"one way, chunked":            {false, "Transfer-Encoding: chunked", http.StatusUnauthorized, false},
		"one way, long":               {false, "Content-Length: 1048576", http.StatusServiceUnavailable, false},
		"one way, answer thrown away": {false, "Transfer-Encoding: chunked", http.StatusUnauthorized, true},
	} {
		t.Run(name, func(t *testing.T) {
			leader := &early{status: c.status}
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(record(1, "a", address(server(t, leader))))
			p := r.Proxy(&lehttp.ProxyOptions{FullDuplex: c.duplex})
			t.Cleanup(p.Close)
			var h http.Handler = p
			l := leading()
			if c.lost {
				h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					p.ServeHTTP(w, r)
					if r.Method == http.MethodPost {
						l.over()
					}
				})
				h = lehttp.RequireLeader(l, nil)(h)
			}
			var smuggled atomic.Int32
			front := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					smuggled.Add(1)
				}
				h.ServeHTTP(w, r)
			}))
			conn := dial(t, front)
			conn.say("POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", c.header)
			rest := strings.Repeat(inside, 1<<20/len(inside)) // more than net/http reads on for
			rest += strings.Repeat(" ", 1<<20-len(rest))
			if strings.Contains(c.header, "chunked") {
				conn.say("100000\r\n")
				rest += "\r\n0\r\n\r\n"
			} // the Proxy waits for more of it when the answer comes
			if c.duplex {
				res, _ := conn.answer(t)
				if res.StatusCode == http.StatusContinue {
					res, _ = conn.answer(t)
				}
				want := c.status
				if c.lost {
					want = http.StatusServiceUnavailable
				}
				if res.StatusCode != want || !res.Close {
					t.Errorf("%d, and the connection is closed: %v", res.StatusCode, res.Close)
				}
				conn.say("%s", rest)
				if n, err := conn.r.WriteTo(io.Discard); n > 0 {
					t.Errorf("%d bytes came after the answer, %v", n, err)
				}
			} else { // a client that does not wait for the answer, and may have its connection reset under it
				conn.say("%s", rest)
				_ = conn.Conn.(*net.TCPConn).CloseWrite()
				_, _ = conn.r.WriteTo(io.Discard)
			}
			_ = conn.Close()
			front.Close() // waits for what it serves
			if n, m := smuggled.Load(), leader.smuggled.Load(); n+m > 0 {
				t.Errorf("%d requests that nobody has made were served, %d by the leader", n, m)
			}
		})
	}
}

// A connection goes on if the body was read, however it streams.
func TestAConnectionGoesOnAfterAStream(t *testing.T) {
	leader := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(leader)))
	conn := dial(t, proxy(t, r, &lehttp.ProxyOptions{FullDuplex: true}))
	for range 3 {
		conn.say("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
		if res, text := conn.answer(t); text != "body" || res.Close {
			t.Fatalf("%d %q, and the connection is closed: %v", res.StatusCode, text, res.Close)
		}
	}
}
