//go:build go1.25

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestToken(t *testing.T) {
	for _, want := range []fence.Token{
		fencetest.Orders(1), {Election: "s3://bucket/key?x=y", Number: 1 << 62}, {Election: "schön:12", Number: 1<<63 - 1},
	} {
		if got, err := fence.ParseToken(want.String()); got != want || err != nil {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	if _, err := fence.ParseToken(""); !errors.Is(err, fence.ErrNoToken) {
		t.Error(err)
	}
	for _, bad := range []string{"orders", "12", "orders:", "orders:0", "orders:-1", "orders:+1", "orders:01", "orders: 1", "orders:1 ", "orders:0x1",
		"orders:18446744073709551616", "orders:18446744073709551615", "orders:9223372036854775808", "%zz:1", ":", ":7", "orders:1,orders:2", strings.Repeat("x", 2000) + ":1"} {
		if got, err := fence.ParseToken(bad); !errors.Is(err, fence.ErrMalformed) || got != (fence.Token{}) {
			t.Errorf("%.20q: %v, %v", bad, got, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("orders:12")
	f.Add("%2F:1")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := fence.ParseToken(s)
		if err != nil {
			return
		}
		if again, err := fence.ParseToken(token.String()); len(token.String()) <= 1024 && (again != token || err != nil) {
			t.Errorf("%q: %v, %v", s, again, err)
		}
	})
}

func TestGuard(t *testing.T) {
	g := fence.NewGuard("orders", 3)
	for _, c := range []struct {
		token fence.Token
		want  error
	}{
		{fencetest.Orders(2), fence.ErrStale}, {fencetest.Orders(3), nil}, {fencetest.Orders(3), nil}, {fencetest.Orders(5), nil}, {fencetest.Orders(4), fence.ErrStale}, {fencetest.Orders(5), nil},
		{fencetest.Orders(0), fence.ErrNoToken}, {fence.Token{Election: "other", Number: 9}, fence.ErrOtherElection},
	} {
		if err := g.Check(t.Context(), c.token); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.token, err, c.want)
		}
		err := g.Do(t.Context(), c.token, func(context.Context) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("Do %v: %v, want %v", c.token, err, c.want)
		}
	}
	var stale *fence.StaleError
	if err := g.Check(t.Context(), fencetest.Orders(4)); !errors.As(err, &stale) || stale.Greatest != 5 || stale.Token != fencetest.Orders(4) {
		t.Errorf("%v", err)
	}
	if g.Greatest() != 5 {
		t.Error(g.Greatest())
	}
	var zero fence.Guard
	if err := zero.Check(t.Context(), fencetest.Orders(1)); !errors.Is(err, fence.ErrOtherElection) {
		t.Error(err)
	}
}

// A Token that is not a token is never admitted: not by the Guard that has seen it, nor by one
// without an election's name.
func TestNotTokens(t *testing.T) {
	for _, bad := range fencetest.NotTokens() {
		if got, err := fence.ParseToken(bad.String()); !errors.Is(err, fence.ErrMalformed) || got != (fence.Token{}) {
			t.Errorf("ParseToken %v: %v, %v", bad, got, err)
		}
		for _, g := range []*fence.Guard{{}, fence.NewGuard("orders", 0), fence.NewGuard(bad.Election, bad.Number)} {
			was := g.Greatest()
			for name, judge := range map[string]func(context.Context, fence.Token) error{"Check": g.Check, "Peek": g.Peek, "Do": func(ctx context.Context, token fence.Token) error {
				return g.Do(ctx, token, func(context.Context) error { return errors.New("it was called") })
			}} {
				if err := judge(t.Context(), bad); !errors.Is(err, fence.ErrMalformed) || g.Greatest() != was {
					t.Errorf("%s %v: %v, and the greatest is %d", name, bad, err, g.Greatest())
				}
			}
		}
		view := viewtest.New(nil, bad.Number)
		view.Set(time.Now().Add(time.Hour))
		if got, err := (fence.Gate{View: view.TimeView, Election: bad.Election}).Token(); !errors.Is(err, fence.ErrMalformed) || got != (fence.Token{}) {
			t.Errorf("a Gate's %v: %v, %v", bad, got, err)
		}
	}
	gate, _ := fencetest.Lead(t)
	gate.Election = ""
	if _, err := gate.Token(); err == nil || !strings.Contains(err.Error(), "set Gate.Election") {
		t.Errorf("a Gate without an election's name: %v", err)
	}
}

// Whatever the order of arrival, no token is admitted after a greater one, and
// no act of a smaller one runs once a greater one was admitted.
func TestGuardConcurrently(t *testing.T) {
	g := fence.NewGuard("orders", 0)
	var running [65]atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := i/8 + 1; n <= 64; n += 7 {
				before := g.Greatest()
				err := g.Do(t.Context(), fencetest.Orders(uint64(n)), func(context.Context) error {
					running[n].Add(1)
					defer running[n].Add(-1)
					for other := range running {
						if other != n && running[other].Load() > 0 {
							return fmt.Errorf("acts of %d and %d at once", other, n)
						}
					}
					return nil
				})
				if err == nil && le.ElectionNumber(n) < before || err != nil && !errors.Is(err, fence.ErrStale) {
					t.Errorf("%d after %d: %v", n, before, err)
				}
			}
		})
	}
	wg.Wait()
	if g.Greatest() != 64 {
		t.Errorf("%d", g.Greatest())
	}
}

