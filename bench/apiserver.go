package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer is as much of a Kubernetes API server as Leases need: get, watch, create and
// update over HTTP, where an update that names a resourceVersion is refused with
// 409 Conflict unless it is the current one.
type apiServer struct {
	mu      sync.Mutex
	version int
	leases  map[string]coordination.Lease // by name
	changed chan struct{}                 // closed when any of them is put
}

// kubernetesServer starts an API server and returns its host and port.
func kubernetesServer(t testing.TB) string {
	a := &apiServer{leases: map[string]coordination.Lease{}, changed: make(chan struct{})}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+leases+"/{name}", a.get)
	mux.HandleFunc("GET "+leases, a.watch)
	mux.HandleFunc("POST "+leases, a.create)
	mux.HandleFunc("PUT "+leases+"/{name}", a.update)
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() }) // watches have no end of their own
	return strings.TrimPrefix(s.URL, "http://")
}

func (a *apiServer) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, found := a.leases[r.PathValue("name")]
	if !found {
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound, r.PathValue("name"))
		return
	}
	answer(w, http.StatusOK, l)
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
		l, changed := a.leases[name], a.changed
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
	a.mu.Lock()
	defer a.mu.Unlock()
	var l coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name == "" {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, l.Name)
		return
	}
	if _, found := a.leases[l.Name]; found {
		refuse(w, http.StatusConflict, meta.StatusReasonAlreadyExists, l.Name)
		return
	}
	l.UID = types.UID(fmt.Sprint("uid-", a.version))
	answer(w, http.StatusCreated, a.put(l))
}

func (a *apiServer) update(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var l coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name != r.PathValue("name") {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest, r.PathValue("name"))
		return
	}
	current, found := a.leases[l.Name]
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
	a.leases[l.Name] = l
	close(a.changed)
	a.changed = make(chan struct{})
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
