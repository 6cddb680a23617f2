//go:build packages && linux

package packages_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	docs "github.com/c8e606e4/leaderelection/internal/pages"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// operator is where the definition of PodMonitor comes from.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// settings of the chart, beside its own.
var settings = map[string]string{
	"as it comes":   "",
	"with monitor":  "podMonitor: {enabled: true, labels: {release: prometheus}}",
	"another store": `{election: {store: "s3://elections/web?region=eu-central-1", envFrom: [{secretRef: {name: aws}}]}, leaderService: {enabled: false}, serviceAccount: {create: false}}`,
	"all settings": `{replicaCount: 5, app: {command: [/app], args: [--serve], env: [{name: A, value: b}], resources: {limits: {memory: 64Mi}},
  readinessProbe: {httpGet: {path: /, port: http}}, livenessProbe: {httpGet: {path: /, port: http}}},
  election: {image: {tag: v1}, args: [--log-format=json], env: [{name: GOMAXPROCS, value: "1"}]}, podMonitor: {enabled: true},
  serviceAccount: {name: other, annotations: {a: b}}, imagePullSecrets: [{name: pull}], podAnnotations: {a: b}, podLabels: {a: b},
  securityContext: {readOnlyRootFilesystem: true}, nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}],
  affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}}`,
}

// documented are the values that docs/kubernetes.md shows.
func documented(t *testing.T) string {
	t.Helper()
	blocks, err := docs.Read(stores.Root(t), "kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Note == "values.yaml" {
			return b.Text
		}
	}
	t.Fatal("docs/kubernetes.md has no values.yaml")
	return ""
}

// wrong settings, and what is said of each.
var wrong = map[string]string{
	"replicas: 2": "replicas", "election: {store: web}": "/election/store", "election: {term: 15}": "/election/term", "replicaCount: two": "/replicaCount",
}

// charter renders the chart, after it was linted.
type charter string

func newCharter(t *testing.T) charter {
	t.Helper()
	helm := filepath.Join(t.TempDir(), "helm")
	build := command(t, "go", "build", "-o", helm, ".")
	build.Dir, build.Env = filepath.Join(stores.Root(t), "internal/servers/helm"), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building helm: %v\n%s", err, out)
	}
	return charter(helm)
}

func (c charter) render(t *testing.T, values string) (objects []string, complaint string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	write(t, file, values)
	cmd := command(t, string(c), "-release", "web", "-namespace", "default", "-values", file, filepath.Join(stores.Root(t), "deploy/helm/leaderelect"))
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	for _, object := range regexp.MustCompile(`(?m)^---$`).Split(string(out), -1) {
		if strings.Contains(object, "\nkind:") {
			objects = append(objects, object)
		}
	}
	return objects, failed.String(), err
}

// field is the first value of a field of a YAML document, at that depth.
func field(object, indent, name string) string {
	m := regexp.MustCompile(`(?m)^` + indent + name + `: (\S+)$`).FindStringSubmatch(object)
	if m == nil {
		return ""
	}
	return strings.Trim(m[1], `"`)
}