// trip sends a request through a Transport over a handler.
func trip(ctx context.Context, h http.Handler, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://resource.example/", body)
	if err != nil {
		return nil, err
	}
	return (&fence.Transport{Base: handler{h}}).RoundTrip(req)
}

// handler is a RoundTripper without a socket.
type handler struct{ http.Handler }

func (h handler) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestTransportStampsAndGates(t *testing.T) {
	gate, end := fencetest.Lead(t)
	ctx := fence.WithGate(t.Context(), gate)
	token, err := gate.Token()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Header[fence.Header], string(body), err)
	})
	res, err := trip(ctx, h, http.MethodPut, strings.NewReader("payload"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(res.Body); string(got) != "["+token.String()+"]payload<nil>" {
		t.Errorf("%s", got)
	}

	// The view ends while a body is under way: the rest does not leave.
	first, second := strings.NewReader("first"), strings.NewReader("second")
	res, err = trip(ctx, h, http.MethodPut, io.MultiReader(first, readerFunc(func([]byte) (int, error) { end(); return 0, nil }), second))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(res.Body); !strings.Contains(string(got), le.ErrNotLeading.Error()) || strings.Contains(string(got), "second") {
		t.Errorf("%s", got)
	}

	closed := false
	body := struct {
		io.Reader
		io.Closer
	}{second, closerFunc(func() error { closed = true; return nil })}
	if _, err := trip(ctx, h, http.MethodPut, body); !errors.Is(err, le.ErrNotLeading) || !closed || calls != 2 {
		t.Errorf("after the end: %v; body closed: %v, %d calls", err, closed, calls)
	}
	if _, err := trip(t.Context(), h, http.MethodPut, nil); !errors.Is(err, fence.ErrNoGate) {
		t.Errorf("outside any leadership: %v", err)
	}
	inTest := viewtest.New(nil, 0)
	inTest.Set(time.Now().Add(time.Hour))
	if _, err := trip(fence.WithGate(t.Context(), fence.Gate{View: inTest.TimeView}), h, http.MethodPut, nil); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("a view of no leadership: %v", err)
	}
	if calls != 2 {
		t.Errorf("%d requests left", calls)
	}
}

type (
	readerFunc func([]byte) (int, error)
	closerFunc func() error
)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
func (f closerFunc) Close() error               { return f() }

// broken cannot decide.
type broken struct{}

func (broken) Check(context.Context, fence.Token) error        { return errors.New("the database is gone") }
func (b broken) Peek(ctx context.Context, t fence.Token) error { return b.Check(ctx, t) }

