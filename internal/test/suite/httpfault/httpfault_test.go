//go:build go1.25

package httpfault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const said = "what the server says"

// ask makes one request, with a ctx of ten seconds.
func ask(t *testing.T, f Fault) (status int, body string, took time.Duration, served int, err error) {
	t.Helper()
	tr := &Transport{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served++
			if b, _ := io.ReadAll(r.Body); string(b) != "question" {
				t.Errorf("the server got %q", b)
			}
			_, _ = io.WriteString(w, said)
		}),
		Fault: func(*http.Request) Fault { return f },
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://nowhere/", strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	a, err := (&http.Client{Transport: tr}).Do(r)
	if err == nil {
		var b []byte
		b, err = io.ReadAll(a.Body)
		a.Body.Close()
		status, body = a.StatusCode, string(b)
	}
	took = time.Since(start)
	synctest.Wait() // for the request that goes on by itself
	return status, body, took, served, err
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		f      Fault
		status int
		body   string
		took   time.Duration
		served int
		err    error
	}{
		"None":          {Fault{}, 200, said, 0, 1, nil},
		"Late":          {Fault{Request: time.Second, Answer: 2 * time.Second}, 200, said, 3 * time.Second, 1, nil},
		"RequestLost":   {Fault{LoseRequest: true}, 0, "", 0, 0, syscall.ECONNRESET},
		"AnswerLost":    {Fault{LoseAnswer: true}, 0, "", 0, 1, syscall.ECONNRESET},
		"AnswerSilent":  {Fault{LoseAnswer: true, Silent: true}, 0, "", 10 * time.Second, 1, context.DeadlineExceeded},
		"Refused":       {Fault{Status: 503, Body: "busy"}, 503, "busy", 0, 0, nil},
		"SlowBody":      {Fault{SlowBody: 4 * time.Second}, 200, said, 5 * time.Second, 1, nil},
		"TooSlowBody":   {Fault{SlowBody: time.Minute}, 200, "", 10 * time.Second, 1, context.DeadlineExceeded},
		"TruncatedBody": {Fault{Truncate: true}, 200, said[:10], 0, 1, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				status, body, took, served, err := ask(t, c.f)
				if status != c.status || body != c.body || took != c.took || served != c.served || !errors.Is(err, c.err) {
					t.Errorf("status %d, body %q, took %v, served %d times, %v; want %+v", status, body, took, served, err, c)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		if _, body, _, _, err := ask(t, Fault{Garble: true}); err != nil || body == said || len(body) != len(said) {
			t.Errorf("garbled: %q, %v", body, err)
		}
	})
}

// A liar is honest until told to lie, and its replays are of what it has heard.
func TestLiar(t *testing.T) {
	served := 0
	next := &Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		w.Header().Set("ETag", fmt.Sprint(served))
		_, _ = fmt.Fprint(w, "version ", served)
	})}
	liar := &Liar{Next: next}
	get := func() (body, etag string, err error) {
		a, err := (&http.Client{Transport: liar}).Get("http://nowhere/")
		if err != nil {
			return "", "", err
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		return string(b), a.Header.Get("ETag"), err
	}
	for n := 1; n <= 3; n++ {
		if body, etag, err := get(); body != fmt.Sprint("version ", n) || etag != fmt.Sprint(n) || err != nil {
			t.Fatalf("%q %q %v", body, etag, err)
		}
	}
	want := map[string][2]string{
		"ReplayFirst": {"version 1", "1"}, "ReplayLast": {"version 3", "3"}, "OldBodyNewestHeaders": {"version 1", "3"}, "OldAnswerNewestETag": {"version 1", "3"},
		"ReplayWithoutHeaders": {"version 3", ""}, "Truncated": {"vers", "3"}, "CutOff": {"vers", "3"}, "Empty200": {"", ""}, "Redirect302": {"{}", `"moved"`},
	}
	for _, lie := range Lies() {
		liar.Tell(&lie)
		body, etag, err := get()
		if w, ok := want[lie.Name]; ok && (body != w[0] || etag != w[1]) || errors.Is(err, io.ErrUnexpectedEOF) != (lie.Name == "CutOff") {
			t.Errorf("%s: %q, %q, %v; want %q", lie.Name, body, etag, err, w)
		}
		if served != 3 || liar.Told() == 0 {
			t.Errorf("%s: served %d times, after %d lies", lie.Name, served, liar.Told())
		}
		delete(want, lie.Name)
	}
	if len(want) > 0 {
		t.Errorf("no such lies: %v", want)
	}
	liar.Tell(nil)
	if body, _, err := get(); body != "version 4" || err != nil {
		t.Errorf("%q %v", body, err)
	}
}
