//go:build go1.25

package lehttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

func TestRequireLeaderServesOnlyWhileLeading(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, c := range []struct {
			name   string
			adjust func(l *leads)
			serves bool
		}{
			{"leading", func(*leads) {}, true},
			{"draining", func(l *leads) { l.status = le.Draining }, false},
			{"following", func(l *leads) { l.status = le.Following; l.over() }, false},
			{"the view is over and nobody has noticed", func(l *leads) { l.over() }, false},
		} {
			t.Run(method+" "+c.name, func(t *testing.T) {
				l := leading()
				c.adjust(l)
				w := httptest.NewRecorder()
				lehttp.RequireLeader(l, nil)(says("hello")).ServeHTTP(w, httptest.NewRequest(method, "/", nil))
				if c.serves {
					if w.Code != http.StatusOK || w.Body.String() != "hello" {
						t.Errorf("%d %q", w.Code, w.Body)
					}
				} else if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "hello") || w.Header().Get("Retry-After") != "1" {
					t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
				}
			})
		}
	}
}

// A request does not reach its handler when the view is over, even if the Status says otherwise: the
// process may just have been woken up, or its Status is Leading before its View is of that leadership.
func TestRequestAsksTheViewFirst(t *testing.T) {
	l := leading()
	l.over()
	called := false
	h := lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "PURGE"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/", nil))
		if called {
			t.Fatalf("%s: the handler was called under a view that is over", method)
		}
	}
}

// Whatever a handler does, nothing of its answer leaves once the view is over.
func TestAnswerIsThrownAwayWhenLeadershipIsLost(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter, over func()){
		"nothing":    func(w http.ResponseWriter, over func()) { over() },
		"write":      func(w http.ResponseWriter, over func()) { _, _ = io.WriteString(w, "secret"); over() },
		"late write": func(w http.ResponseWriter, over func()) { over(); _, _ = io.WriteString(w, "secret") },
		"header":     func(w http.ResponseWriter, over func()) { w.WriteHeader(http.StatusCreated); over() },
		"large write": func(w http.ResponseWriter, over func()) {
			over()
			_, _ = io.WriteString(w, strings.Repeat("secret", 1000))
		},
		"small and large": func(w http.ResponseWriter, over func()) {
			_, _ = io.WriteString(w, "secret")
			over()
			if _, err := io.WriteString(w, strings.Repeat("secret", 1000)); !errors.Is(err, le.ErrNotLeading) {
				panic(fmt.Sprint("the handler was told ", err))
			}
			_, _ = io.WriteString(w, "secret")
		},
		"flush": func(w http.ResponseWriter, over func()) {
			_, _ = io.WriteString(w, "secret")
			over()
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, le.ErrNotLeading) {
				panic(fmt.Sprint("the handler was told ", err))
			}
		},
		"early hints": func(w http.ResponseWriter, over func()) { over(); w.WriteHeader(http.StatusEarlyHints) },
	} {
		t.Run(name, func(t *testing.T) {
			l := leading()
			h := lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Set-Cookie", "secret=1")
				handle(w, l.over)
			}))
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "7")
				h.ServeHTTP(w, r)
			})
			res, body := ask(t, client(t), http.MethodGet, server(t, outer).URL, nil)
			if res.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "secret") {
				t.Errorf("%d %q", res.StatusCode, body)
			}
			if res.Header.Get("Set-Cookie") != "" || res.Header.Get("X-Request-Id") != "7" || res.Header.Get("Retry-After") == "" {
				t.Errorf("header %v", res.Header)
			}
		})
	}
}

// A part has left already: the client must not take it for the whole.
func TestAnswerIsBrokenOffWhenLeadershipIsLost(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter, l *leads) error{
		"write": func(w http.ResponseWriter, l *leads) error {
			_ = http.NewResponseController(w).Flush()
			l.over()
			_, err := io.WriteString(w, "second")
			return err
		},
		"flush": func(w http.ResponseWriter, l *leads) error {
			_ = http.NewResponseController(w).Flush()
			l.over()
			return http.NewResponseController(w).Flush()
		},
		"end": func(w http.ResponseWriter, l *leads) error {
			_ = http.NewResponseController(w).Flush()
			l.over()
			return le.ErrNotLeading
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := leading()
			told := make(chan error, 1)
			s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "first ")
				told <- handle(w, l)
			})))
			res, err := client(t).Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err == nil || strings.Contains(string(body), "second") {
				t.Errorf("the client takes %q for complete (%v)", body, err)
			}
			if err := <-told; !errors.Is(err, le.ErrNotLeading) {
				t.Errorf("the handler was told %v", err)
			}
		})
	}
}

