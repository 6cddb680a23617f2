package kubernetes_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestOpen(t *testing.T) {
	k := stores.Kube(t)
	file := k.Config(t, "admin", "")
	t.Setenv("KUBECONFIG", file)
	for address, place := range map[string]string{
		"kubernetes://default/a?kubeconfig=" + file: "lease default/a",
		"kubernetes://kube-system/b.c?context=test": "lease kube-system/b.c",
		"kubernetes:///d": "lease default/d", // the context's namespace
	} {
		d := opened(t, address)
		if at := k.Address; d.String() != place+" at "+at {
			t.Errorf("%s is %s at %s", address, d, at)
		}
		feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
		namespace, name, _ := strings.Cut(strings.TrimPrefix(place, "lease "), "/")
		if l, err := client(t, k, "admin").CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil || *l.Spec.HolderIdentity != "a" {
			t.Errorf("%s: %+v, %v", address, l, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	feedtest.OpenRefuses(t, kubernetes.Open, map[string]string{
		"k8s://default/a":                                 "scheme",
		"kubernetes://default":                            "no Lease is named",
		"kubernetes://default/":                           "no Lease is named",
		"kubernetes://default/a/b":                        `"a/b"`,
		"kubernetes://default:80/a":                       `"default:80"`,
		"kubernetes://default/A":                          `"A"`,
		"kubernetes://default/a#b":                        "%23",
		"kubernetes://me:s3cret@default/a":                "credentials",
		"kubernetes://default/a?token=s3cret":             "token",
		"kubernetes://default/a?context=x&context=y":      "context",
		"kubernetes://default/a?kubeconfig=":              "kubeconfig",
		"kubernetes://default/a?kubeconfig=/no/such/file": "/no/such/file",
		"kubernetes://default/a?kubeconfig=" + broken:     "kubeconfig",
		"kubernetes://default/a":                          "service account",
	})
}

// A candidate goes on when the API server has another certificate, or takes another token,
// and the files say so: those that the kubeconfig names, and the kubeconfig itself.
func TestRenewed(t *testing.T) {
	s := newImitation()
	a := feedtest.NewAuthority(t, "server")
	var token atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
			return
		}
		s.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(a.Path("server.pem"), a.Path("server.key"))
		return &tls.Config{Certificates: []tls.Certificate{pair}}, err
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	renew := func(as string) {
		a.Renew()
		token.Store(as)
		server.CloseClientConnections()
	}
	renew("")
	server.StartTLS()
	defer server.Close()
	for name, embedded := range map[string]bool{"files of their own": false, "in the kubeconfig": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) string {
				file = filepath.Join(dir, file)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return file
			}
			config := func(token string) string {
				ca, err := os.ReadFile(a.Path("ca.pem"))
				if err != nil {
					t.Fatal(err)
				}
				named := fmt.Sprintf(`"certificate-authority":%q`, write("ca.crt", string(ca)))
				if embedded {
					named = fmt.Sprintf(`"certificate-authority-data":%q`, base64.StdEncoding.EncodeToString(ca))
				}
				return write("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{"name":"test","cluster":{"server":%q,%s}}],
"users":[{"name":"test","user":{"token":%q}}],"contexts":[{"name":"test","context":{"cluster":"test","user":"test"}}]}`, server.URL, named, token))
			}
			renew("first")
			d := opened(t, "kubernetes://default/one?kubeconfig="+config("first"))
			feedtest.Read(t, d)
			for _, c := range []struct{ as, says string }{{"first", "certificate"}, {"second", "credentials"}} {
				renew(c.as)
				if c.as == "second" {
					config("first") // the token's turn
				}
				_, err := d.ReadCurrent(t.Context())
				if err == nil || c.as == "second" && strings.Contains(err.Error(), "certificate") {
					_, err = d.ReadCurrent(t.Context()) // the authority is renewed, the token is not
				}
				feedtest.Permanent(t, err, c.says)
				config(c.as)
				feedtest.Read(t, d)
			}
		})
	}
}

// where each kind of object of the manifests is kept.
var kinds = map[string]string{
	"Lease":          "/apis/coordination.k8s.io/v1/namespaces/default/leases",
	"ServiceAccount": "/api/v1/namespaces/default/serviceaccounts",
	"Service":        "/api/v1/namespaces/default/services",
	"Role":           "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
	"RoleBinding":    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
	"Deployment":     "/apis/apps/v1/namespaces/default/deployments",
	"EndpointSlice":  "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
}

// create sends each object of the files to the API server, which looks at every field.
func create(t testing.TB, admin *clientset.Clientset, dry bool, files ...string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range bytes.Split(text, []byte("\n---\n")) {
			_, rest, _ := strings.Cut("\n"+string(object), "\nkind: ")
			kind, _, _ := strings.Cut(rest, "\n")
			r := admin.CoreV1().RESTClient().Post().AbsPath(kinds[kind]).Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/yaml").Body(object)
			if dry {
				r.Param("dryRun", "All")
			}
			if err := r.Do(t.Context()).Error(); err != nil {
				t.Errorf("%s, %s: %v", file, kind, err)
			}
		}
	}
}

// The manifests are what the API server takes.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("manifests/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	admin := client(t, stores.Kube(t), "admin")
	create(t, admin, true, files...)
	if list, err := admin.RbacV1().Roles("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("a dry run has made %v, %v", list, err)
	}
}

// The manifests' permissions are enough for the election, and to have the Service lead to a pod; and
// pods may not be touched.
func TestManifestsPermissions(t *testing.T) {
	k := stores.Kube(t)
	create(t, client(t, k, "admin"), false, "manifests/candidate.yaml", "manifests/leader-service.yaml")
	as := config(t, k, "admin")
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:web", Groups: []string{"system:serviceaccounts:default"}}
	clients := clientOf(t, as)
	d := decider(clients, "web")
	feedtest.Eventually(t, "the service account may read", func() bool { return feedtest.ReadError(t, d) == nil })
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Number(t, feedtest.Follow(t, d), 1)
	slices := clients.DiscoveryV1().EndpointSlices("default")
	s, err := slices.Get(t.Context(), "web-leader", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.9"}}}
	if _, err := slices.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing pods: %v", err)
	}
}
