//go:build go1.25

package lehttp_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// recorded is what a handler behind RequireLeader answers to a GET.
func recorded(l le.Candidate, handle http.HandlerFunc) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	lehttp.RequireLeader(l, nil)(handle).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w
}

// Each request is judged by the leadership under which it was begun: a process that leads again
// serves again.
func TestAProcessThatLeadsAgainServesAgain(t *testing.T) {
	s := &standing{l: leading()}
	h := lehttp.RequireLeader(s, nil)(says("hello"))
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		return w.Code
	}
	for range 3 {
		if code := ask(); code != http.StatusOK {
			t.Errorf("leading: %d", code)
		}
		s.l.over()
		if code := ask(); code != http.StatusServiceUnavailable {
			t.Errorf("the view is over: %d", code)
		}
		s.lead()
	}
}

// No connection is handed over once the view is over.
func TestHijackAsksTheView(t *testing.T) {
	l := leading()
	told := make(chan error, 1)
	res, _ := ask(t, client(t), http.MethodGet, server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.over()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			_ = conn.Close()
		}
		told <- err
	}))).URL, nil)
	if err := <-told; !errors.Is(err, le.ErrNotLeading) || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v, %s", err, res.Status)
	}
}

// An answer that was given up stays so, whatever its view says later, and the client does not take
// it for whole.
func TestALostAnswerStaysLost(t *testing.T) {
	l := leading()
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("the answer was not broken off: %v", r)
		}
	}()
	recorded(l, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
		l.over()
		_, first := io.WriteString(w, "late")
		l.view.Set(time.Now().Add(time.Hour)) // as no campaign's does
		_, again := io.WriteString(w, "later")
		_, _, hijack := c.Hijack()
		for what, err := range map[string]error{"Write": first, "a second Write": again, "Flush": c.Flush(), "Hijack": hijack} {
			if !errors.Is(err, le.ErrNotLeading) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// Early hints are part of an answer: none leave when the view is over, nor a switch of protocols.
func TestNoPartOfAnAnswerLeavesLate(t *testing.T) {
	for _, code := range []int{http.StatusEarlyHints, http.StatusProcessing, http.StatusSwitchingProtocols} {
		l := leading()
		s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</secret>")
			if code != http.StatusSwitchingProtocols {
				l.over()
			}
			w.WriteHeader(code)
			l.over()
		})))
		var early atomic.Int32
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
			early.Add(1)
			return nil
		}})
		res, body := askCtx(ctx, t, client(t), http.MethodGet, s.URL, nil)
		if n := early.Load(); n != 0 || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Link") != "" {
			t.Errorf("%d: %d informational answers, then %s %v %q", code, n, res.Status, res.Header, body)
		}
	}
}

// The first status counts, as without RequireLeader; the server's log has what comes too late.
func TestTheFirstStatusCounts(t *testing.T) {
	var logged logtest.Log
	s := httptest.NewUnstartedServer(lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		if r.URL.Path == "/flushed" {
			_ = http.NewResponseController(w).Flush()
		}
		w.WriteHeader(http.StatusTeapot)
	})))
	s.Config.ErrorLog = log.New(&logged, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	for _, path := range []string{"/", "/flushed"} {
		if res, _ := ask(t, client(t), http.MethodGet, s.URL+path, nil); res.StatusCode != http.StatusCreated {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	s.Close() // the log is complete
	if !strings.Contains(logged.String(), "superfluous") {
		t.Errorf("the log: %q", logged.String())
	}
}

// The header of one request's refusal is not that of another request.
func TestHeadersAreNotMixedUp(t *testing.T) {
	for range 50 { // what is used again is kept for each processor, and sometimes not at all
		l := leading()
		w := httptest.NewRecorder()
		w.Header().Set("Set-Cookie", "secret")
		lehttp.RequireLeader(l, nil)(says("hello")).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		lost := recorded(l, func(http.ResponseWriter, *http.Request) { l.over() })
		if lost.Code != http.StatusServiceUnavailable || lost.Header().Get("Set-Cookie") != "" {
			t.Fatalf("%d %v", lost.Code, lost.Header())
		}
		other := recorded(leading(), func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Own", "1") })
		if other.Code != http.StatusOK || other.Header().Get("Own") != "1" || other.Header().Get("Set-Cookie") != "" {
			t.Fatalf("%d %v", other.Code, other.Header())
		}
	}
}

// The mark of a refusal is RequireLeader's own, however little a handler says, and whatever is
// around it.
func TestNoHandlerMarksARefusal(t *testing.T) {
	const mark = "Leaderelection-Not-Leading"
	for name, say := range map[string]func(http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {},
		"a text":  func(w http.ResponseWriter) { _, _ = io.WriteString(w, "no") },
		"503":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(mark, "refused")
			say(w)
		}))
		h = lehttp.RequireLeader(leading(), nil)(h)
		for around, h := range map[string]http.Handler{"bare": h, "with a timeout": http.TimeoutHandler(h, time.Hour, "")} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if got := w.Result().Header.Get(mark); got != "" {
				t.Errorf("%s, %s: %d marked %q", name, around, w.Code, got)
			}
		}
	}
}

// What was begun for a request ends with it.
func TestTheRequestsContextEndsWithIt(t *testing.T) {
	var kept context.Context
	recorded(leading(), func(_ http.ResponseWriter, r *http.Request) {
		kept = r.Context()
		if kept.Err() != nil || kept.Done() == nil {
			t.Error("it has ended already")
		}
	})
	if !errors.Is(kept.Err(), context.Canceled) || errors.Is(context.Cause(kept), le.ErrNotLeading) {
		t.Errorf("after the request: %v, %v", kept.Err(), context.Cause(kept))
	}
}

// After Hijack the ResponseWriter says so, also when the view is over; and nothing is broken off,
// since the connection is the handler's.
func TestHijackedIsSaidToTheEnd(t *testing.T) {
	l := leading()
	told := make(chan error, 1)
	s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		l.over()
		_, err = io.WriteString(w, "late")
		told <- err
	})))
	_, _ = ask(t, client(t), http.MethodGet, s.URL, nil)
	if err := <-told; !errors.Is(err, http.ErrHijacked) {
		t.Errorf("%v", err)
	}
}

// A standby passes on what its Otherwise says of an answer that was lost, and no refusal of another's.
func TestOtherwiseMarksLostAnswersOnly(t *testing.T) {
	const mark = "Leaderelection-Not-Leading"
	for said, want := range map[string]string{"lost": "lost", "refused": "", "refused; election=x": "refused; election=x"} {
		l := leading()
		l.status = le.Following
		w := httptest.NewRecorder()
		elsewhere := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(mark, said)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		lehttp.RequireLeader(l, &lehttp.RequireOptions{Otherwise: elsewhere})(says("")).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := w.Result().Header.Get(mark); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
	}
}
