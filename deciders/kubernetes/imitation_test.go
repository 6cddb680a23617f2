package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// imitation answers as a kube-apiserver does what this package and client-go ask about
// Leases of the namespace default. It is an http.RoundTripper without sockets, so that it
// works in virtual time. TestImitation holds it to what the real one is held to.
type imitation struct {
	mu      sync.Mutex
	rv      int
	leases  map[string]*coordinationv1.Lease
	changed chan struct{} // closed and made again with each change
	history []change
	oldest  int           // what a watch may start after
	marks   chan struct{} // closed and made again for bookmarks
	ends    chan struct{} // the same, for the end of all watches
	gets    int
	watches int
	writes  int
}

type change struct {
	rv    int
	kind  string
	lease *coordinationv1.Lease
}

func newImitation() *imitation {
	return &imitation{rv: 100, leases: map[string]*coordinationv1.Lease{}, changed: make(chan struct{}), marks: make(chan struct{}), ends: make(chan struct{})}
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

// client is a clientset by way of a transport to the imitation.
func imitationClient(t testing.TB, way http.RoundTripper) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(&rest.Config{
		Host: "http://imitation.invalid", Transport: way, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (s *imitation) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, leasesPath), "/")
	if r.URL.Query().Get("watch") == "true" {
		return s.watch(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status, object := s.answer(r.Method, name, body)
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return response(r, status, io.NopCloser(bytes.NewReader(data))), nil
}

func response(r *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r, ContentLength: -1,
	}
}

func refusal(code int, reason metav1.StatusReason, name string) (int, any) {
	return code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason,
		Message: "imitated", Details: &metav1.StatusDetails{Group: "coordination.k8s.io", Kind: "leases", Name: name},
	}
}

func (s *imitation) answer(method, name string, body []byte) (int, any) {
	sent := &coordinationv1.Lease{}
	if len(body) > 0 {
		if err := json.Unmarshal(body, sent); err != nil {
			return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, name)
		}
	}
	if method == http.MethodPost {
		name = sent.Name
	}
	is := s.leases[name]
	switch method {
	case http.MethodGet:
		s.gets++
		if is != nil {
			return http.StatusOK, is
		}
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, name)
	case http.MethodPost:
		s.writes++
		if is != nil {
			return refusal(http.StatusConflict, metav1.StatusReasonAlreadyExists, name)
		}
		sent.UID = types.UID(fmt.Sprint("uid-", s.rv))
		return http.StatusCreated, s.put("ADDED", sent)
	case http.MethodPut:
		s.writes++
		switch {
		case is == nil:
			return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, name)
		case sent.ResourceVersion != is.ResourceVersion || sent.UID != is.UID:
			return refusal(http.StatusConflict, metav1.StatusReasonConflict, name)
		}
		return http.StatusOK, s.put("MODIFIED", sent)
	case http.MethodDelete:
		if is == nil {
			return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, name)
		}
		s.put("DELETED", is.DeepCopy())
		delete(s.leases, name)
		return http.StatusOK, is
	}
	return refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, name)
}

func (s *imitation) put(kind string, l *coordinationv1.Lease) *coordinationv1.Lease {
	s.rv++
	l = l.DeepCopy()
	l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	l.Namespace, l.ResourceVersion = "default", strconv.Itoa(s.rv)
	s.leases[l.Name] = l
	s.history = append(s.history, change{s.rv, kind, l})
	close(s.changed)
	s.changed = make(chan struct{})
	return l
}

// watch streams what happens, until the request's ctx ends.
func (s *imitation) watch(r *http.Request) (*http.Response, error) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	after, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	s.watches++
	var first []change
	switch is := s.leases[name]; {
	case after == 0 && is != nil:
		first = []change{{s.rv, "ADDED", is}}
		after = s.rv
	case after == 0:
		after = s.rv
	case after < s.oldest:
		s.mu.Unlock()
		code, status := refusal(http.StatusGone, metav1.StatusReasonExpired, name)
		event, err := json.Marshal(map[string]any{"type": "ERROR", "object": status})
		_ = code // a watch says so in the stream
		return response(r, http.StatusOK, io.NopCloser(bytes.NewReader(event))), err
	}
	s.mu.Unlock()
	out, in := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
	go func() {
		encoder := json.NewEncoder(in)
		for {
			s.mu.Lock()
			news, changed, marks, ends := first, s.changed, s.marks, s.ends
			first = nil
			for _, c := range s.history {
				if c.rv > after && c.lease.Name == name {
					news = append(news, c)
				}
			}
			s.mu.Unlock()
			for _, c := range news {
				after = max(after, c.rv)
				if encoder.Encode(map[string]any{"type": c.kind, "object": c.lease}) != nil {
					return
				}
			}
			select {
			case <-changed:
			case <-ends:
				_ = in.Close()
				return
			case <-marks:
				s.mu.Lock()
				after = s.rv
				s.mu.Unlock()
				mark := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(after)}}
				if encoder.Encode(map[string]any{"type": "BOOKMARK", "object": mark}) != nil {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}()
	return response(r, http.StatusOK, out), nil
}

// endWatches ends all watches, as an API server does after a while.
func (s *imitation) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ends)
	s.ends = make(chan struct{})
}

// bookmark tells all watches how far they are.
func (s *imitation) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.marks)
	s.marks = make(chan struct{})
}

// lease is a copy of a Lease.
func (s *imitation) lease(name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name].DeepCopy()
}
