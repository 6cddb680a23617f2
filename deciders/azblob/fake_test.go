package azblob_test

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// fake is a blob service in process: the requests that the decider makes, and
// nothing else. It exists for virtual time, where Azurite, another process, cannot
// be; that it is like the service is shown by the tests that run on both.
type fake struct {
	mu         sync.Mutex
	containers map[string]bool
	blobs      map[string]*fakeBlob // by container/name
	writes     int
}

type fakeBlob struct {
	data     []byte
	etag     string
	modified time.Time
	lease    fakeLease
}

type fakeLease struct {
	id     string
	until  time.Time
	length time.Duration
	broken bool
}

func (l *fakeLease) active() bool { return l.id != "" && !l.broken && time.Now().Before(l.until) }

func newFake() *fake {
	return &fake{containers: map[string]bool{containerName: true}, blobs: map[string]*fakeBlob{}}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	sent := r.Header
	r.Header = http.Header{}
	for name, values := range sent { // the SDK writes some in lower case, which a wire makes no matter
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // after the account
	container, _, _ := strings.Cut(path, "/")
	b := f.blobs[path]
	switch q := r.URL.Query(); {
	case q.Get("restype") == "container" && r.Method == http.MethodPut:
		if f.containers[container] {
			refuse(w, http.StatusConflict, "ContainerAlreadyExists")
			return
		}
		f.containers[container] = true
		w.WriteHeader(http.StatusCreated)
	case !f.containers[container]:
		refuse(w, http.StatusNotFound, "ContainerNotFound")
	case q.Get("comp") == "lease" && b != nil:
		leaseBlob(w, r, b)
	case r.Method == http.MethodPut && q.Get("comp") == "":
		f.put(w, r, path, b, body)
	case b == nil:
		refuse(w, http.StatusNotFound, "BlobNotFound")
	case r.Method == http.MethodGet:
		answer(w, b)
		state := "available"
		if b.lease.active() {
			state = "leased"
		}
		w.Header().Set("x-ms-lease-state", state)
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(b.data)
	default:
		refuse(w, http.StatusBadRequest, "UnsupportedQueryParameter")
	}
}

func (f *fake) put(w http.ResponseWriter, r *http.Request, path string, b *fakeBlob, body []byte) {
	id := r.Header.Get("x-ms-lease-id")
	match := r.Header.Get("If-Match")
	switch {
	case r.Header.Get("If-None-Match") == "*" && b != nil:
		refuse(w, http.StatusConflict, "BlobAlreadyExists")
		return
	case match != "" && (b == nil || b.etag != match):
		refuse(w, http.StatusPreconditionFailed, "ConditionNotMet")
		return
	}
	if b == nil {
		b = &fakeBlob{}
	}
	switch l := &b.lease; {
	case l.active() && id == "":
		refuse(w, http.StatusPreconditionFailed, "LeaseIdMissing")
		return
	case l.active() && id != l.id:
		refuse(w, http.StatusPreconditionFailed, "LeaseIdMismatchWithBlobOperation")
		return
	case !l.active() && id != "" && l.id != "":
		refuse(w, http.StatusPreconditionFailed, "LeaseLost")
		return
	case !l.active() && id != "":
		refuse(w, http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation")
		return
	case !l.active():
		*l = fakeLease{}
	}
	f.writes++
	b.data, b.etag, b.modified = body, fmt.Sprintf(`"0x%X"`, f.writes), time.Now()
	f.blobs[path] = b
	answer(w, b)
	w.WriteHeader(http.StatusCreated)
}

func leaseBlob(w http.ResponseWriter, r *http.Request, b *fakeBlob) {
	l, id, status := &b.lease, r.Header.Get("x-ms-lease-id"), http.StatusOK
	action := r.Header.Get("x-ms-lease-action")
	if match := r.Header.Get("If-Match"); match != "" && match != b.etag {
		refuse(w, http.StatusPreconditionFailed, "ConditionNotMet")
		return
	}
	switch {
	case action == "acquire":
		id, status = r.Header.Get("x-ms-proposed-lease-id"), http.StatusCreated
		if l.active() && l.id != id {
			refuse(w, http.StatusConflict, "LeaseAlreadyPresent")
			return
		}
		seconds, err := strconv.Atoi(r.Header.Get("x-ms-lease-duration"))
		if err != nil || seconds < 15 || seconds > 60 {
			refuse(w, http.StatusBadRequest, "InvalidHeaderValue")
			return
		}
		length := time.Duration(seconds) * time.Second
		*l = fakeLease{id: id, until: time.Now().Add(length), length: length}
	case l.id == "":
		refuse(w, http.StatusConflict, "LeaseNotPresentWithLeaseOperation")
		return
	case action == "break":
		l.broken, status = true, http.StatusAccepted
		w.Header().Set("x-ms-lease-time", "0")
	case l.id != id:
		refuse(w, http.StatusConflict, "LeaseIdMismatchWithLeaseOperation")
		return
	case action == "renew" && l.broken:
		refuse(w, http.StatusConflict, "LeaseIsBrokenAndCannotBeRenewed")
		return
	case action == "renew":
		l.until = time.Now().Add(l.length)
	case action == "release":
		*l = fakeLease{}
	default:
		refuse(w, http.StatusBadRequest, "InvalidHeaderValue")
		return
	}
	w.Header().Set("x-ms-lease-id", id)
	answer(w, b)
	w.WriteHeader(status)
}

func answer(w http.ResponseWriter, b *fakeBlob) {
	sum := md5.Sum(b.data)
	w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	w.Header().Set("ETag", b.etag)
	w.Header().Set("Last-Modified", b.modified.UTC().Format(http.TimeFormat))
	w.Header().Set("x-ms-blob-type", "BlockBlob")
	w.Header().Set("x-ms-version", "2026-02-06")
}

func refuse(w http.ResponseWriter, status int, code string) {
	f := refusal(status, code)
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, f.Body)
}

// refusal is an answer of the service itself.
func refusal(status int, code string) httpfault.Fault {
	return httpfault.Fault{
		Status: status,
		Header: http.Header{"Content-Type": {"application/xml"}, "X-Ms-Error-Code": {code}},
		Body:   "\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + code + "</Code><Message>said the server</Message></Error>",
	}
}
