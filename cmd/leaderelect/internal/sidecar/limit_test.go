//go:build unix

package sidecar_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
)

// dial opens a connection and asks for path, unless that is empty.
func dial(t *testing.T, address, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
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

// Idle connections take a bounded number of file descriptors, and keep no probe out;
// nor do those that wait for news.
func TestConnectionsAreLimited(t *testing.T) {
	const most = 8
	hub := sidecar.NewHub(time.Second)
	ended := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := sidecar.Limit(l, most)
	server := sidecar.Server(sidecar.Handler(sidecar.Config{Hub: hub, Campaign: none, Metrics: http.NotFoundHandler(), Ended: ended, MaxWaiting: most / 2}), limited, log.New(io.Discard, "", 0))
	served := make(chan error)
	go func() { served <- server.Serve(limited) }()
	t.Cleanup(func() {
		close(ended)
		_ = server.Close()
		<-served
		hub.Close()
	})
	if server.IdleTimeout <= 0 || server.IdleTimeout > time.Minute || server.ReadHeaderTimeout <= 0 {
		t.Errorf("idle connections are kept for %v, and ones that send no header for %v", server.IdleTimeout, server.ReadHeaderTimeout)
	}
	var idle []net.Conn
	for range 10 * most {
		idle = append(idle, dial(t, l.Addr().String(), ""))
	}
	// Whoever asks is answered, and the oldest idle one is closed for it.
	if s := status(dial(t, l.Addr().String(), "/livez")); s != "HTTP/1.1 200 OK" {
		t.Errorf("a probe is answered %q", s)
	}
	closed := 0
	for _, c := range idle[:9*most] {
		if _, err := c.Read(make([]byte, 1)); err == io.EOF || strings.Contains(fmt.Sprint(err), "reset") {
			closed++
		}
	}
	if want := 9 * most; closed != want {
		t.Errorf("of the %d oldest idle connections %d were closed", want, closed)
	}
	// As many as may wait for news; the next is told so, and a probe is answered.
	var waiting []net.Conn
	for range most / 2 {
		c := dial(t, l.Addr().String(), "/events")
		if s := status(c); s != "HTTP/1.1 200 OK" {
			t.Fatalf("events are answered %q", s)
		}
		waiting = append(waiting, c)
	}
	for _, path := range []string{"/events", "/election?wait=10s"} {
		if s := status(dial(t, l.Addr().String(), path)); s != "HTTP/1.1 503 Service Unavailable" {
			t.Errorf("%s by one too many is answered %q", path, s)
		}
	}
	for range 3 * most {
		dial(t, l.Addr().String(), "")
	}
	if s := status(dial(t, l.Addr().String(), "/livez")); s != "HTTP/1.1 200 OK" {
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
