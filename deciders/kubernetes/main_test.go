package kubernetes_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(openBy)
	goleak.VerifyTestMain(m)
}

// openBy is Open of a URL whose parameter server says where the API server is reached.
func openBy(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
	q := u.Query()
	file := q.Get("kubeconfig")
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	for _, c := range cfg.Clusters {
		c.Server = "https://" + q.Get("server")
	}
	file += strings.NewReplacer(":", "-").Replace(q.Get("server"))
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		return nil, err
	}
	q.Set("kubeconfig", file)
	q.Del("server")
	u.RawQuery = q.Encode()
	return kubernetes.Open(ctx, u)
}

// kubeconfig writes one for the API server at a URL, whose certificate is not looked at.
func kubeconfig(t testing.TB, server string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"x"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// config is that of a client for the user with this token.
func config(t testing.TB, k *stores.KubeServer, token string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", k.Config(t, token, ""))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// client returns a clientset.
func client(t testing.TB, k *stores.KubeServer, token string) *clientset.Clientset {
	t.Helper()
	return clientOf(t, config(t, k, token))
}

func clientOf(t testing.TB, cfg *rest.Config) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CoordinationV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections)
	return c
}

// decider is the election in a Lease of the namespace default.
func decider(c clientset.Interface, name string) *kubernetes.Decider {
	return kubernetes.NewDecider(c.CoordinationV1().RESTClient(), "default", name, nil)
}

// elections returns what makes an election after the other, each in a Lease of the test's
// own, each handle with a client of its own.
func elections(k *stores.KubeServer) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider { return decider(client(t, k, "admin"), name) }
	}
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *kubernetes.Decider {
	t.Helper()
	return feedtest.Opened(t, kubernetes.Open, address)
}

// silently is ctx for client-go, which is to log nothing.
func silently(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
