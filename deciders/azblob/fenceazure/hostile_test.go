package fenceazure_test

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/c8e606e4/leaderelection/deciders/azblob/fenceazure"
	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// scripted is a blob service that has one blob, if any, and fails as it is told.
type scripted struct {
	metadata http.Header // of the blob; nil: there is none
	look     string      // the error code of each look; empty: none
	fail     func(put int) (status int, code string)

	looks int
	puts  []http.Header
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	failed := func(status int, code string) {
		w.Header().Set("x-ms-error-code", code)
		w.WriteHeader(status)
	}
	switch {
	case r.Method == http.MethodHead:
		s.looks++
		switch {
		case s.look != "":
			failed(http.StatusNotFound, s.look)
		case s.metadata == nil:
			failed(http.StatusNotFound, "BlobNotFound")
		default:
			for k, v := range s.metadata {
				w.Header()[k] = v
			}
			w.Header().Set("ETag", `"seen"`)
		}
	default:
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
		}
		sent := http.Header{} // the SDK's names are not canonical
		for k, v := range r.Header {
			sent[http.CanonicalHeaderKey(k)] = v
		}
		s.puts = append(s.puts, sent)
		if s.fail != nil {
			if status, code := s.fail(len(s.puts)); status != 0 {
				failed(status, code)
				break
			}
		}
		s.metadata = http.Header{}
		for k, v := range sent {
			if strings.HasPrefix(k, "X-Ms-Meta-") {
				s.metadata[k] = v
			}
		}
		sum := md5.Sum(body)
		w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
		if r.URL.Query().Get("comp") == "" { // else metadata are set: 200
			w.WriteHeader(http.StatusCreated)
		}
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

func (s *scripted) blob(t *testing.T) *blockblob.Client {
	t.Helper()
	b, err := blockblob.NewClientWithNoCredential("https://account.blob.core.windows.net/orders/k", &blockblob.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: s}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Only a refused condition is tried again; another failure is looked into once.
func TestWhatIsTriedAgain(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		again  bool
	}{
		"ConditionNotMet": {412, true}, "BlobAlreadyExists": {409, true}, "BlobNotFound": {404, true},
		"LeaseIdMissing": {412, false}, "ContainerNotFound": {404, false}, "ServerBusy": {503, false}, "AuthorizationFailure": {403, false},
	} {
		s := &scripted{fail: func(put int) (int, string) {
			if put == 1 {
				return c.status, code
			}
			return 0, ""
		}}
		err := fenceazure.Put(t.Context(), s.blob(t), fencetest.Orders(3), strings.NewReader("x"), nil)
		if again := len(s.puts) == 2; again != c.again || (err == nil) != c.again || s.looks != 2 || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: written %d times, after %d looks: %v", code, len(s.puts), s.looks, err)
		}
	}
}

// Where it is not known what there is, nothing is written.
func TestNothingIsWrittenBlindly(t *testing.T) {
	s := &scripted{look: "ContainerNotFound"}
	if err := fenceazure.Put(t.Context(), s.blob(t), fencetest.Orders(3), strings.NewReader("x"), nil); err == nil || len(s.puts) > 0 {
		t.Errorf("%v, written %d times", err, len(s.puts))
	}
}

// What was sent is the whole of the content, wherever that stood, and proved by its MD5 alone; a
// name of metadata without a value is left out.
func TestTheContentIsWhole(t *testing.T) {
	s := &scripted{}
	content := strings.NewReader("the content")
	_, _ = content.Seek(5, io.SeekStart)
	err := fenceazure.Put(t.Context(), s.blob(t), fencetest.Orders(3), content, &blockblob.UploadOptions{Metadata: map[string]*string{"none": nil, "team": to.Ptr("a")}})
	if err != nil || s.looks != 1 || len(s.puts) != 1 || s.puts[0].Get("X-Ms-Meta-Team") != "a" || s.puts[0].Values("X-Ms-Meta-None") != nil {
		t.Errorf("%v, %d looks, written %v", err, s.looks, s.puts)
	}
}

// Raising a fence leaves the rest of the metadata, which it replaces as a whole; it needs a blob,
// also if that is deleted in between.
func TestRaiseKeepsTheMetadata(t *testing.T) {
	there := func() http.Header {
		return http.Header{"X-Ms-Meta-Team": {"a"}, "X-Ms-Meta-Fencingtoken": {"orders:2"}}
	}
	s := &scripted{metadata: there()}
	if err := fenceazure.Raise(t.Context(), s.blob(t), fencetest.Orders(3), nil); err != nil || len(s.puts) != 1 {
		t.Fatalf("%v, written %d times", err, len(s.puts))
	}
	if h := s.puts[0]; h.Get("X-Ms-Meta-Team") != "a" || strings.Join(h.Values("X-Ms-Meta-Fencingtoken"), ",") != "orders:3" || h.Get("If-Match") != `"seen"` {
		t.Errorf("written %v", h)
	}
	s = &scripted{metadata: there()}
	s.fail = func(int) (int, string) { s.metadata = nil; return http.StatusNotFound, "BlobNotFound" }
	if err := fenceazure.Raise(t.Context(), s.blob(t), fencetest.Orders(3), nil); err == nil || !strings.Contains(err.Error(), "there is no such object") {
		t.Errorf("a blob that goes: %v", err)
	}
}

// Of a server that is not Azure's a refusal is seen before a fence is raised there: one that takes
// no notice of conditions keeps nobody out.
func TestImitation(t *testing.T) {
	s := &scripted{metadata: http.Header{"X-Ms-Meta-Fencingtoken": {"orders:2"}}}
	b, err := blockblob.NewClientWithNoCredential("https://storage.example/account/orders/k", &blockblob.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: s}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{
		fenceazure.Put(t.Context(), b, fencetest.Orders(3), strings.NewReader("x"), nil),
		fenceazure.Raise(t.Context(), b, fencetest.Orders(3), nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "takes no notice of conditions") || len(s.puts) != 2 {
			t.Fatalf("%d: %v, written %d times", i, err, len(s.puts))
		}
		if h := s.puts[i]; h.Get("If-Match") != object.NoETag || h.Get("X-Ms-Meta-Fencingtoken") != "orders:2" {
			t.Errorf("%d: asked to refuse %v", i, h)
		}
	}
	s.puts, s.fail = nil, func(put int) (int, string) {
		return map[bool]int{true: http.StatusPreconditionFailed}[put == 1], "ConditionNotMet"
	}
	if err := fenceazure.Put(t.Context(), b, fencetest.Orders(3), strings.NewReader("x"), nil); err != nil || len(s.puts) != 2 {
		t.Errorf("a sound one: %v, written %d times", err, len(s.puts))
	}
}
