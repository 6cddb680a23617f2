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
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
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
