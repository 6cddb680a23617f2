package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
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

// imitated is an election on an imitation.
func imitated(t testing.TB) (*imitation, *kubernetes.Decider) {
	t.Helper()
	s := newImitation()
	return s, decider(imitationClient(t, s), "one")
}

// ServeHTTP makes it a server.
func (s *imitation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := s.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer a.Body.Close()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.StatusCode)
	_, _ = io.Copy(w, a.Body)
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

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
	switch is := s.leases[name]; {
	case after == 0 && is != nil: // it begins with what is there
		after, _ = strconv.Atoi(is.ResourceVersion)
		after--
	case after == 0:
		after = s.rv
	case after < s.oldest:
		s.mu.Unlock()
		_, status := refusal(http.StatusGone, metav1.StatusReasonExpired, name) // which a watch says in the stream
		event, err := json.Marshal(map[string]any{"type": "ERROR", "object": status})
		return response(r, http.StatusOK, io.NopCloser(bytes.NewReader(event))), err
	}
	s.mu.Unlock()
	out, in := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
	go func() {
		encoder := json.NewEncoder(in)
		for {
			s.mu.Lock()
			var news []change
			changed, marks, ends := s.changed, s.marks, s.ends
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

// Nothing that answers in the API server's place with a success is believed.
func TestLies(t *testing.T) {
	overhttp.Disbelieves(t, overhttp.Store{
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			return decider(imitationClient(t, c.Transport), "one")
		},
		Writes: func(r *http.Request) bool { return r.Method != http.MethodGet },
	}, newImitation())
}

// twisted changes what the API server answers to PUT.
func twisted(next http.RoundTripper, twist func(l *coordinationv1.Lease)) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		a, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPut {
			return a, err
		}
		var l coordinationv1.Lease
		if err := json.NewDecoder(a.Body).Decode(&l); err != nil {
			return nil, err
		}
		twist(&l)
		data, err := json.Marshal(&l)
		a.Body = io.NopCloser(bytes.NewReader(data))
		return a, err
	}
}

// Only an answer that bears the very thing that was written is a success.
func TestAnswersOfOtherThings(t *testing.T) {
	for name, twist := range map[string]func(l *coordinationv1.Lease){
		"another name":         func(l *coordinationv1.Lease) { l.Name = "two" },
		"another namespace":    func(l *coordinationv1.Lease) { l.Namespace = "other" },
		"another kind":         func(l *coordinationv1.Lease) { l.Kind = "ConfigMap" },
		"another object":       func(l *coordinationv1.Lease) { l.UID = "other" },
		"no uid":               func(l *coordinationv1.Lease) { l.UID = "" },
		"no version":           func(l *coordinationv1.Lease) { l.ResourceVersion = "" },
		"a version in words":   func(l *coordinationv1.Lease) { l.ResourceVersion = "new" },
		"the version it was":   func(l *coordinationv1.Lease) { l.ResourceVersion = "101" },
		"an older version":     func(l *coordinationv1.Lease) { l.ResourceVersion = "7" },
		"another record":       func(l *coordinationv1.Lease) { l.Annotations["leaderelection/record"] += " " },
		"written over another": func(l *coordinationv1.Lease) { l.Annotations["leaderelection/written"] += " " },
		"no annotations":       func(l *coordinationv1.Lease) { l.Annotations = nil },
		"another holder":       func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ref("x") },
		"a shorter lease":      func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ref(int32(1)) },
		"fewer transitions":    func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil },
		"not renewed":          func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newImitation()
			token := feedtest.Write(t, decider(imitationClient(t, s), "one"), 1, nil)
			d := decider(imitationClient(t, twisted(s, twist)), "one")
			feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "lease default/one", "proxy")
		})
	}
}

