package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
