package lehttp

import (
	"bufio"
	"net"
	"net/http"
)

// relayed is the ResponseWriter of Otherwise. It removes the mark that nobody has worked on the
// request: Otherwise may have relayed it from a service behind another election. (It keeps the
// mark of a lost answer, which a Proxy as Otherwise hands on.)
type relayed struct {
	http.ResponseWriter
	refused string
}

func (w *relayed) WriteHeader(code int) {
	if h := w.Header(); h.Get(notLeading) == w.refused {
		h.Del(notLeading)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *relayed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush and Hijack are for handlers that ask for these interfaces.
func (w *relayed) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *relayed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
