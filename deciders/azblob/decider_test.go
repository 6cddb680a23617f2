package azblob_test

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func TestMain(m *testing.M) {
	proctest.Main(azblob.Open)
	// Idle connections to servers that have ended linger.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// Three processes on Azurite, with native leases and without: one leader killed,
// one stopped past its term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	for name, more := range map[string]string{"Plain": "", "NativeLease": "&native_lease=true"} {
		t.Run(name, func(t *testing.T) {
			server := stores.Azurite(t)
			host, _, _ := strings.Cut(strings.TrimPrefix(server, "http://"), "/")
			proctest.Run(t, proctest.Options{
				Address:  "azblob://" + stores.AzuriteAccount + "/" + containerName + "/processes?create=true&endpoint=" + server + more,
				Upstream: host,
				Env:      []string{"AZURE_STORAGE_KEY=" + stores.AzuriteKey},
			})
		})
	}
}

const containerName = "elections"

// client returns one for the Azurite at account.
func client(t testing.TB, account string, opts *sdk.ClientOptions) *sdk.Client {
	t.Helper()
	return keyed(t, account, stores.AzuriteKey, opts)
}

// keyed returns a client with this key.
func keyed(t testing.TB, account, key string, opts *sdk.ClientOptions) *sdk.Client {
	t.Helper()
	credential, err := sdk.NewSharedKeyCredential(stores.AzuriteAccount, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClientWithSharedKeyCredential(account, credential, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// azurite starts one with the container.
func azurite(t testing.TB) (account string) {
	t.Helper()
	account = stores.Azurite(t)
	if _, err := client(t, account, nil).CreateContainer(t.Context(), containerName, nil); err != nil {
		t.Fatal(err)
	}
	return account
}

func TestConformance(t *testing.T) {
	server := azurite(t)
	for name, opts := range map[string]*azblob.Options{
		"Plain":       nil,
		"NativeLease": {Leases: azlease.New(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Plain" {
				t.Skip("nightly: the suite once more")
			}
			var elections atomic.Int64
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				blob := fmt.Sprintf("some/path/%s %d", name, elections.Add(1))
				return func() leaderelection.RaceDecider {
					return azblob.NewDecider(client(t, server, nil), containerName, blob, own(opts))
				}
			}, nil)
		})
	}
}

// over returns the real client, with its default retries, over c.
func over(t testing.TB, c *http.Client) *sdk.Client {
	t.Helper()
	client, err := sdk.NewClientWithNoCredential("http://in-process/account", &sdk.ClientOptions{ClientOptions: policy.ClientOptions{Transport: c}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// inProcess returns a client of a server in process.
func inProcess(t testing.TB, h http.Handler, fault func(*http.Request) httpfault.Fault) *sdk.Client {
	return over(t, &http.Client{Transport: &httpfault.Transport{Handler: h, Fault: fault}})
}

func TestFakeIsLikeTheService(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		server := newFake()
		return func() leaderelection.RaceDecider {
			return azblob.NewDecider(inProcess(t, server, nil), containerName, "one", nil)
		}
	}, nil)
}

// overHTTP is the real client over an imitation.
func overHTTP(t *testing.T, opts *azblob.Options) overhttp.Store {
	return overhttp.Store{
		Serve: func() http.Handler { return newFake() },
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			return azblob.NewDecider(over(t, c), containerName, "one", own(opts))
		},
		Place:  "http://in-process/account/elections/one",
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
		Busy: map[string]httpfault.Fault{
			"ServerBusy":        refusal(http.StatusServiceUnavailable, "ServerBusy"),
			"InternalError":     refusal(http.StatusInternalServerError, "InternalError"),
			"OperationTimedOut": refusal(http.StatusInternalServerError, "OperationTimedOut"),
			"TooManyRequests":   refusal(http.StatusTooManyRequests, "TooManyRequests"),
			"BeingDeleted":      refusal(http.StatusConflict, "ContainerBeingDeleted"),
		},
		Blind: map[string]string{"OldAnswerNewestETag": "nothing in an answer binds the ETag to the rest: see the package's documentation"},
	}
}

func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP(t, nil)) }

// Whole elections by seed, with faults on HTTP.
func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP(t, nil), 50) }

func TestSeedsWithNativeLease(t *testing.T) {
	overhttp.Seeds(t, overHTTP(t, &azblob.Options{Leases: azlease.New(nil)}), 50)
}

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t, nil)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

// The same on the emulator, whose answers are more like the service's.
func TestDisbelievesOnAzurite(t *testing.T) {
	server := azurite(t)
	s := overHTTP(t, nil)
	s.Decider = func(c *http.Client) leaderelection.RaceDecider {
		return azblob.NewDecider(client(t, server, &sdk.ClientOptions{ClientOptions: policy.ClientOptions{Transport: c}}), containerName, "one", nil)
	}
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	overhttp.Disbelieves(t, s, tr)
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t, nil)) }

// A native lease is held only if the answer names it. The leadership does not depend on it.
func TestNativeLeaseIsProved(t *testing.T) {
	for _, lie := range httpfault.Lies() {
		if strings.HasPrefix(lie.Name, "Echo") {
			continue // the name is all that such an answer has; Azure refuses who names a lease that it did not give
		}
		t.Run(lie.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &httpfault.Transport{Handler: newFake()}
				liar := &httpfault.Liar{Next: server, About: func(r *http.Request) bool { return r.URL.Query().Get("comp") == "lease" }}
				before := lead(t, native(over(t, &http.Client{Transport: liar})), 15*time.Second) // for replays
				before.stop()
				liar.Tell(&lie)
				d := native(over(t, &http.Client{Transport: liar}))
				l := lead(t, d, 15*time.Second)
				time.Sleep(time.Minute)
				if only, err := d.Held(l.view); err == nil {
					t.Errorf("%v is believed to be held", only)
				}
				if !l.view.ValueInFuture() || liar.Told() == 0 {
					t.Errorf("leads: %v, after %d lies", l.view.ValueInFuture(), liar.Told())
				}
				liar.Tell(nil)
			})
		})
	}
}

// An imitation that takes no notice of If-Match, or of If-None-Match, has nobody lead.
func TestDeafNobodyLeads(t *testing.T) {
	overhttp.DeafNobodyLeads(t, overHTTP(t, nil), map[string]func(*http.Request){
		"IfMatch":     func(r *http.Request) { r.Header.Del("If-Match") },
		"IfNoneMatch": func(r *http.Request) { r.Header.Del("If-None-Match") },
	})
}

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	relay := stores.NewRelay(t, stores.HTTP2(t, newFake()))
	d, err := feedtest.Open(t.Context(), azblob.Open, "azblob://account/"+containerName+"/one?endpoint="+url.QueryEscape("https://"+relay.Addr+"/account"))
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Abandons(t, d, relay.Swallow)
}

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
