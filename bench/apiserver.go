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
)

// apiServer is as much of a Kubernetes API server as Leases need: get, create and
// update over HTTP, where an update that names a resourceVersion is refused with
// 409 Conflict unless it is the current one.
type apiServer struct {
	mu      sync.Mutex
	version int
	leases  map[string]coordination.Lease // by name
}

// kubernetesServer starts an API server and returns its host and port.
func kubernetesServer(t testing.TB) string {
	a := &apiServer{leases: map[string]coordination.Lease{}}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+leases+"/{name}", a.get)
	mux.HandleFunc("POST "+leases, a.create)
	mux.HandleFunc("PUT "+leases+"/{name}", a.update)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func (a *apiServer) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, found := a.leases[r.PathValue("name")]
	if !found {
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound)
		return
	}
	answer(w, http.StatusOK, l)
}

func (a *apiServer) create(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var l coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name == "" {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest)
		return
	}
	if _, found := a.leases[l.Name]; found {
		refuse(w, http.StatusConflict, meta.StatusReasonAlreadyExists)
		return
	}
	answer(w, http.StatusCreated, a.put(l))
}

func (a *apiServer) update(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var l coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil || l.Name != r.PathValue("name") {
		refuse(w, http.StatusBadRequest, meta.StatusReasonBadRequest)
		return
	}
	current, found := a.leases[l.Name]
	switch {
	case !found:
		refuse(w, http.StatusNotFound, meta.StatusReasonNotFound)
	case l.ResourceVersion != "" && l.ResourceVersion != current.ResourceVersion:
		refuse(w, http.StatusConflict, meta.StatusReasonConflict)
	default:
		answer(w, http.StatusOK, a.put(l))
	}
}

func (a *apiServer) put(l coordination.Lease) coordination.Lease {
	a.version++
	l.Namespace, l.ResourceVersion = namespace, strconv.Itoa(a.version)
	l.TypeMeta = meta.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	a.leases[l.Name] = l
	return l
}

func refuse(w http.ResponseWriter, code int, reason meta.StatusReason) {
	answer(w, code, meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   meta.StatusFailure, Reason: reason, Code: int32(code), Message: fmt.Sprint("refused: ", reason),
	})
}

func answer(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what) // the client has left
}