// An answer that is allowed arrives just as the handler wrote it.
func TestAnswerPassesUnchanged(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	h := lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			for i := 0; i < len(long); i += 100 {
				_, _ = io.WriteString(w, long[i:i+100])
			}
		case "/created":
			w.Header().Set("Location", "/x")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "made")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/trailer":
			w.Header().Set("Trailer", "Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("Sum", "42")
		case "/hints":
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "after")
		}
	}))
	s, c := server(t, h), client(t)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/long": {200, long}, "/created": {201, "made"}, "/empty": {204, ""}, "/trailer": {200, "body"}, "/hints": {200, "after"}, "/none": {200, ""},
	} {
		res, body := ask(t, c, http.MethodGet, s.URL+path, nil)
		if res.StatusCode != want.code || body != want.body {
			t.Errorf("%s: %d, %d bytes", path, res.StatusCode, len(body))
		}
		if path == "/trailer" && res.Trailer.Get("Sum") != "42" {
			t.Errorf("trailer %v", res.Trailer)
		}
		if path == "/created" && (res.Header.Get("Location") != "/x" || res.ContentLength != 4) {
			t.Errorf("header %v", res.Header)
		}
	}
}

// A hijacked connection is closed instead of written to once the view is over.
func TestHijackedConnectionIsGated(t *testing.T) {
	l := leading()
	wrote := make(chan error)
	s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(w, "late"); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("a write after Hijack: %v", err)
		}
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if line == "over\n" {
				l.over()
			}
			_, err = io.WriteString(conn, line)
			wrote <- err
		}
	})))
	conn, err := net.Dial("tcp", address(s))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n")
	r := bufio.NewReader(conn)
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Fatal(line, err)
	}
	fmt.Fprint(conn, "over\n")
	if err := <-wrote; !errors.Is(err, le.ErrNotLeading) {
		t.Errorf("written after the end: %v", err)
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("%q left the process after the end", rest)
	}
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	l := leading()
	l.over()
	l.status = le.Following
	for _, c := range []struct {
		entry le.RaceEntry
		want  string
	}{
		{le.RaceEntry{}, "1"},
		{record(1, "other"), "1"}, // it leads, or soon will
		{vacant(1), "1"},
		{le.RaceEntry{TermExpiry: time.Now().Add(3500 * time.Millisecond)}, "1"},                 // its own, and given up
		{le.RaceEntry{LeaderID: "me", TermExpiry: time.Now().Add(3500 * time.Millisecond)}, "5"}, // its own leadership: to TermExpiry + the default skew
	} {
		l.entry = c.entry
		w := httptest.NewRecorder()
		lehttp.RequireLeader(l, nil)(says("")).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := w.Header().Get("Retry-After"); got != c.want {
			t.Errorf("%+v: Retry-After %q, want %q", c.entry, got, c.want)
		}
	}
}

func TestOtherwise(t *testing.T) {
	l := leading()
	h := lehttp.RequireLeader(l, &lehttp.RequireOptions{Otherwise: says("elsewhere")})(says("here"))
	for _, want := range []string{"here", "elsewhere"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Body.String() != want {
			t.Errorf("%q, want %q", w.Body, want)
		}
		l.status = le.Draining
	}
}

func TestLeader(t *testing.T) {
	l := leading()
	check := func(want int) {
		t.Helper()
		w := httptest.NewRecorder()
		lehttp.Leader(l).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/leader", nil))
		if w.Code != want {
			t.Errorf("%d %q, want %d", w.Code, w.Body, want)
		}
	}
	check(http.StatusOK)
	l.status = le.Draining
	check(http.StatusServiceUnavailable)
	l.status = le.Leading
	l.over()
	check(http.StatusServiceUnavailable)
}

// A handler that keeps its ResponseWriter beyond its return reaches nobody by it.
func TestAnswerKeptByItsHandler(t *testing.T) {
	var kept []http.ResponseWriter
	h := lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, old := range kept {
			old.Header().Set("Kept", "yes")
			old.WriteHeader(http.StatusTeapot)
			if n, err := io.WriteString(old, "kept"); n != 0 || err == nil {
				t.Errorf("a kept answer takes %d bytes, %v", n, err)
			}
			if err := http.NewResponseController(old).Flush(); err == nil {
				t.Error("a kept answer can be flushed")
			}
			if _, _, err := http.NewResponseController(old).Hijack(); err == nil {
				t.Error("a kept answer can be hijacked")
			}
			if err := http.NewResponseController(old).SetWriteDeadline(time.Now()); err == nil {
				t.Error("a kept answer sets deadlines")
			}
		}
		kept = append(kept, w)
		_, _ = io.WriteString(w, "own")
	}))
	for range 100 { // so that answers are made afresh more than once
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusOK || w.Body.String() != "own" || w.Header().Get("Kept") != "" {
			t.Fatalf("%d %q %v", w.Code, w.Body, w.Header())
		}
	}
}
