package lehttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// kept is a request's body, and whether it can be sent again.
type kept struct {
	bytes []byte // all of it, if whole
	whole bool
	from  io.Reader // the client's body, streamed; if not whole

	present bool      // the request's ctx ends when the client goes away
	came    time.Time // when the request came

	mu    sync.Mutex
	read  bool    // the beginning of from is gone
	fault error   // the error of reading from, if it was not io.EOF
	last  *stream // the body of the latest attempt
}

// keep prepares the body of out so that it can be sent more than once, if possible. Present says
// that out's ctx ends when the client goes away, even while its body has not been read.
func (t *sender) keep(out *http.Request, present bool) (*kept, *refusal) {
	k := &kept{came: time.Now()}
	defer func() { k.present = present || k.whole }() // net/http looks at the connection when the body has been read
	switch n := out.ContentLength; {
	case out.Body == nil || out.Body == http.NoBody:
		k.whole = true
	case n > 0 && n <= t.o.KeepBody && out.Header.Get("Expect") == "":
		k.bytes, k.whole = make([]byte, n), true
		if _, err := io.ReadFull(out.Body, k.bytes); err != nil {
			return nil, bodyRefusal(err)
		}
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(k.bytes)), nil }
	default:
		k.from = out.Body
	}
	return k, nil
}

// bodyRefusal answers a client whose body cannot be read.
func bodyRefusal(err error) *refusal {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &refusal{status: http.StatusRequestEntityTooLarge, why: "the request's body is too large", detail: err.Error()}
	}
	return &refusal{status: http.StatusBadRequest, why: "the request's body broke off", detail: err.Error()}
}

// replayable reports whether the body can be sent from its beginning. If so, the attempt before
// can no longer read from it.
func (k *kept) replayable() bool {
	if k.whole {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read {
		return false
	}
	if k.last != nil {
		k.last.over = true
	}
	return true
}

// timely reports whether the request may still be begun. If the client may have gone without a
// sign, the request must be new.
func (k *kept) timely() bool { return k.present || time.Since(k.came) < grace }

// failure returns the error of reading the client's body, or nil.
func (k *kept) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

// next returns a copy of out for the next attempt. The attempt before may still be using its copy.
func (k *kept) next(out *http.Request) *http.Request {
	next := out.Clone(out.Context())
	switch {
	case next.GetBody != nil:
		next.Body, _ = next.GetBody()
	case k.from != nil:
		s := &stream{k: k}
		k.mu.Lock()
		k.last = s
		k.mu.Unlock()
		next.Body = s
	}
	return next
}

// home returns the body for a handler of this process.
func (k *kept) home() io.ReadCloser {
	switch {
	case k.from != nil:
		return io.NopCloser(k.from)
	case len(k.bytes) > 0:
		return io.NopCloser(bytes.NewReader(k.bytes))
	}
	return http.NoBody
}

// stream is a streamed body as one attempt sees it.
type stream struct {
	k    *kept
	over bool // another attempt has begun; under k.mu
}

var errOver = errors.New("leaderelection: the request is being sent elsewhere")

func (s *stream) Read(p []byte) (int, error) {
	k := s.k
	k.mu.Lock()
	if s.over {
		k.mu.Unlock()
		return 0, errOver
	}
	k.read = true
	k.mu.Unlock()
	n, err := k.from.Read(p)
	if err != nil && err != io.EOF {
		k.mu.Lock()
		k.fault = err
		k.mu.Unlock()
	}
	return n, err
}

// Close does nothing. A failed attempt closes its body, but the next attempt may need the client's
// body. The ReverseProxy closes that in the end.
func (s *stream) Close() error { return nil }