// What a watch tells that is old, or another's, is not passed on; what is none of its
// events ends the feed; and one that ends at once is not begun again and again.
func TestWatchThatLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		honest := decider(imitationClient(t, s), "one")
		token := feedtest.Write(t, honest, 1, nil)
		first, _ := json.Marshal(s.lease("one"))
		feedtest.Write(t, honest, 2, token)
		second, _ := json.Marshal(s.lease("one"))
		event := func(kind string, object []byte) string {
			return `{"type":"` + kind + `","object":` + string(object) + `}`
		}
		status := `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"it hurts"}`
		for name, c := range map[string]struct {
			events []string
			words  string
		}{
			"nothing":            {nil, "as soon as it had begun"},
			"old things":         {[]string{event("ADDED", first), event("MODIFIED", second), event("DELETED", first)}, "as soon as it had begun"},
			"another's":          {[]string{event("MODIFIED", []byte(strings.ReplaceAll(string(second), `"one"`, `"two"`)))}, "proxy"},
			"another kind":       {[]string{event("MODIFIED", []byte(strings.ReplaceAll(string(second), `"Lease"`, `"Pod"`)))}, "proxy"},
			"an unknown event":   {[]string{event("SHOUTED", second)}, "proxy"},
			"a bare bookmark":    {[]string{event("BOOKMARK", []byte("{}"))}, "proxy"},
			"a page":             {[]string{"<html></html>"}, "proxy"},
			"half an event":      {[]string{event("MODIFIED", second)[:100]}, "broke off"},
			"an error":           {[]string{event("ERROR", []byte(status))}, "it hurts"},
			"an error in itself": {[]string{event("ERROR", []byte("{}"))}, "proxy"},
			"gone from the start": {[]string{event("ERROR", []byte(strings.ReplaceAll(strings.ReplaceAll(status, "500", "410"), "InternalError", "Expired")))},
				"it hurts"},
			"gone, however often it is read": {[]string{event("ADDED", second), event("ERROR", []byte(strings.ReplaceAll(strings.ReplaceAll(status, "500", "410"), "InternalError", "Expired")))},
				"it hurts"},
			"without end": {[]string{`{"type":"` + strings.Repeat("x", 3<<20)}, "broke off"},
		} {
			d := decider(imitationClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.URL.Query().Get("watch") != "true" {
					return s.RoundTrip(r)
				}
				return response(r, http.StatusOK, io.NopCloser(strings.NewReader(strings.Join(c.events, "\n")))), nil
			})), "one")
			n := 0
			for e, err := range d.Changes(t.Context()) {
				if n++; n > 2 {
					break
				}
				if n == 1 {
					if err != nil || e.ElectionNumber != 2 {
						t.Errorf("%s: first %+v, %v", name, e, err)
					}
					continue
				}
				if e != nil {
					t.Errorf("%s: it tells of %+v", name, e)
				}
				feedtest.Passing(t, err, c.words)
			}
			if n != 2 {
				t.Errorf("%s: %d entries and errors", name, n)
			}
		}
	})
}

// A watch that its server has ended is resumed where it was, by bookmarks as well; if
// that is forgotten the Lease is read again. Nothing is missed.
func TestWatchIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := imitated(t)
		token := feedtest.Write(t, d, 1, nil)
		feed := feedtest.Follow(t, d)
		expect := func(number uint64) {
			t.Helper()
			if n := feedtest.Next(t, feed); n.Err != nil || uint64(n.ElectionNumber) != number {
				t.Fatalf("the feed yields %+v, want %d", n, number)
			}
		}
		requests := func(gets, watches int) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.gets != gets || s.watches != watches {
				t.Errorf("%d reads and %d watches, want %d and %d", s.gets, s.watches, gets, watches)
			}
		}
		expect(1)
		time.Sleep(time.Minute)
		token = feedtest.Write(t, d, 2, token)
		expect(2)
		requests(1, 1)

		s.endWatches()
		synctest.Wait()
		requests(1, 2)
		token = feedtest.Write(t, d, 3, token)
		expect(3)

		// Other objects change, and a bookmark tells how far the watch is.
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.rv += 1000
		s.mu.Unlock()
		s.bookmark()
		synctest.Wait()
		s.mu.Lock()
		s.oldest = s.rv - 10
		s.mu.Unlock()
		s.endWatches()
		synctest.Wait()
		requests(1, 3)
		token = feedtest.Write(t, d, 4, token)
		expect(4)

		// The server has forgotten where the watch was: written meanwhile, and compacted.
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.rv += 1000
		s.oldest = s.rv
		s.mu.Unlock()
		s.endWatches()
		synctest.Wait()
		requests(2, 5) // one that was refused, and one from what was read
		expect(4)
		feedtest.Write(t, d, 5, token)
		expect(5)
	})
}

// answers is a transport that answers everything with one Status, or with a page if that has no reason.
func answers(status metav1.Status, asked *int) roundTrip {
	status.TypeMeta, status.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, "Failure"
	return func(r *http.Request) (*http.Response, error) {
		*asked++
		data, err := json.Marshal(&status)
		if status.Reason == "" {
			data = []byte("<html>no</html>")
		}
		a := response(r, int(status.Code), io.NopCloser(bytes.NewReader(data)))
		if status.Reason == "" {
			a.Header.Set("Content-Type", "text/html")
		}
		a.Header.Set("Retry-After", "1")
		return a, err
	}
}

