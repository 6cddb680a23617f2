package stores

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// KubeServer is a kube-apiserver: a process of its own, with an etcd of its own. It keeps
// its data and its address when it is stopped and started again.
type KubeServer struct {
	nested
	// Etcd keeps its objects, and goes on when this is stopped.
	Etcd *EtcdMember
	// Address is where it serves, with TLS: host and port.
	Address string

	dir string
}

// Kube starts a kube-apiserver, with more arguments for it. There are the users "admin", who
// may do everything, "candidate" and "nobody"; each one's token is the name. To build it
// takes minutes: make kube does that before any test's time runs.
func Kube(t testing.TB, args ...string) *KubeServer {
	t.Helper()
	Nightly(t, "it starts a kube-apiserver")
	return KubeOn(t, Etcd(t), args...)
}

// KubeOn starts a kube-apiserver on an etcd, which several may share.
func KubeOn(t testing.TB, etcd *EtcdMember, args ...string) *KubeServer {
	t.Helper()
	Nightly(t, "it starts a kube-apiserver")
	k := &KubeServer{Etcd: etcd, Address: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), dir: t.TempDir()}
	k.nested = nested{server: "kube", args: append([]string{"-data", k.dir, "-etcd", etcd.Endpoint, "-address", k.Address, "--"}, args...)}
	k.Start(t)
	return k
}

// CA is the file of the authority of its certificate.
func (k *KubeServer) CA() string { return filepath.Join(k.dir, "api", "apiserver.crt") }

// Config returns the file of a kubeconfig for the user that has this token. Server is
// where the API server is reached: empty for its own address, or that of a proxy.
func (k *KubeServer) Config(t testing.TB, token, server string) string {
	t.Helper()
	if server == "" {
		server = k.Address
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test",
"clusters":[{"name":"test","cluster":{"server":"https://%s","certificate-authority":%q}}],
"users":[{"name":"test","user":{"token":%q}}],
"contexts":[{"name":"test","context":{"cluster":"test","user":"test","namespace":"default"}}]}`, server, k.CA(), token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Compact has etcd forget all versions of objects but the present ones.
func (k *KubeServer) Compact(t testing.TB) {
	t.Helper()
	var revision string
	status := k.gateway(t, "maintenance/status", "{}")
	if _, rest, found := strings.Cut(status, `"revision":"`); found {
		revision, _, _ = strings.Cut(rest, `"`)
	}
	k.gateway(t, "kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, revision))
}

// gateway makes a call of etcd's API by JSON.
func (k *KubeServer) gateway(t testing.TB, method, body string) string {
	t.Helper()
	answer, err := ask(t.Context(), http.MethodPost, "http://"+k.Etcd.Endpoint+"/v3/"+method, body)
	if err != nil {
		t.Fatalf("stores: etcd's %s: %v", method, err)
	}
	return answer
}
