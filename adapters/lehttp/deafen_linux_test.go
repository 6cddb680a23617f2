package lehttp

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// After deafen new connections are refused, and those that were made go on: also one that nobody has
// accepted.
func TestDeafen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	early, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if !deafen(l) {
		t.Fatal("the kernel does not bind a listener to another interface")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want a refusal", err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	if _, err := early.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 100)
	if n, err := early.Read(answer); !strings.Contains(string(answer[:n]), "404") {
		t.Errorf("%q %v", answer[:n], err)
	}
	if deafen(struct{ net.Listener }{l}) {
		t.Error("what has no socket is deaf")
	}
}
