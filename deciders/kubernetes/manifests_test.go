package kubernetes_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

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

// With the manifests' permissions alone pods elect a leader and the Service follows it, even
// when the one that it led to has crashed; and pods may not be touched.
func TestLeaderService(t *testing.T) {
	k := stores.Kube(t)
	admin := client(t, k, "admin")
	create(t, admin, false, "manifests/candidate.yaml", "manifests/leader-service.yaml")
	as := config(t, k, "admin")
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:web", Groups: []string{"system:serviceaccounts:default"}}
	clients := clientOf(t, as)
	feedtest.Eventually(t, "the service account may read", func() bool {
		_, err := decider(clients, "web").ReadCurrent(t.Context())
		return err == nil
	})
	if _, err := clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing pods: %v", err)
	}
	leads := func() (addresses []string) {
		all, err := admin.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web-leader"})
		if err != nil || len(all.Items) != 1 {
			t.Fatal(all, err)
		}
		for _, e := range all.Items[0].Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		return addresses
	}
	if err := PointHere(t.Context(), admin, "default", "web-leader", "10.1.0.9", 0); err != nil { // led, and has crashed
		t.Fatal(err)
	}
	var number leaderelection.ElectionNumber
	for i := range 2 {
		pod, address := fmt.Sprint("web-", i), fmt.Sprint("10.1.0.", i+1)
		ctx, stop := context.WithCancel(t.Context())
		cfg := served(clients, "default", "web", pod, address)
		cfg.TermLength, cfg.MaxClockSkew = 5*time.Second, 100*time.Millisecond
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		feedtest.Eventually(t, "the Service leads to "+pod, func() bool { return slices.Equal(leads(), []string{address}) })
		e := feedtest.Read(t, decider(admin, "web"))
		if e.LeaderID != pod || e.ElectionNumber <= number {
			t.Errorf("%+v", e)
		}
		if number > 0 {
			if err := PointHere(t.Context(), clients, "default", "web-leader", "10.1.0.1", number); err != nil || !slices.Equal(leads(), []string{address}) {
				t.Errorf("written late by the leader before, it leads to %q: %v", leads(), err)
			}
		}
		number = e.ElectionNumber
		stop()
		_ = c.Wait()
		if at := leads(); len(at) != 0 {
			t.Errorf("released, and it leads to %q", at)
		}
	}
}
