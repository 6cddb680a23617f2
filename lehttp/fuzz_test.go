package lehttp_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// Whatever bytes a client sends, no handler panics, and the leader gets no request that the Proxy did not get.
func FuzzProxy(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a?b HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, Host\r\nUpgrade: websocket\r\n\r\n",
		"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nLeaderelection-Sent-By: proxy\r\nLeaderelection-Not-Leading: refused\r\n\r\n",
		"PUT //x/%2f HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	var came atomic.Int64
	var fault atomic.Pointer[string]
	failed := func(format string, args ...any) { text := fmt.Sprintf(format, args...); fault.Store(&text) }
	var mu sync.Mutex
	seen := map[string]bool{}
	leader := server(f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		id := strings.Join(r.Header["Id-Of-The-Front"], ",")
		if known := seen[id]; !known {
			failed("the leader got %s %s, which the Proxy did not get (%q)", r.Method, r.RequestURI, id)
		}
		delete(seen, id)
		mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "done")
	}))
	fronts := map[bool]string{}
	for _, duplex := range []bool{false, true} {
		r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
		e := record(1, "a", address(leader))
		e.TermExpiry = time.Now().Add(24 * time.Hour)
		r.News(e)
		p := r.Proxy(&lehttp.ProxyOptions{FullDuplex: duplex})
		f.Cleanup(p.Close)
		fronts[duplex] = address(server(f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if x := recover(); x != nil {
					if x != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
						failed("a panic: %v", x)
					}
					panic(http.ErrAbortHandler)
				}
			}()
			id := fmt.Sprint(came.Add(1))
			r.Header["Id-Of-The-Front"] = []string{id} // in the place of a client's
			mu.Lock()
			seen[id] = true
			mu.Unlock()
			p.ServeHTTP(w, r)
		})))
	}
	f.Fuzz(func(t *testing.T, bytes []byte, duplex bool) {
		c, err := net.Dial("tcp", fronts[duplex])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write(bytes)
		_ = c.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // of tcp
		_, _ = io.Copy(io.Discard, c)
		if text := fault.Swap(nil); text != nil {
			t.Fatal(*text)
		}
	})
}