// Refusals are judged by who makes them, and no request is made twice: the campaign retries, which
// client-go would do ten times, silently. What the API server says is told as it is; advice is given
// only if that is the cause for sure.
func TestRefusalsByOthers(t *testing.T) {
	const role, short = "bind the candidate's service account", "keep ConnectionParams"
	of := func(name string) *metav1.StatusDetails { return &metav1.StatusDetails{Kind: "leases", Name: name} }
	cause := func(kind metav1.CauseType, field string) *metav1.StatusDetails {
		return &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: kind, Field: field}}}
	}
	for name, c := range map[string]struct {
		status    metav1.Status
		permanent bool
		words     string // besides the server's own
	}{
		"not found, of another": {metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: "imitated", Details: of("two")}, false, ""},
		"not found, by a proxy": {metav1.Status{Code: 404}, false, "proxy"},
		"conflict, by a proxy":  {metav1.Status{Code: 409}, false, "proxy"},
		"forbidden, by a proxy": {metav1.Status{Code: 403}, false, "proxy"},
		// As NewTooManyRequests does; with a Status, client-go ignores the header.
		"too many requests":   {metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 1}}, false, "overloaded"},
		"too many, in plain":  {metav1.Status{Code: 429}, false, "overloaded"},
		"away, in plain":      {metav1.Status{Code: 503}, false, "proxy"},
		"unavailable":         {metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "imitated"}, false, ""},
		"etcd was too slow":   {metav1.Status{Code: 504, Reason: metav1.StatusReasonTimeout, Message: "imitated"}, false, ""},
		"an error of its own": {metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "imitated"}, false, ""},
		"no permission": {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: `leases.coordination.k8s.io "one" is forbidden: User "u" cannot update resource "leases" in API group "coordination.k8s.io" in the namespace "default"`}, true, role},
		"a quota": {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: `leases.coordination.k8s.io "one" is forbidden: exceeded quota: q, requested: count/leases.coordination.k8s.io=1, used: 5, limited: 5`}, true, ""},
		"a webhook": {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `admission webhook "w.example" denied the request: no leases on Fridays`}, true, ""},
		"a policy": {metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid,
			Message: `leases.coordination.k8s.io "one" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too few labels`}, true, ""},
		"a wrong field": {metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: `spec.leaseDurationSeconds: must be greater than 0`,
			Details: cause(metav1.CauseTypeFieldValueInvalid, "spec.leaseDurationSeconds")}, true, ""},
		"too long": {metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: `metadata.annotations: Too long: may not be more than 262144 bytes`,
			Details: cause(metav1.CauseTypeTooLong, "metadata.annotations")}, true, short},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			d := decider(imitationClient(t, answers(c.status, &asked)), "one")
			for doing, err := range map[string]error{"reading": feedtest.ReadError(t, d), "writing": feedtest.WriteError(t, d, 1, nil)} {
				judge := feedtest.Passing
				if c.permanent {
					judge = feedtest.Permanent
				}
				judge(t, err, c.words, c.status.Message, doing+" lease default/one")
				for _, advice := range []string{role, short} {
					if advice != c.words && strings.Contains(err.Error(), advice) {
						t.Errorf("it advises to %q: %v", advice, err)
					}
				}
				if c.permanent && c.words != "" && strings.Index(err.Error(), c.status.Message) > strings.Index(err.Error(), c.words) {
					t.Errorf("the server's words come after the advice: %v", err)
				}
				if c.status.Code == 429 || c.status.Code == 503 && c.status.Reason == "" {
					feedtest.Pauses(t, err, time.Second)
				}
			}
			if asked != 2 {
				t.Errorf("%d requests for two calls", asked)
			}
		})
	}
}

// What a server asks for in Retry-After, of which client-go knows whole seconds alone, is a pause
// if it is a date, a fraction, or very much, too.
func TestPauseThatClientGoDoesNotKnow(t *testing.T) {
	var header string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", header)
		http.Error(w, "too many", http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	d := opened(t, "kubernetes://default/x?kubeconfig="+kubeconfig(t, server.URL))
	for _, c := range []struct {
		header      string
		least, most time.Duration
	}{
		{"20", 20 * time.Second, 20 * time.Second},
		{"20.5", 21 * time.Second, 21 * time.Second},
		{"99999999999999999999", 365 * 24 * time.Hour, math.MaxInt64},
		{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), 59 * time.Minute, time.Hour},
	} {
		header = c.header
		err := feedtest.ReadError(t, d)
		var asked *leaderelection.RetryAfterError
		if !errors.As(err, &asked) || asked.After < c.least || asked.After > c.most {
			t.Errorf("Retry-After: %s: %v", header, err)
		}
	}
	header = "soon"
	if err, asked := feedtest.ReadError(t, d), (*leaderelection.RetryAfterError)(nil); errors.As(err, &asked) {
		t.Errorf("Retry-After: %s: %v", header, err)
	}
}
