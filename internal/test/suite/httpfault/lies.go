package httpfault

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   []byte
	// broken ends the connection after the body, which was to be longer.
	broken bool
}

// Lie is an answer of success by something that did not do what it was asked: a
// sink, a portal, a cache, a broken proxy.
type Lie struct {
	Name string
	// Replay says that it repeats what the server once said. To a read that may
	// be a true answer, though a late one.
	Replay bool

	// answer makes it up. Body is the request's, and past is what the server
	// said to requests of this kind, oldest first.
	answer func(r *http.Request, body []byte, past []reply) reply
}

// Lies are all that there are. None may ever count as written, or as empty.
func Lies() []Lie {
	page := []byte("<!DOCTYPE html><html><head><title>Welcome</title></head><body>Please log in to the network.</body></html>")
	const foreign, weak = `"0123456789abcdef0123456789abcdef"`, `W/"5f3-61e"`
	return []Lie{
		{Name: "Empty200", answer: fixed(http.StatusOK, "", nil)},
		{Name: "Empty201", answer: fixed(http.StatusCreated, "", nil)},
		{Name: "Empty204", answer: fixed(http.StatusNoContent, "", nil)},
		{Name: "Accepted202", answer: fixed(http.StatusAccepted, "application/json", []byte("{}"))},
		{Name: "Braces200", answer: fixed(http.StatusOK, "application/x-amz-json-1.0", []byte("{}"))},
		{Name: "Braces201", answer: fixed(http.StatusCreated, "application/json; charset=UTF-8", []byte("{}"))},
		{Name: "Page200", answer: fixed(http.StatusOK, "text/html", page)},
		{Name: "Page201", answer: fixed(http.StatusCreated, "text/html", page)},
		{Name: "PageWeakETag200", answer: fixed(http.StatusOK, "text/html", page, weak)},
		{Name: "PageWeakETag201", answer: fixed(http.StatusCreated, "text/html", page, weak)},
		{Name: "ForeignETag200", answer: fixed(http.StatusOK, "", nil, foreign)},
		{Name: "ForeignETag201", answer: fixed(http.StatusCreated, "", nil, foreign)},
		{Name: "BracesForeignETag200", answer: fixed(http.StatusOK, "application/json", []byte("{}"), foreign)},
		{Name: "WeakMD5", answer: func(_ *http.Request, body []byte, _ []reply) reply {
			return reply{status: http.StatusOK, body: page}.with("ETag", fmt.Sprintf(`W/"%x"`, md5.Sum(body)))
		}},
		{Name: "Echo200", answer: echo(http.StatusOK, foreign)},
		{Name: "Echo201", answer: echo(http.StatusCreated, foreign)},
		{Name: "Redirect302", answer: redirect(http.StatusFound)},
		{Name: "Redirect307", answer: redirect(http.StatusTemporaryRedirect)},
		{Name: "Redirect301", answer: redirect(http.StatusMovedPermanently)},
		{Name: "RedirectNowhere", answer: fixed(http.StatusPermanentRedirect, "text/html", page)},
		{Name: "ReplayFirst", Replay: true, answer: replay(func(past []reply) reply { return past[0] })},
		{Name: "ReplayLast", Replay: true, answer: replay(last)},
		{Name: "ReplayFirstSuccess", Replay: true, answer: replay(firstSuccess)},
		{Name: "ReplayWithoutIDs", answer: replay(func(past []reply) reply {
			return last(past).without("request-id", "requestid", "x-amz-id", "uploadid", "crc32")
		}), Replay: true},
		{Name: "ReplayWithoutHeaders", answer: replay(func(past []reply) reply { return reply{status: last(past).status, body: last(past).body} }), Replay: true},
		{Name: "OldBodyNewestHeaders", Replay: true, answer: replay(func(past []reply) reply {
			a := last(past).without("content-length", "transfer-encoding")
			a.body = firstSuccess(past).body
			return a
		})},
		{Name: "OldAnswerNewestETag", Replay: true, answer: replay(func(past []reply) reply {
			return firstSuccess(past).with("ETag", last(past).header.Get("ETag"))
		})},
		{Name: "Truncated", Replay: true, answer: replay(func(past []reply) reply {
			a := last(past).without("content-length")
			a.body = a.body[:len(a.body)/2]
			return a
		})},
		{Name: "CutOff", Replay: true, answer: replay(func(past []reply) reply {
			a := last(past)
			a.body, a.broken = a.body[:len(a.body)/2], len(a.body) > 0
			return a
		})},
	}
}

