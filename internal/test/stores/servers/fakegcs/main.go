// Command fakegcs is an emulator of Google Cloud Storage, for tests:
// fake-gcs-server, with its objects in memory. It is in a module of servers, so that
// nobody who imports the library meets the emulator.
//
//	fakegcs bucket...
//
// It makes the buckets, prints the address that it serves HTTP on as its first
// line, and goes on until it is killed.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("fakegcs: ", err)
	}
}

func run(buckets []string) error {
	handler, err := Handler(buckets...)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.Serve(l)
}

// Handler returns the emulator with these buckets, each empty. For a
// testing/synctest bubble make it there.
func Handler(buckets ...string) (http.Handler, error) {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, Writer: io.Discard})
	if err != nil {
		return nil, err
	}
	for _, b := range buckets {
		server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: b})
	}
	return &paced{writing: make(chan struct{}, 1), next: server.HTTPHandler()}, nil
}

// paced lets one write happen at a time, and some time pass before the next. The
// emulator's generations are the microsecond of the write: two writes in one
// microsecond would be taken for the same generation.
type paced struct {
	writing chan struct{} // a lock; in virtual time a mutex would stop the clock
	last    time.Time     // when the last write began
	next    http.Handler
}

func (p *paced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		p.next.ServeHTTP(w, r)
		return
	}
	// A client that is slow, or gone, must not keep the others from writing.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.writing <- struct{}{}
	defer func() { <-p.writing }()
	for time.Since(p.last) < 2*time.Microsecond {
		time.Sleep(2 * time.Microsecond)
	}
	p.last = time.Now()
	p.next.ServeHTTP(w, r)
}