// cluster is a kube-apiserver, asked as its administrator.
type cluster struct {
	*stores.KubeServer
	client *http.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	k := stores.Kube(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, k.CA()))
	c := &cluster{k, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// call makes a request, as the user if there is one, and decodes its answer.
func (c *cluster) call(t *testing.T, user, method, path, body string, into any) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+c.Address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin")
	if user != "" {
		r.Header.Set("Impersonate-User", user)
	}
	r.Header.Set("Content-Type", map[string]string{http.MethodPatch: "application/apply-patch+yaml"}[method])
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// where is the path of an object, as the API server says where its kind is kept.
func (c *cluster) where(t *testing.T, object string) (string, error) {
	t.Helper()
	version, kind := field(object, "", "apiVersion"), field(object, "", "kind")
	base := "/apis/" + version
	if version == "v1" {
		base = "/api/v1"
	}
	var list struct {
		Resources []struct {
			Name, Kind string
			Namespaced bool
		}
	}
	if err := c.call(t, "", http.MethodGet, base, "", &list); err != nil {
		return "", fmt.Errorf("%s: %w", version, err)
	}
	for _, r := range list.Resources {
		if r.Kind == kind && !strings.Contains(r.Name, "/") {
			if r.Namespaced {
				base += "/namespaces/default"
			}
			return base + "/" + r.Name + "/" + field(object, "  ", "name"), nil
		}
	}
	return "", fmt.Errorf("there is no kind %s %s", version, kind)
}

// apply is kubectl apply --server-side, with strict validation.
func (c *cluster) apply(t *testing.T, object string, dry bool) error {
	t.Helper()
	path, err := c.where(t, object)
	if err != nil {
		return err
	}
	query := url.Values{"fieldManager": {"test"}, "fieldValidation": {"Strict"}}
	if dry {
		query.Set("dryRun", "All")
	}
	return c.call(t, "", http.MethodPatch, path+"?"+query.Encode(), object, nil)
}

// define gives the API server the definition of PodMonitor.
func (c *cluster) define(t *testing.T) {
	t.Helper()
	var module struct{ Dir string }
	download := command(t, "go", "mod", "download", "-json", operator)
	download.Dir, download.Env = t.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := download.Output()
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", operator, err, out)
	}
	definition := string(read(t, filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml")))
	if err := c.call(t, "", http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podmonitors.monitoring.coreos.com?fieldManager=test", definition, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "PodMonitors are served", func() bool {
		return c.call(t, "", http.MethodGet, "/apis/monitoring.coreos.com/v1/namespaces/default/podmonitors", "", nil) == nil
	})
}

// The chart passes Helm's linter, and with each setting the API server takes what it makes.
func TestChart(t *testing.T) {
	helm, kube := newCharter(t), newCluster(t)
	kube.define(t)
	kinds := map[string]bool{}
	all := maps.Clone(settings)
	all["as docs/kubernetes.md has it"] = documented(t)
	for name, values := range all {
		objects, complaint, err := helm.render(t, values)
		if err != nil || len(objects) < 3 {
			t.Errorf("%s: %d objects, %v\n%s", name, len(objects), err, complaint)
		}
		for _, object := range objects {
			kinds[field(object, "", "kind")] = true
			if err := kube.apply(t, object, true); err != nil {
				t.Errorf("%s: %v\n%s", name, err, object)
			}
			if err := kube.apply(t, object+"\nnoSuchField: 1\n", true); err == nil || !strings.Contains(err.Error(), "noSuchField") {
				t.Errorf("%s: an unknown field gives %v, so this is no check of\n%s", name, err, object)
			}
		}
	}
	for _, kind := range []string{"Deployment", "Lease", "Role", "RoleBinding", "ServiceAccount", "Service", "PodDisruptionBudget", "PodMonitor"} {
		if !kinds[kind] {
			t.Errorf("no setting makes a %s", kind)
		}
	}
	var made struct{ Items []any }
	if err := kube.call(t, "", http.MethodGet, "/apis/apps/v1/namespaces/default/deployments", "", &made); err != nil || len(made.Items) > 0 {
		t.Errorf("a dry run has made %v, %v", made.Items, err)
	}
	for values, about := range wrong {
		if _, complaint, err := helm.render(t, values); err == nil || !strings.Contains(complaint, about) {
			t.Errorf("%s: %v; lint says nothing of %s:\n%s", values, err, about, complaint)
		}
	}
}

const account = "system:serviceaccount:default:web"

// With the chart's permissions alone two pods' sidecars, started as the chart starts them, elect
// a leader, and the leader's Service has the pod that leads, and no other.
func TestChartElects(t *testing.T) {
	helm, kube := newCharter(t), newCluster(t)
	objects, complaint, err := helm.render(t, "")
	if err != nil {
		t.Fatal(err, complaint)
	}
	var args []string
	for _, object := range objects {
		if field(object, "", "kind") == "Deployment" {
			args = sidecarArgs(t, object)
			continue
		}
		if err := kube.apply(t, object, false); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := bytes.Replace(read(t, kube.Config(t, "admin", "")), []byte(`"token":"admin"`), []byte(`"token":"admin","as":"`+account+`"`), 1)
	write(t, config, string(text))
	eventually(t, "the service account may read", func() bool {
		return kube.call(t, account, http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/default/leases/web", "", nil) == nil
	})
	for _, no := range []struct{ method, path string }{
		{http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases"}, {http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/default/leases/other"},
		{http.MethodDelete, "/api/v1/namespaces/default/pods/web-0"}, {http.MethodGet, "/api/v1/namespaces/default/secrets"},
	} {
		if err := kube.call(t, account, no.method, no.path, "{}", nil); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s %s: %v, want 403", no.method, no.path, err)
		}
	}
	selected := kube.selected(t, "web-leader")
	var pods []*exec.Cmd
	for _, pod := range []string{"web-0", "web-1"} {
		labels := `"app.kubernetes.io/name":"leaderelect","app.kubernetes.io/instance":"web"`
		if pod == "web-1" {
			labels += `,"leaderelection/leader":"true"` // led once, and has crashed
		}
		body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{%s}},"spec":{"serviceAccountName":"web","containers":[{"name":"app","image":"registry.example/app:1"}]}}`, pod, labels)
		if err := kube.call(t, "", http.MethodPost, "/api/v1/namespaces/default/pods", body, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []string{"web-0", "web-1"} {
		p := command(t, append([]string{filepath.Join(stores.Root(t), "bin/leaderelect")}, args...)...)
		p.Env = []string{"LEADERELECT_ID=" + pod, "KUBECONFIG=" + config}
		p.Stderr = logs(t, pod)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
		eventually(t, "web-0 is the leader's Service", func() bool { return selected() == "web-0" })
	}
	for i, then := range []string{"web-1", ""} {
		if err := pods[i].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := pods[i].Wait(); err != nil {
			t.Errorf("web-%d: %v", i, err)
		}
		eventually(t, "the Service has "+then, func() bool { return selected() == then })
	}
}

// sidecarArgs are those of the Deployment, but for the port.
func sidecarArgs(t *testing.T, deployment string) (args []string) {
	t.Helper()
	_, list, _ := strings.Cut(deployment, "\n          args:\n")
	for line := range strings.Lines(list) {
		arg, found := strings.CutPrefix(strings.TrimRight(line, "\n"), "            - ")
		if !found {
			break
		}
		args = append(args, strings.ReplaceAll(strings.Trim(arg, `"`), "--listen=:4040", "--listen=127.0.0.1:0"))
	}
	if len(args) < 5 || args[0] != "sidecar" {
		t.Fatalf("the sidecar's arguments are %q", args)
	}
	return args
}

// selected returns what a Service selects: names of pods.
func (c *cluster) selected(t *testing.T, name string) func() string {
	t.Helper()
	var service struct {
		Spec struct{ Selector map[string]string }
	}
	if err := c.call(t, "", http.MethodGet, "/api/v1/namespaces/default/services/"+name, "", &service); err != nil {
		t.Fatal(err)
	}
	var selector []string
	for k, v := range service.Spec.Selector {
		selector = append(selector, k+"="+v)
	}
	query := url.Values{"labelSelector": {strings.Join(selector, ",")}}
	return func() string {
		var pods struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		if err := c.call(t, "", http.MethodGet, "/api/v1/namespaces/default/pods?"+query.Encode(), "", &pods); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range pods.Items {
			names = append(names, p.Metadata.Name)
		}
		return strings.Join(names, " ")
	}
}

// logs is a file that is shown if the test fails.
func logs(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.Close()
		if t.Failed() {
			t.Logf("%s:\n%s", name, read(t, f.Name()))
		}
	})
	return f
}
