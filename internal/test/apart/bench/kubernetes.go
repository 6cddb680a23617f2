package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

const namespace = "bench"

// counting counts HTTP requests.
type counting struct {
	http.RoundTripper
	s seat
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.s.Ops.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

func leaseClient(s seat) (*coordinationclient.CoordinationV1Client, error) {
	return coordinationclient.NewForConfig(&rest.Config{
		Host:            "https://" + s.Addr,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},                // on loopback
		ContentConfig:   rest.ContentConfig{ContentType: "application/json"}, // which our server understands
		QPS:             -1,                                                  // nothing waits in the client
		WrapTransport:   func(t http.RoundTripper) http.RoundTripper { return counting{t, s} },
	})
}

// clientGo contests as the example in the package's documentation does.
func clientGo(releaseOnCancel bool) func(context.Context, seat, func()) error {
	return func(ctx context.Context, s seat, lead func()) error {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
		client, err := leaseClient(s)
		if err != nil {
			return err
		}
		const renew, retry, lease = 10, 2, 15 // of its documentation, in seconds
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  meta.ObjectMeta{Name: s.Key, Namespace: namespace},
				Client:     client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: s.ID},
			},
			LeaseDuration:   s.Term,
			RenewDeadline:   s.Term * renew / lease,
			RetryPeriod:     s.Term * retry / lease,
			ReleaseOnCancel: releaseOnCancel,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { lead() },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		e.Run(ctx)
		return nil
	}
}

// apiServer is as much of a Kubernetes API server as Leases need: get, watch, create and
// update over HTTPS, where an update that names a resourceVersion is refused with
// 409 Conflict unless it is the current one.
type apiServer struct {
	mu      sync.Mutex
	version int
	leases  map[string]*kept // by name
}

// kept is a Lease, or where one will be: then it has no resourceVersion.
type kept struct {
	coordination.Lease
	changed chan struct{} // closed when it is put
}

// at returns what is kept under a name. The caller has locked a.
func (a *apiServer) at(name string) (k *kept, found bool) {
	if k = a.leases[name]; k == nil {
		k = &kept{changed: make(chan struct{})}
		a.leases[name] = k
	}
	return k, k.ResourceVersion != ""
}

// kubernetesServer starts an API server and returns its host and port.
func kubernetesServer(t testing.TB) string {
	a := &apiServer{leases: map[string]*kept{}}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+leases+"/{name}", a.get)
	mux.HandleFunc("GET "+leases, a.watch)
	mux.HandleFunc("POST "+leases, a.create)
	mux.HandleFunc("PUT "+leases+"/{name}", a.update)
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true // as an API server has it
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() }) // watches have no end of their own
	return strings.TrimPrefix(s.URL, "https://")
}

func (a *apiServer) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, found := a.at(r.PathValue("name"))
	if !found {
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound, r.PathValue("name"))
		return
	}
	answer(w, http.StatusOK, l.Lease)
}

// watch tells of a Lease, named by the fieldSelector, as it is, and whenever it changes.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.FormValue("fieldSelector"), "metadata.name=")
	told, _ := strconv.Atoi(r.FormValue("resourceVersion"))
	if r.FormValue("watch") != "true" || name == "" {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		a.mu.Lock()
		k, _ := a.at(name)
		l, changed := k.Lease, k.changed
		a.mu.Unlock()
		if version, _ := strconv.Atoi(l.ResourceVersion); version > told {
			told = version
			if json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": l}) != nil {
				return
			}
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (a *apiServer) create(w http.ResponseWriter, r *http.Request) {
	var l coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name == "" {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, l.Name)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, found := a.at(l.Name); found {
		refuse(w, http.StatusConflict, meta.StatusReasonAlreadyExists, l.Name)
		return
	}
	l.UID = types.UID(fmt.Sprint("uid-", a.version))
	answer(w, http.StatusCreated, a.put(l))
}

func (a *apiServer) update(w http.ResponseWriter, r *http.Request) {
	var l coordination.Lease // read before the lock: its sender may be stopped in the midst of it
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name != r.PathValue("name") {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, r.PathValue("name"))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	current, found := a.at(l.Name)
	switch {
	case !found:
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound, r.PathValue("name"))
	case l.ResourceVersion != "" && l.ResourceVersion != current.ResourceVersion:
		refuse(w, http.StatusConflict, meta.StatusReasonConflict, r.PathValue("name"))
	default:
		l.UID = current.UID
		answer(w, http.StatusOK, a.put(l))
	}
}

func (a *apiServer) put(l coordination.Lease) coordination.Lease {
	a.version++
	l.Namespace, l.ResourceVersion = namespace, strconv.Itoa(a.version)
	l.TypeMeta = meta.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	k, _ := a.at(l.Name)
	k.Lease = l
	close(k.changed)
	k.changed = make(chan struct{})
	return l
}

func refuse(w http.ResponseWriter, code int, reason meta.StatusReason, name string) {
	answer(w, code, meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   meta.StatusFailure, Reason: reason, Code: int32(code), Message: fmt.Sprint("refused: ", reason),
		Details: &meta.StatusDetails{Group: "coordination.k8s.io", Kind: "leases", Name: name},
	})
}

func answer(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what) // the client has left
}
