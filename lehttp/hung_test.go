//go:build go1.25

package lehttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// A leader that is silent when the next one is there is left: what can be sent again
// goes to the next, and nobody waits for the rest.
func TestProxyLeavesAHungLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	t.Run("asked", func(t *testing.T) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
				next := server(t, says("from b"))
				hung := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
					r.News(record(2, "b", address(next)))
					<-req.Context().Done()
				}))
				r.News(record(1, "a", address(hung)))
				front := proxy(t, r, nil)
				res, body := ask(t, client(t), method, front.URL, strings.NewReader("payload"))
				if method == http.MethodPost {
					if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "may have taken effect") {
						t.Errorf("%d %q", res.StatusCode, body)
					}
				} else if body != "from b" {
					t.Errorf("%d %q", res.StatusCode, body)
				}
			})
		}
	})
	t.Run("streaming", func(t *testing.T) {
		t.Parallel()
		r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
		hung := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}))
		r.News(record(1, "a", address(hung)))
		res, err := client(t).Get(proxy(t, r, nil).URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		if line, err := lines.ReadString('\n'); line != "data: 1\n" {
			t.Fatal(line, err)
		}
		r.News(record(2, "b", "127.0.0.1:1"))
		if _, err := io.ReadAll(lines); err == nil {
			t.Error("the stream ended as if it were whole")
		}
	})
	t.Run("upgraded", func(t *testing.T) {
		t.Parallel()
		r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
		hung := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(io.Discard, rw) // until it is closed
		}))
		r.News(record(1, "a", address(hung)))
		conn, err := net.Dial("tcp", address(proxy(t, r, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(conn)
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(res, err)
		}
		r.News(record(2, "b", "127.0.0.1:1"))
		if _, err := io.ReadAll(in); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Log(err) // however it ends, it ends
		}
	})
}

// An answer that was sent by its leader arrives whole, however slowly the client
// takes it, and whoever leads by then.
func TestProxyPassesOnWhatIsUnderWay(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	long := strings.Repeat("0123456789", 1<<17)
	leader := server(t, says(long))
	r.News(record(1, "a", address(leader)))
	res, err := client(t).Get(proxy(t, r, nil).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	half := make([]byte, len(long)/2)
	if _, err := io.ReadFull(res.Body, half); err != nil {
		t.Fatal(err)
	}
	r.News(record(2, "b", "127.0.0.1:1"))
	rest, err := io.ReadAll(res.Body)
	if err != nil || string(half)+string(rest) != long {
		t.Errorf("%d of %d bytes, %v", len(half)+len(rest), len(long), err)
	}
}

// A handler that waits for its ctx, and a connection that nobody writes to, do not
// linger at a process that does not lead.
func TestNothingLingersWhenLeadershipIsLost(t *testing.T) {
	t.Run("a stream of events", func(t *testing.T) {
		t.Parallel()
		l := leading()
		s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			l.over()
			<-r.Context().Done()
			if cause := context.Cause(r.Context()); !errors.Is(cause, le.ErrNotLeading) {
				t.Errorf("the cause is %v", cause)
			}
		})))
		res, err := client(t).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the stream ended as if it were whole")
		}
	})
	t.Run("a hijacked connection", func(t *testing.T) {
		t.Parallel()
		l := leading()
		s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			l.over()
			if _, err := io.ReadAll(conn); err == nil { // the client says nothing
				t.Error("the client closed it")
			}
		})))
		conn, err := net.Dial("tcp", address(s))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if rest, _ := io.ReadAll(conn); len(rest) > 0 {
			t.Errorf("%q", rest)
		}
	})
}