func TestRequire(t *testing.T) {
	for _, c := range []struct {
		name    string
		checker fence.Checker
		method  string
		tokens  []string
		options *fence.RequireOptions
		status  int
		refused error
	}{
		{"admitted", nil, "PUT", []string{"orders:5"}, nil, 200, nil},
		{"greater", nil, "PUT", []string{"orders:6"}, nil, 200, nil},
		{"stale", nil, "PUT", []string{"orders:4"}, nil, 409, fence.ErrStale},
		{"a stale read", nil, "GET", []string{"orders:4"}, nil, 409, fence.ErrStale},
		{"missing", nil, "PUT", nil, nil, 428, fence.ErrNoToken},
		{"empty", nil, "PUT", []string{""}, nil, 428, fence.ErrNoToken},
		{"a read without", nil, "GET", nil, nil, 200, nil},
		{"a read without, where it needs one", nil, "GET", nil, &fence.RequireOptions{Reads: true}, 428, fence.ErrNoToken},
		{"malformed", nil, "PUT", []string{"five"}, nil, 400, fence.ErrMalformed},
		{"two", nil, "PUT", []string{"orders:5", "orders:6"}, nil, 400, fence.ErrMalformed},
		{"another election's", nil, "PUT", []string{"users:9"}, nil, 400, fence.ErrOtherElection},
		{"no decision", broken{}, "PUT", []string{"orders:5"}, nil, 503, nil},
		{"no decision on a read", broken{}, "GET", []string{"orders:5"}, nil, 503, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.checker == nil {
				c.checker = fence.NewGuard("orders", 5)
			}
			called := false
			h := fence.Require(c.checker, c.options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called = true
				if got, ok := fence.TokenFrom(r.Context()); ok != (len(c.tokens) > 0) || ok && got.String() != c.tokens[0] {
					t.Errorf("TokenFrom: %v, %v", got, ok)
				}
			}))
			r := httptest.NewRequest(c.method, "/", nil)
			r.Header[fence.Header] = c.tokens
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.status || called != (c.status == 200) {
				t.Errorf("%d %s, called: %v", w.Code, w.Body, called)
			}
			if err := fence.Refused(w.Result()); err != c.refused {
				t.Errorf("Refused: %v, want %v", err, c.refused)
			}
			if strings.Contains(w.Body.String(), "database") {
				t.Errorf("the client reads %s", w.Body)
			}
		})
	}
	if err := fence.Refused(&http.Response{StatusCode: http.StatusConflict, Header: http.Header{}}); err != nil {
		t.Errorf("the application's own 409: %v", err)
	}
	if err := fence.Refused(nil); err != nil {
		t.Errorf("no answer: %v", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	g := fence.NewGuard("orders", 5)
	token, err := fence.ParseToken("orders:5")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if g.Check(b.Context(), token) != nil {
			b.Fatal("refused")
		}
	}
}

func BenchmarkCheckParallel(b *testing.B) {
	g := fence.NewGuard("orders", 5)
	token, _ := fence.ParseToken("orders:5")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if g.Check(b.Context(), token) != nil {
				b.Fatal("refused")
			}
		}
	})
}

