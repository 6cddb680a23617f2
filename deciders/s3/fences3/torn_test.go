package fences3_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/s3/fences3"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// A server may put together the answer to a HEAD from two versions of the object:
// versitygw reads each piece of metadata, and then the ETag, by the object's name,
// and a new version may come in between. The metadata that one judges by is then
// older than the version that one's write is conditional on.
func TestLookOfTwoVersions(t *testing.T) {
	for server, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"ETags of content": func(rt http.RoundTripper) http.RoundTripper { return rt },
		"other ETags":      func(rt http.RoundTripper) http.RoundTripper { return otherETags{rt} },
	} {
		o := &fences3.Options{OpaqueETags: server == "other ETags"}
		url := fakes3.Serve(t)
		create(t, url)
		for what, older := range map[string][]string{
			"all metadata": {"Fencingtoken", "Fencingwrite", "Fencingsum"},
			"its token":    {"Fencingtoken"},
			"its write":    {"Fencingwrite"},
			"its sum":      {"Fencingsum"},
			"token, write": {"Fencingtoken", "Fencingwrite"},
			"token, sum":   {"Fencingtoken", "Fencingsum"},
			"ETag":         {""},
		} {
			for first, begin := range map[string]func(one) error{
				"fenced":     func(o one) error { return o.Put(t.Context(), fencetest.Orders(1), "first fencing(orders:1)") },
				"not fenced": func(o one) error { return o.Plain(t.Context(), "first", nil) },
			} {
				for skip := range 2 { // a second look may be torn, too, if one is made
					name := fmt.Sprintf("%s, %s of the older, which was %s, after %d looks", server, what, first, skip)
					wire := &torn{RoundTripper: wrap(transport(t)), skip: skip, older: older}
					old, fresh := one{client(url, wire, quick()), name, o}, one{client(url, wrap(transport(t)), quick()), name, o}
					if err := begin(fresh); err != nil {
						t.Fatal(err)
					}
					wire.within = func() {
						if err := fresh.Put(t.Context(), fencetest.Orders(2), "new leader fencing(orders:2)"); err != nil {
							t.Error(err)
						}
					}
					want, holds := fence.ErrStale, "new leader fencing(orders:2)"
					err := old.Put(t.Context(), fencetest.Orders(1), "old leader fencing(orders:1)")
					if wire.within != nil { // one look was enough
						want, holds = nil, "old leader fencing(orders:1)"
					}
					if !errors.Is(err, want) {
						t.Errorf("%s: %v", name, err)
					}
					if content, _, err := fresh.Read(t.Context()); content != holds || err != nil {
						t.Errorf("%s: it holds %q, %v", name, content, err)
					}
				}
			}
		}
	}
}

// Where every answer is of two versions, nothing is written, and the error says why.
func TestLooksOfTwoVersionsOnly(t *testing.T) {
	url := fakes3.Serve(t)
	create(t, url)
	wire := &torn{RoundTripper: transport(t), older: []string{"Fencingtoken"}}
	old, fresh := one{client(url, wire, quick()), "k", nil}, one{client(url, transport(t), quick()), "k", nil}
	n := uint64(1)
	var again func()
	again = func() {
		n++
		token := fencetest.Orders(n)
		if err := fresh.Put(t.Context(), token, fmt.Sprintf("fencing(%v)", token)); err != nil {
			t.Error(err)
		}
		wire.within = again
	}
	again()
	err := old.Put(t.Context(), fencetest.Orders(1000), "fencing(orders:1000)")
	if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "two versions") || !strings.Contains(err.Error(), `object "k"`) {
		t.Errorf("%v", err)
	}
	if content, _, err := fresh.Read(t.Context()); content != fmt.Sprintf("fencing(orders:%d)", n) || err != nil {
		t.Errorf("it holds %q, %v", content, err)
	}
}

// A look that its metadata prove costs one request, and another two.
func TestLooks(t *testing.T) {
	url := fakes3.Serve(t)
	create(t, url)
	for name, c := range map[string]struct {
		wrap         func(http.RoundTripper) http.RoundTripper
		first, later int64
	}{
		"ETags of content": {func(rt http.RoundTripper) http.RoundTripper { return rt }, 1, 1},
		"other ETags":      {func(rt http.RoundTripper) http.RoundTripper { return otherETags{rt} }, 3, 4}, // two of them prove the write
	} {
		count := &counting{RoundTripper: c.wrap(transport(t))}
		o := one{client(url, count, quick()), name, &fences3.Options{OpaqueETags: name == "other ETags"}}
		for n := range uint64(3) {
			token := fencetest.Orders(1 + n)
			if err := o.Put(t.Context(), token, fmt.Sprintf("fencing(%v)", token)); err != nil {
				t.Fatal(err)
			}
			want := c.later
			if n == 0 {
				want = c.first
			}
			if got := count.heads.Swap(0); got != want {
				t.Errorf("%s, write %d: %d looks, want %d", name, n+1, got, want)
			}
		}
	}
}

type counting struct {
	http.RoundTripper
	heads atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodHead {
		c.heads.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// torn is the network of a server one of whose answers to a HEAD is of two versions,
// between which within was called: the metadata named in older, and the ETag for an
// empty name, are of the first, and all else of the second.
type torn struct {
	http.RoundTripper
	skip   int // so many are answered rightly before that
	within func()
	older  []string
}

func (s *torn) RoundTrip(r *http.Request) (*http.Response, error) {
	within := s.within
	if r.Method != http.MethodHead || within == nil {
		return s.RoundTripper.RoundTrip(r)
	}
	if s.skip > 0 {
		s.skip--
		return s.RoundTripper.RoundTrip(r)
	}
	s.within = nil
	before, err := s.RoundTripper.RoundTrip(r.Clone(r.Context()))
	if err != nil {
		return nil, err
	}
	before.Body.Close()
	within()
	after, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	for _, name := range s.older {
		if name = "X-Amz-Meta-" + name; name == "X-Amz-Meta-" {
			name = "Etag"
		}
		if v, ok := before.Header[name]; ok {
			after.Header[name] = v
		} else {
			delete(after.Header, name)
		}
	}
	return after, nil
}

// otherETags is the network of a server whose ETags are no MD5s, though they look
// like some.
type otherETags struct{ http.RoundTripper }

func (o otherETags) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if m := r.Header.Get("If-Match"); m != "" {
		r.Header.Set("If-Match", reversed(m))
	}
	a, err := o.RoundTripper.RoundTrip(r)
	if err == nil && a.Header.Get("Etag") != "" {
		a.Header.Set("Etag", reversed(a.Header.Get("Etag")))
	}
	return a, err
}

func reversed(etag string) string {
	b := []byte(etag)
	slices.Reverse(b)
	return string(b)
}