func fixed(status int, kind string, body []byte, etag ...string) func(*http.Request, []byte, []reply) reply {
	return func(*http.Request, []byte, []reply) reply {
		a := reply{status: status, body: body}
		if kind != "" {
			a = a.with("Content-Type", kind)
		}
		for _, e := range etag {
			a = a.with("ETag", e).with("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		}
		return a
	}
}

// echo sends back what was sent, as servers for trying things out do.
func echo(status int, etag string) func(*http.Request, []byte, []reply) reply {
	return func(r *http.Request, body []byte, _ []reply) reply {
		a := reply{status: status, header: r.Header, body: body}
		return a.without("if-match", "if-none-match", "content-length", "accept-encoding").with("ETag", etag)
	}
}

// portal is where redirects lead to.
const portal = "portal.invalid"

func redirect(status int) func(*http.Request, []byte, []reply) reply {
	return func(r *http.Request, _ []byte, _ []reply) reply {
		if r.URL.Host == portal {
			return reply{status: http.StatusOK, body: []byte("{}")}.with("ETag", `"moved"`)
		}
		return reply{status: status}.with("Location", "https://"+portal+"/")
	}
}

func replay(choose func([]reply) reply) func(*http.Request, []byte, []reply) reply {
	return func(_ *http.Request, _ []byte, past []reply) reply {
		if len(past) == 0 {
			return reply{status: http.StatusOK}
		}
		return choose(past)
	}
}

func last(past []reply) reply { return past[len(past)-1] }

func firstSuccess(past []reply) reply {
	for _, a := range past {
		if a.status < 300 {
			return a
		}
	}
	return past[0]
}

// with returns a copy that has a header.
func (a reply) with(name, value string) reply {
	if a.header = a.header.Clone(); a.header == nil {
		a.header = http.Header{}
	}
	if value != "" {
		a.header.Set(name, value)
	}
	return a
}

// without returns a copy that lacks the headers with one of these in their names.
func (a reply) without(parts ...string) reply {
	kept := http.Header{}
	for name, values := range a.header {
		if !slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(strings.ToLower(name), p) }) {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	a.header = kept
	return a
}

// Liar is a http.RoundTripper that hands requests on to Next, and remembers the
// answers; when told to, it lies in their place.
type Liar struct {
	Next http.RoundTripper
	// About says which requests are lied about; nil: all.
	About func(*http.Request) bool

	mu   sync.Mutex
	lie  *Lie
	past map[string][]reply
	told int
}

// Tell has it lie from now on; nil: be honest again.
func (l *Liar) Tell(lie *Lie) { l.mu.Lock(); defer l.mu.Unlock(); l.lie, l.told = lie, 0 }

// Told is how many lies there were since Tell.
func (l *Liar) Told() int { l.mu.Lock(); defer l.mu.Unlock(); return l.told }

// kind is what requests have in common whose answers can be mistaken for one
// another's.
func kind(r *http.Request) string {
	q := r.URL.Query()
	return strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("X-Amz-Target"), q.Get("comp"), q.Get("restype")}, " ")
}

// RoundTrip implements http.RoundTripper.
func (l *Liar) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	lie, past := l.lie, l.past[kind(r)]
	if lie != nil && (l.About == nil || l.About(r) || r.URL.Host == portal) {
		l.told++
		l.mu.Unlock()
		return l.invent(r, lie, past)
	}
	l.mu.Unlock()
	a, err := l.Next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return nil, err
	}
	a.Body = io.NopCloser(bytes.NewReader(body))
	if lie == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.past == nil {
			l.past = map[string][]reply{}
		}
		l.past[kind(r)] = append(past, reply{status: a.StatusCode, header: a.Header.Clone(), body: body})
	}
	return a, nil
}

func (l *Liar) invent(r *http.Request, lie *Lie, past []reply) (*http.Response, error) {
	sent, err := sent(r)
	if err != nil {
		return nil, err
	}
	a := lie.answer(r, sent, past).with("", "")
	body := io.Reader(bytes.NewReader(a.body))
	length := int64(len(a.body))
	if a.broken {
		body, length = io.MultiReader(body, broken{}), 2*length+1
	}
	if r.Method == http.MethodHead {
		body = http.NoBody
	}
	if a.header.Get("Content-Length") == "" || a.broken {
		a.header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	return &http.Response{
		StatusCode: a.status, Status: strconv.Itoa(a.status) + " " + http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(body), ContentLength: length, Request: r,
	}, nil
}

// broken is the end of a connection.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
