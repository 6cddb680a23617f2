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
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
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
	if got, _ := io.ReadAll(res.Body); string(got) != "[orders:2]payload<nil>" {
		t.Errorf("%s", got)
	}

	// The view ends while a body is under way: the rest does not leave.
	first, second := strings.NewReader("first"), strings.NewReader("second")
	res, err = trip(ctx, h, http.MethodPut, io.MultiReader(first, readerFunc(func([]byte) (int, error) { end(); return 0, nil }), second))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(res.Body); !strings.Contains(string(got), leaderelection.ErrNotLeading.Error()) || strings.Contains(string(got), "second") {
		t.Errorf("%s", got)
	}

	closed := false
	body := struct {
		io.Reader
		io.Closer
	}{second, closerFunc(func() error { closed = true; return nil })}
	if _, err := trip(ctx, h, http.MethodPut, body); !errors.Is(err, leaderelection.ErrNotLeading) || !closed || calls != 2 {
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
	for name, res := range map[string]*http.Response{
		"no answer": nil, "the application's own 409": {StatusCode: http.StatusConflict, Header: http.Header{}},
		"an answer to another": {StatusCode: http.StatusOK, Header: http.Header{"Fencing-Refused": {"stale"}}},
	} {
		if err := fence.Refused(res); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRequire sends any header: the resource is reached only with one good token of its election that is
// not smaller than one before it, and each refusal is known for what it is. A request that only reads shuts
// nobody out, whatever token it has.
func FuzzRequire(f *testing.F) {
	f.Add("POST", "orders:7", "", false, uint64(6))
	f.Add("POST", "orders:5", "", false, uint64(6))
	f.Add("GET", "", "", true, uint64(6))
	f.Add("GET", "orders:9223372036854775807", "", true, uint64(6))
	f.Add("HEAD", "orders:7", "", false, uint64(6))
	f.Add("OPTIONS", "orders:7", "", false, uint64(6))
	f.Add("TRACE", "orders:7", "", false, uint64(6))
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
		guard := fence.NewGuard("orders", leaderelection.ElectionNumber(seen))
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
		if n := guard.Greatest(); uint64(n) != seen && (safe || !allowed) {
			t.Errorf("%s with %q after %d: the guard has seen %d", method, values, seen, n)
		}
		if malformed && !errors.Is(refusal, fence.ErrMalformed) {
			t.Errorf("%q is malformed, and refused with %v", values, refusal)
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
	election.Replace(&leaderelection.RaceEntry{ElectionNumber: 41}) // others have led before
	var leader context.Context
	err := leaderelection.Config{Decider: election, LeaderID: "web-1"}.Run(context.Background(),
		func(ctx context.Context, view *leaderelection.TimeView) error {
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
