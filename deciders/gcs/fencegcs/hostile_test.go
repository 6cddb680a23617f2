package fencegcs_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection/deciders/gcs/fencegcs"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// scripted is Cloud Storage, that answers looks so, and fails writes as it is told.
type scripted struct {
	status int    // of a look; 0: 200
	look   string // the object, in JSON; empty: there is none
	fail   func(write int) (status int)

	looks  int
	writes []string // the bodies
}

var random = regexp.MustCompile(`"fencingwrite":"([^"]*)"`)

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	failed := func(status int) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":"by a test"}}`, status)
	}
	if r.Method == http.MethodGet {
		switch s.looks++; {
		case s.status != 0:
			failed(s.status)
		case s.look == "":
			failed(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, s.look)
		}
	} else {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		s.writes = append(s.writes, string(body))
		status := 0
		if s.fail != nil {
			status = s.fail(len(s.writes))
		}
		if status != 0 {
			failed(status)
		} else {
			fmt.Fprintf(w, `{"name":"k","generation":"8","metageneration":"1","metadata":{%s}}`, random.FindString(string(body)))
		}
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

func (s *scripted) object(t *testing.T) *storage.ObjectHandle {
	return object(t, "http://gcs.example", "k", s, false)
}

// Only a refused condition, and a conflict with another request, is tried again.
func TestWhatIsTriedAgain(t *testing.T) {
	for status, again := range map[int]bool{412: true, 409: true, 403: false, 429: false, 500: false, 503: false} {
		s := &scripted{fail: func(write int) int {
			if write == 1 {
				return status
			}
			return 0
		}}
		err := fencegcs.Put(t.Context(), s.object(t), fencetest.Orders(3), strings.NewReader("x"), nil)
		if got := len(s.writes) == 2; got != again || (err == nil) != again || s.looks != 2 || errors.Is(err, fence.ErrStale) {
			t.Errorf("%d: written %d times, after %d looks: %v", status, len(s.writes), s.looks, err)
		}
	}
}

// Where it is not known what there is, or something else answers, nothing is written.
func TestNothingIsWrittenBlindly(t *testing.T) {
	for name, s := range map[string]*scripted{
		"no permission":  {status: http.StatusForbidden},
		"a failure":      {status: http.StatusInternalServerError},
		"another object": {look: `{"name":"other","generation":"7","metageneration":"1"}`},
		"no generation":  {look: `{"name":"k","metageneration":"1"}`},
		"something else": {look: `{}`},
	} {
		if err := fencegcs.Put(t.Context(), s.object(t), fencetest.Orders(3), strings.NewReader("x"), nil); err == nil || errors.Is(err, fence.ErrStale) || len(s.writes) > 0 {
			t.Errorf("%s: %v, written %d times", name, err, len(s.writes))
		}
	}
}

// Raising a fence keeps the rest of the metadata; it needs an object, also if that is deleted in
// between.
func TestRaiseKeepsTheMetadata(t *testing.T) {
	const there = `{"name":"k","generation":"7","metageneration":"1","metadata":{"team":"a","fencingtoken":"orders:2"}}`
	s := &scripted{look: there}
	if err := fencegcs.Raise(t.Context(), s.object(t), fencetest.Orders(3)); err != nil || len(s.writes) != 1 {
		t.Fatalf("%v, written %d times", err, len(s.writes))
	}
	if w := s.writes[0]; !strings.Contains(w, `"team":"a"`) || !strings.Contains(w, `"fencingtoken":"orders:3"`) {
		t.Errorf("written %s", w)
	}
	s = &scripted{look: there}
	s.fail = func(int) int { s.look = ""; return http.StatusNotFound }
	if err := fencegcs.Raise(t.Context(), s.object(t), fencetest.Orders(3)); err == nil || !strings.Contains(err.Error(), "there is no such object") {
		t.Errorf("an object that goes: %v", err)
	}
}

// The whole content fits into the buffer that the client can repeat it from, up to 16 MiB.
func TestTheBufferFits(t *testing.T) {
	const unit = 256 << 10
	for _, size := range []int{0, 1, unit - 1, unit, unit + 1, 3 * unit} {
		chunk := 0
		s := &scripted{}
		err := fencegcs.Put(t.Context(), s.object(t), fencetest.Orders(3), strings.NewReader(strings.Repeat("x", size)), func(w *storage.Writer) { chunk = w.ChunkSize })
		if err != nil || len(s.writes) != 1 || chunk <= size || chunk > size+unit || chunk%unit != 0 {
			t.Errorf("%d bytes: a buffer of %d, written %d times, %v", size, chunk, len(s.writes), err)
		}
	}
}

// Of an emulator a refusal is seen before a fence is raised there: one that takes no notice of
// conditions keeps nobody out.
func TestImitation(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "gcs.example")
	s := &scripted{look: `{"name":"k","generation":"7","metageneration":"1","metadata":{"fencingtoken":"orders:2"}}`}
	for i, err := range []error{
		fencegcs.Put(t.Context(), s.object(t), fencetest.Orders(3), strings.NewReader("x"), nil),
		fencegcs.Raise(t.Context(), s.object(t), fencetest.Orders(3)),
	} {
		if err == nil || !strings.Contains(err.Error(), "takes no notice of conditions") || len(s.writes) != 2 {
			t.Fatalf("%d: %v, written %d times", i, err, len(s.writes))
		}
		if w := s.writes[i]; !strings.Contains(w, `"fencingtoken":"orders:2"`) {
			t.Errorf("%d: asked to refuse %s", i, w)
		}
	}
	s.writes, s.fail = nil, func(write int) int { return map[bool]int{true: http.StatusPreconditionFailed}[write == 1] }
	if err := fencegcs.Put(t.Context(), s.object(t), fencetest.Orders(3), strings.NewReader("x"), nil); err != nil || len(s.writes) != 2 {
		t.Errorf("a sound one: %v, written %d times", err, len(s.writes))
	}
}