func BenchmarkRequire(b *testing.B) {
	h := fence.Require(fence.NewGuard("orders", 5), nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	r.Header.Set(fence.Header, "orders:5")
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

// A greater token is admitted when no act of a smaller one is under way any more, and an act
// whose turn comes after that is refused. Nobody waits longer than their ctx.
func TestDoKeepsTheNextOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGuard("orders", 5)
		old, next := fencetest.Orders(5), fencetest.Orders(7)
		leave, gone := make(chan struct{}), errors.New("gone")
		first, admitted, second := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() {
			first <- g.Do(t.Context(), old, func(context.Context) error { <-leave; return nil })
		}()
		synctest.Wait()
		impatient := func(ask func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
			defer cancel()
			begin := time.Now()
			if err := ask(ctx); !errors.Is(err, gone) || time.Since(begin) != time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		}
		impatient(func(ctx context.Context) error { return g.Check(ctx, next) })
		if err := g.Do(t.Context(), old, func(context.Context) error { return nil }); err != nil {
			t.Errorf("when nobody waits any more: %v", err)
		}
		go func() { admitted <- g.Check(t.Context(), next) }()
		synctest.Wait()
		impatient(func(ctx context.Context) error {
			return g.Do(ctx, old, func(context.Context) error { return errors.New("it was called") })
		})
		go func() {
			second <- g.Do(t.Context(), old, func(context.Context) error { return errors.New("it was called") })
		}()
		synctest.Wait()
		select {
		case err := <-admitted:
			t.Errorf("it did not wait: %v", err)
		case err := <-second:
			t.Errorf("it did not wait: %v", err)
		default:
		}
		close(leave)
		if err := errors.Join(<-first, <-admitted); err != nil {
			t.Fatal(err)
		}
		if err := <-second; !errors.Is(err, fence.ErrStale) {
			t.Errorf("an act that comes too late: %v", err)
		}
	})
}

// An act may act again under its own token, also while a greater one waits for it; and asks in
// vain for what would wait for it.
func TestActsWithinAnAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, other := fence.NewGuard("orders", 5), fence.NewGuard("orders", 1)
		old, next := fencetest.Orders(5), fencetest.Orders(7)
		admitted := make(chan error, 1)
		inner := 0
		err := g.Do(t.Context(), old, func(ctx context.Context) error {
			go func() { admitted <- g.Check(t.Context(), next) }()
			synctest.Wait()
			if err := g.Check(ctx, next); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "inside an act") {
				t.Errorf("a greater token within: %v", err)
			}
			if err := other.Do(ctx, next, func(context.Context) error { return nil }); err != nil {
				t.Errorf("another guard: %v", err)
			}
			return g.Do(ctx, old, func(ctx context.Context) error {
				return g.Do(ctx, old, func(context.Context) error { inner++; return g.Check(ctx, old) })
			})
		})
		if err != nil || inner != 1 {
			t.Errorf("%v; the inner act ran %d times", err, inner)
		}
		if err := <-admitted; err != nil {
			t.Error(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = g.Do(t.Context(), next, func(context.Context) error { panic("act") })
		}()
		if err := g.Check(t.Context(), fencetest.Orders(8)); err != nil {
			t.Errorf("after an act that panicked: %v", err)
		}
	})
}

// What a guard has seen does not go back, also if a smaller token was being confirmed meanwhile.
func TestConfirmedTooLate(t *testing.T) {
	g := fence.NewGuard("orders", 0)
	confirming, leave := make(chan struct{}), make(chan struct{})
	g.Confirm = func(_ context.Context, t fence.Token) error {
		if t.Number == 5 {
			close(confirming)
			<-leave
		}
		return nil
	}
	late := make(chan error)
	go func() { late <- g.Check(t.Context(), fencetest.Orders(5)) }()
	<-confirming
	if err := g.Check(t.Context(), fencetest.Orders(7)); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if err := <-late; !errors.Is(err, fence.ErrStale) || g.Greatest() != 7 {
		t.Errorf("%v, and the greatest is %d", err, g.Greatest())
	}
}

