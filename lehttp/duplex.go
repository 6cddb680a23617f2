package lehttp

import (
	"io"
	"net/http"
	"sync/atomic"
)

// duplex is the ResponseWriter for a client that may be sending its request's body while
// it is answered (ProxyOptions.FullDuplex).
//
// In full duplex net/http does not read the rest of a body, and takes it for the next request. So
// if the body is not at its end when the answer begins, only this body is read from the
// connection any more.
type duplex struct {
	http.ResponseWriter
	body *ending
}

// newDuplex returns w and r for the ReverseProxy.
func newDuplex(w http.ResponseWriter, r *http.Request) (*duplex, *http.Request) {
	body := &ending{ReadCloser: r.Body}
	r = r.WithContext(r.Context()) // a copy
	r.Body = body
	return &duplex{w, body}, r
}

// WriteHeader begins the answer.
func (d *duplex) WriteHeader(code int) {
	if code >= http.StatusOK && !d.body.ended.Load() {
		_ = http.NewResponseController(d.ResponseWriter).EnableFullDuplex() // if it cannot, the answer waits
		d.Header().Set("Connection", "close")
	}
	d.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (d *duplex) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// ending is a body that knows whether it has been read to its end.
type ending struct {
	io.ReadCloser
	ended atomic.Bool
}

func (b *ending) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}
