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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// where each kind of object of the manifests is kept.
var kinds = map[string]string{
	"Lease":          "/apis/coordination.k8s.io/v1/namespaces/default/leases",
	"ServiceAccount": "/api/v1/namespaces/default/serviceaccounts",
	"Service":        "/api/v1/namespaces/default/services",
	"Role":           "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
	"RoleBinding":    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
	"Deployment":     "/apis/apps/v1/namespaces/default/deployments",
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

// With the manifests' permissions alone pods elect a leader and the label follows it, also
// when the one that had it cannot take it away.
func TestLeaderLabel(t *testing.T) {
	k := stores.Kube(t)
	admin := client(t, k, "admin")
	create(t, admin, false, "manifests/candidate.yaml", "manifests/leader-service.yaml")
	var clients []*clientset.Clientset
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		labels := map[string]string{"app": "web"}
		if pod == "web-2" {
			labels[leaderLabel] = "true" // led once, and has crashed
		}
		if _, err := admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: labels},
			Spec:       corev1.PodSpec{ServiceAccountName: "web", Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		as := config(t, k, "admin")
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:web", Groups: []string{"system:serviceaccounts:default"}}
		clients = append(clients, clientOf(t, as))
	}
	eventually(t, "the service account may read", func() bool {
		_, err := decider(clients[0], "web").ReadCurrent(t.Context())
		return err == nil
	})
	selected := func() (names []string) {
		pods, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web," + leaderLabel + "=true"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			names = append(names, p.Name)
		}
		return names
	}
	for i := range 2 {
		pod := fmt.Sprint("web-", i)
		ctx, stop := context.WithCancel(t.Context())
		cfg := labelled(clients[i], "default", "web", pod)
		cfg.TermLength, cfg.MaxClockSkew = 5*time.Second, 100*time.Millisecond
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, pod+" alone has the label", func() bool { return slices.Equal(selected(), []string{pod}) })
		if e := feedtest.Read(t, decider(admin, "web")); e.LeaderID != pod || e.ElectionNumber != leaderelection.ElectionNumber(i+1) {
			t.Errorf("%+v", e)
		}
		stop()
		_ = c.Wait()
		if s := selected(); len(s) != 0 {
			t.Errorf("released, and %v has the label", s)
		}
	}
}