// The token of nobody is none, also before there was any; and the present one may read.
func TestGuardsEdges(t *testing.T) {
	g := fence.NewGuard("orders", 0)
	if err := g.Check(t.Context(), fencetest.Orders(0)); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("no token: %v", err)
	}
	if err := g.Check(t.Context(), fencetest.Orders(3)); err != nil {
		t.Fatal(err)
	}
	if err := g.Peek(t.Context(), fencetest.Orders(3)); err != nil {
		t.Errorf("the token that was admitted last, reading: %v", err)
	}
	for _, text := range []string{"a:0", "a:+1", "a:-1", "a:01", "a:"} {
		if token, err := fence.ParseToken(text); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%q: %v, %v", text, token, err)
		}
	}
	for status, want := range map[int]error{http.StatusConflict: fence.ErrStale, http.StatusOK: nil} {
		if err := fence.Refused(&http.Response{StatusCode: status, Header: http.Header{"Fencing-Refused": {"stale"}}}); !errors.Is(err, want) {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

// What the record has once shown is confirmed for good; what the store says when it fails
// is said, until it works; and nobody waits for another's read longer than their ctx.
func TestConfirmByRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		confirm := fence.ConfirmBy(d)
		ask := func(n uint64) error {
			time.Sleep(2 * time.Second) // it reads once a second
			return confirm(t.Context(), fencetest.Orders(n))
		}
		d.Inject(memory.Fail(memory.ErrLost))
		if err := ask(7); !errors.Is(err, memory.ErrLost) {
			t.Errorf("a store that fails: %v", err)
		}
		d.Inject(nil)
		if err := ask(7); err == nil || errors.Is(err, memory.ErrLost) || !strings.Contains(err.Error(), "come to token 0") {
			t.Errorf("a token of nobody's: %v", err)
		}
		d.Replace(&le.RaceEntry{ElectionNumber: 7, Incarnation: "x", TermExpiry: time.Now()})
		if err := ask(7); err != nil {
			t.Error(err)
		}
		d.Replace(&le.RaceEntry{ElectionNumber: 3, Incarnation: "x", TermExpiry: time.Now()})
		if err := ask(9); err == nil {
			t.Error("a token of nobody's is confirmed")
		}
		if err := ask(7); err != nil {
			t.Errorf("after the store was set back: %v", err)
		}
		hang := make(chan struct{})
		d.Inject(memory.Hang(hang))
		hangs := make(chan error)
		go func() { hangs <- ask(8) }()
		time.Sleep(3 * time.Second)
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		if err := confirm(ctx, fencetest.Orders(8)); !errors.Is(err, gone) {
			t.Errorf("while another reads: %v", err)
		}
		close(hang)
		<-hangs
		hang = make(chan struct{})
		d.Inject(memory.Hang(hang))
		time.Sleep(2 * time.Second)
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		begin := time.Now()
		if err := confirm(ctx, fencetest.Orders(10)); !errors.Is(err, gone) || time.Since(begin) != time.Second {
			t.Errorf("while it reads itself: %v after %v", err, time.Since(begin))
		}
		close(hang)
	})
}

// A request that only reads shuts nobody out, whatever token it has.
func TestSafeMethodsRaiseNothing(t *testing.T) {
	for name, options := range map[string]*fence.RequireOptions{"reads are free": nil, "reads need a token": {Reads: true}} {
		t.Run(name, func(t *testing.T) {
			guard := fence.NewGuard("orders", 5)
			h := fence.Require(guard, options)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
				for _, token := range []string{"orders:9223372036854775807", "orders:18446744073709551615", "orders:6"} {
					r := httptest.NewRequest(method, "/", nil)
					r.Header.Set(fence.Header, token)
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
			}
			r := httptest.NewRequest(http.MethodPut, "/", nil)
			r.Header.Set(fence.Header, "orders:5")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK || guard.Greatest() != 5 {
				t.Errorf("the leader is told %d %s; the guard has seen %d", w.Code, w.Body, guard.Greatest())
			}
		})
	}
}

