// Package fakes3 is an S3 server in process, empty and in memory, for tests: buckets,
// objects with their metadata, and conditional writes. Real servers are tested besides.
package fakes3

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Handler returns a new server's handler, for clients without sockets, which takes any
// credentials and wants UsePathStyle.
func Handler() http.Handler { return &server{buckets: map[string]map[string]object{}} }

// Serve serves a Handler on loopback until the test ends, and returns its URL.
func Serve(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(Handler())
	t.Cleanup(s.Close)
	return s.URL
}

type object struct {
	content []byte
	etag    string
	header  http.Header // what was sent with it and comes back
	written time.Time
}

type server struct {
	mu      sync.Mutex // held for no I/O: in virtual time that would stop the clock
	buckets map[string]map[string]object
}

// refusal is an error as S3 answers it.
type refusal struct {
	status int
	Code   string
}

var (
	noSuchBucket = &refusal{http.StatusNotFound, "NoSuchBucket"}
	noSuchKey    = &refusal{http.StatusNotFound, "NoSuchKey"}
	notMet       = &refusal{http.StatusPreconditionFailed, "PreconditionFailed"}
)

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := content(r)
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "IncompleteBody"})
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if key == "" {
		s.serveBucket(w, r, bucket)
		return
	}
	w.Header().Set("X-Amz-Request-Id", "0000000000000000")
	switch r.Method {
	case http.MethodPut:
		o := object{content: body, etag: fmt.Sprintf(`"%x"`, md5.Sum(body)), header: kept(r.Header), written: time.Now()}
		if no := s.put(bucket, key, o, r.Header.Get("If-Match"), r.Header.Get("If-None-Match")); no != nil {
			refuse(w, no)
			return
		}
		w.Header().Set("ETag", o.etag)
	case http.MethodGet, http.MethodHead:
		o, no := s.get(bucket, key)
		if no != nil {
			refuse(w, no)
			return
		}
		for name, values := range o.header {
			w.Header()[name] = values
		}
		w.Header().Set("ETag", o.etag)
		w.Header().Set("Last-Modified", o.written.UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(len(o.content)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(o.content)
		}
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.buckets[bucket], key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, &refusal{http.StatusMethodNotAllowed, "MethodNotAllowed"})
	}
}

// serveBucket makes a bucket, lists one, or takes its settings, which change nothing.
func (s *server) serveBucket(w http.ResponseWriter, r *http.Request, bucket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, there := s.buckets[bucket]
	switch {
	case r.Method == http.MethodPut && r.URL.RawQuery == "":
		s.buckets[bucket] = map[string]object{}
	case !there:
		refuse(w, noSuchBucket)
	case r.Method == http.MethodGet:
		var list struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []struct{ Key string }
		}
		for key := range objects {
			list.Contents = append(list.Contents, struct{ Key string }{key})
		}
		_ = xml.NewEncoder(w).Encode(list)
	}
}

// put writes an object if the conditions are met.
func (s *server) put(bucket, key string, o object, match, noneMatch string) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, there := s.buckets[bucket]
	if !there {
		return noSuchBucket
	}
	old, there := objects[key]
	switch {
	case match != "" && !there:
		return noSuchKey
	case match != "" && strings.Trim(match, `"`) != strings.Trim(old.etag, `"`), noneMatch == "*" && there:
		return notMet
	}
	objects[key] = o
	return nil
}

func (s *server) get(bucket, key string) (object, *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, there := s.buckets[bucket]
	if !there {
		return object{}, noSuchBucket
	}
	o, there := objects[key]
	if !there {
		return object{}, noSuchKey
	}
	return o, nil
}

// kept returns the headers that an object keeps.
func kept(h http.Header) http.Header {
	keep := http.Header{}
	for name, values := range h {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz-Meta-") {
			keep[name] = values
		}
	}
	return keep
}

// content returns what a request carries. The SDK sends pieces if a checksum follows them.
func content(r *http.Request) ([]byte, error) {
	if !strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		return io.ReadAll(r.Body)
	}
	in := bufio.NewReader(r.Body)
	var all bytes.Buffer
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil || n == 0 { // trailers follow
			return all.Bytes(), err
		}
		if _, err := io.CopyN(&all, in, n); err != nil {
			return nil, err
		}
		if _, err := in.Discard(len("\r\n")); err != nil {
			return nil, err
		}
	}
}

func refuse(w http.ResponseWriter, no *refusal) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(no.status)
	fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>said the server</Message></Error>", xml.Header, no.Code)
}