// Confirm is asked once for each greater token, and keeps out what it does not know.
func TestGuardConfirm(t *testing.T) {
	guard := fence.NewGuard("orders", 0)
	forged, asked := errors.New("forged"), 0
	type key struct{}
	guard.Confirm = func(ctx context.Context, token fence.Token) error {
		if asked++; ctx.Value(key{}) == nil && asked == 1 {
			t.Error("Confirm did not get the ctx of Check")
		}
		if token.Number > 7 {
			return forged
		}
		return nil
	}
	if err := guard.Check(context.WithValue(t.Context(), key{}, true), fencetest.Orders(8)); !errors.Is(err, forged) {
		t.Error(err)
	}
	if err := guard.Do(t.Context(), fencetest.Orders(1<<63-1), func(context.Context) error { t.Error("it acts"); return nil }); !errors.Is(err, forged) {
		t.Error(err)
	}
	if err := guard.Peek(t.Context(), fencetest.Orders(8)); err != nil || guard.Greatest() != 0 {
		t.Error(err, guard.Greatest())
	}
	for range 3 {
		if err := guard.Check(t.Context(), fencetest.Orders(7)); err != nil {
			t.Error(err)
		}
	}
	if err := guard.Check(t.Context(), fencetest.Orders(6)); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if asked != 3 {
		t.Errorf("Confirm was asked %d times, want 3", asked)
	}
	guard.Confirm = fence.ConfirmBy(nil)
	if err := guard.Check(t.Context(), fencetest.Orders(8)); err == nil || errors.Is(err, fence.ErrStale) || guard.Greatest() != 7 {
		t.Errorf("without a decider: %v, and %d is the greatest", err, guard.Greatest())
	}
}

// The election itself tells a genuine token from a forged one, at a bounded cost.
func TestConfirmBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		var reads atomic.Int32
		mine := d.Handle()
		broken := false
		mine.Inject(func(memory.Op) memory.Fault {
			reads.Add(1)
			if broken {
				return memory.Fault{Err: errors.New("the store is down")}
			}
			return memory.Fault{}
		})
		number := func(n uint64) {
			d.Replace(&le.RaceEntry{LeaderID: "a", ElectionNumber: le.ElectionNumber(n), TermLength: time.Second, TermExpiry: time.Now()})
		}
		number(7)
		guard := fence.NewGuard("orders", 0)
		guard.Confirm = fence.ConfirmBy(mine)
		var wg sync.WaitGroup
		for n := range uint64(100) {
			wg.Go(func() {
				if err := guard.Check(t.Context(), fencetest.Orders(1000+n)); err == nil {
					t.Errorf("%d is admitted", 1000+n)
				}
			})
		}
		wg.Wait()
		if err := guard.Check(t.Context(), fencetest.Orders(7)); err != nil || reads.Load() != 1 {
			t.Errorf("%v, after %d reads", err, reads.Load())
		}
		number(8)
		if err := guard.Check(t.Context(), fencetest.Orders(8)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("within a second of the last read: %v", err)
		}
		time.Sleep(time.Second)
		if err := guard.Check(t.Context(), fencetest.Orders(8)); err != nil || reads.Load() != 2 {
			t.Errorf("%v, after %d reads", err, reads.Load())
		}
		time.Sleep(time.Second)
		broken = true
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Header.Set(fence.Header, "orders:9")
		fence.Require(guard, nil)(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || guard.Greatest() != 8 {
			t.Errorf("with the store down: %d %s, seen %d", w.Code, w.Body, guard.Greatest())
		}
	})
}

// A resource that refuses the writes of a deposed leader.
func Example() {
	guard := fence.NewGuard("orders", 0)
	resource := fence.Require(guard, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "written")
	}))
	write := func(token string) {
		r := httptest.NewRequest(http.MethodPut, "/orders/7", nil)
		r.Header.Set(fence.Header, token) // a fence.Transport does this
		w := httptest.NewRecorder()
		resource.ServeHTTP(w, r)
		text, _ := io.ReadAll(w.Body)
		fmt.Print(w.Code, " ", string(text))
	}
	write("orders:1") // the first leader
	write("orders:2") // the second
	write("orders:1") // the first again: it was stopped for longer than its term
	// Output:
	// 200 written
	// 200 written
	// 409 fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
}

// What must not overlap with the next leader's acts runs inside Do.
func ExampleGuard_Do() {
	ctx := context.Background()
	guard := fence.NewGuard("orders", 0)
	leader, next := fence.Token{Election: "orders", Number: 1}, fence.Token{Election: "orders", Number: 2}
	act := func(context.Context) error { fmt.Println("acting"); return nil }
	fmt.Println(guard.Do(ctx, leader, act))
	fmt.Println(guard.Do(ctx, next, act))
	fmt.Println(guard.Do(ctx, leader, act))
	// Output:
	// acting
	// <nil>
	// acting
	// <nil>
	// fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
}

// A leader that writes through a Transport: its requests carry its token, and after
// its leadership nothing leaves any more.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the resource sees", r.Header.Get(fence.Header))
	}))
	defer server.Close()
	client := &http.Client{Transport: &fence.Transport{Base: server.Client().Transport}}
	write := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(r)
		if err != nil {
			return errors.Unwrap(err) // without the URL, whose port is another each time
		}
		return res.Body.Close()
	}

	election := memory.NewDecider()
	election.Replace(&le.RaceEntry{ElectionNumber: 41}) // others have led before
	var leader context.Context
	err := le.Config{Decider: election, LeaderID: "web-1"}.Run(context.Background(),
		func(ctx context.Context, view *le.TimeView) error {
			leader = fence.WithGate(context.WithoutCancel(ctx), fence.Gate{View: view, Election: "orders"})
			return write(leader)
		})
	fmt.Println(err)
	fmt.Println(write(leader)) // left over from a leadership that is over
	// Output:
	// the resource sees orders:42
	// <nil>
	// fence: not sent: leaderelection: this process does not lead (token 42 of "orders")
}

func ExampleParseToken() {
	token, err := fence.ParseToken("orders:7")
	fmt.Println(token.Election, token.Number, err)
	_, err = fence.ParseToken("orders:7, orders:8")
	fmt.Println(err)
	// Output:
	// orders 7 <nil>
	// fence: malformed token "orders:7, orders:8": the election is not escaped as in a URL's path
}

// FuzzRequire sends any header: the resource is reached only with one good token of its election that is
// not smaller than one before it, and each refusal is known for what it is.
func FuzzRequire(f *testing.F) {
	f.Add("POST", "orders:7", "", false, uint64(6))
	f.Add("POST", "orders:5", "", false, uint64(6))
	f.Add("GET", "", "", true, uint64(6))
	f.Add("PUT", "orders:7", "orders:8", false, uint64(6))
	f.Add("PUT", "others:7", "", false, uint64(0))
	f.Add("PUT", " orders:7", "", false, uint64(0))
	f.Add("PUT", "orders:18446744073709551615", "", false, uint64(0))
	f.Add("PUT", "orders:+7", "", false, uint64(1))
	f.Add("GET", "", "", false, uint64(6)) // let in without a token
	f.Add("PUT", ":7", "", false, uint64(0))
	f.Add("PUT", "7", "", false, uint64(0))
	f.Fuzz(func(t *testing.T, method, first, second string, reads bool, seen uint64) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method = method
		for _, v := range []string{first, second} {
			if v != "" {
				r.Header.Add(fence.Header, v)
			}
		}
		values := r.Header.Values(fence.Header)
		safe := method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE"
		allowed := len(values) == 0 && safe && !reads
		var malformed bool
		if len(values) == 1 {
			token, err := fence.ParseToken(values[0])
			malformed = err != nil
			allowed = err == nil && token.Election == "orders" && uint64(token.Number) >= seen
		}
		reached := false
		guard := fence.NewGuard("orders", le.ElectionNumber(seen))
		w := httptest.NewRecorder()
		fence.Require(guard, &fence.RequireOptions{Reads: reads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached = true
			if token, ok := fence.TokenFrom(r.Context()); ok != (len(values) == 1) || ok && uint64(token.Number) < seen {
				t.Errorf("let in with %v, after %d", token, seen)
			}
		})).ServeHTTP(w, r)
		refusal := fence.Refused(w.Result())
		if reached != allowed || reached == (refusal != nil) {
			t.Errorf("%s with %q after %d (reads: %t): reached is %t, want %t; refused with %v", method, values, seen, reads, reached, allowed, refusal)
		}
		if malformed && !errors.Is(refusal, fence.ErrMalformed) {
			t.Errorf("%q is malformed, and refused with %v", values, refusal)
		}
	})
}
