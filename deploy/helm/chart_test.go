//go:build packages && linux

// Package helm tests the chart, with Helm and before a kube-apiserver.
package helm_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
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
	"time"

	docs "github.com/c8e606e4/leaderelection/internal/test/pages"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return text
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

// command is one that ends with the test's process.
func command(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), stores.Need(t, words[0]), words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// eventually waits until done says so.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// operator is where the definition of PodMonitor comes from.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// settings of the chart, beside its own.
var settings = map[string]string{
	"as it comes":           "",
	"with monitor":          "{podMonitor: {enabled: true, labels: {release: prometheus}}, networkPolicy: {election: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}}",
	"no policy":             "{podMonitor: {enabled: true}, networkPolicy: {enabled: false}}",
	"another store":         `{election: {store: "s3://elections/web?region=eu-central-1", envFrom: [{secretRef: {name: aws}}]}, leaderService: {enabled: false}, serviceAccount: {create: false}}`,
	"a Lease that is there": "{election: {lease: {name: old, create: false}}, serviceAccount: {create: false, name: other}, leaderService: {addressType: IPv6}}",
	"all settings": `{nameOverride: app, fullnameOverride: shop, replicaCount: 5, deployment: {strategy: {type: Recreate}},
  app: {imagePullPolicy: Always, command: [/app], args: [--serve], env: [{name: A, value: b}], envFrom: [{configMapRef: {name: a}}], resources: {limits: {memory: 64Mi}},
    readinessProbe: {httpGet: {path: /, port: http}}, livenessProbe: {httpGet: {path: /, port: http}}, volumeMounts: [{name: tmp, mountPath: /tmp}],
    lifecycle: {preStop: {exec: {command: [/bin/sleep, "5"]}}}, securityContext: {readOnlyRootFilesystem: true}},
  election: {image: {tag: v1}, readOnly: false, args: [--log-format=json], env: [{name: GOMAXPROCS, value: "1"}]}, podMonitor: {enabled: true},
  service: {annotations: {a: b}}, leaderService: {annotations: {a: b}}, podDisruptionBudget: {minAvailable: 1},
  networkPolicy: {enabled: true, election: [{namespaceSelector: {matchLabels: {a: b}}}]},
  serviceAccount: {name: other, annotations: {a: b}}, podAnnotations: {a: b}, podLabels: {a: b},
  pod: {imagePullSecrets: [{name: pull}], nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], priorityClassName: a, volumes: [{name: tmp, emptyDir: {}}],
    initContainers: [{name: before, image: busybox}], affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}},
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}`,
}

// documented are the values that docs/kubernetes.md shows.
func documented(t *testing.T) string {
	t.Helper()
	blocks, err := docs.Read(stores.Root(t), "kubernetes.md")
	must(t, err)
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
	"election: {skew: 20s}": "at least twice", "election: {term: 1m, skew: 0.6m}": "at least twice", "serviceAccount: {create: false}": "serviceAccount.name",
	"podMonitor: {enabled: true}": "must name Prometheus", "election: {readOnly: 1}": "/election/readOnly", "election: {args: [--secret-file=/s]}": "election.readOnly=false", "podLabels: {app.kubernetes.io/name: x}": "/podLabels", "pod: {automountServiceAccountToken: true}": "/pod", "app: {image: x, port: 1, name: y}": "/app",
}

// charter is Helm, with directories of its own and the cluster of a kubeconfig.
type charter struct{ program, dir string }

// chart is the chart's directory.
func chart(t *testing.T) string { return filepath.Join(stores.Root(t), "deploy/helm/leaderelect") }

func newCharter(t *testing.T) charter {
	t.Helper()
	c := charter{filepath.Join(stores.Root(t), "bin/helm"), t.TempDir()}
	if _, err := os.Stat(c.program); err != nil {
		t.Fatal(err, ": run make packages")
	}
	return c
}

// run runs Helm with these values. Config is the file of a kubeconfig, if a cluster is needed.
func (c charter) run(t *testing.T, config, values string, args ...string) (out, complaint string, err error) {
	t.Helper()
	if values != "" {
		file := filepath.Join(t.TempDir(), "values.yaml")
		write(t, file, values)
		args = append(args, "--values", file)
	}
	cmd := command(t, append([]string{c.program}, args...)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+c.dir, "HELM_CONFIG_HOME="+c.dir, "HELM_DATA_HOME="+c.dir, "KUBECONFIG="+config)
	var said, failed strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &failed
	err = cmd.Run()
	return said.String(), failed.String(), err
}

// render returns what an installation as web would make, after the chart was linted.
func (c charter) render(t *testing.T, values string) (objects []string, complaint string, err error) {
	t.Helper()
	if found, failed, err := c.run(t, "", values, "lint", "--strict", chart(t)); err != nil {
		return nil, found + failed, err
	}
	out, failed, err := c.run(t, "", values, "template", "web", chart(t), "--namespace", "default")
	for _, object := range regexp.MustCompile(`(?m)^---$`).Split(out, -1) {
		if strings.Contains(object, "\nkind:") {
			objects = append(objects, object)
		}
	}
	return objects, failed, err
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
	must(t, err)
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
	if warning := answer.Header.Get("Warning"); err == nil && strings.Contains(warning, "PodSecurity") {
		err = errors.New(warning)
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
	must(t, c.call(t, "", http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podmonitors.monitoring.coreos.com?fieldManager=test", definition, nil))
	eventually(t, "PodMonitors are served", func() bool {
		return c.call(t, "", http.MethodGet, "/apis/monitoring.coreos.com/v1/namespaces/default/podmonitors", "", nil) == nil
	})
}

// The chart passes Helm's linter, and with each setting the API server takes what it makes. Its pods are "restricted".
func TestChart(t *testing.T) {
	helm, kube := newCharter(t), newCluster(t)
	kube.define(t)
	kinds := map[string]bool{}
	all := maps.Clone(settings)
	all["as docs/kubernetes.md has it"] = documented(t)
	restricted := `{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {pod-security.kubernetes.io/warn: restricted}}}`
	must(t, kube.call(t, "", http.MethodPatch, "/api/v1/namespaces/default?fieldManager=test", restricted, nil))
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
	for _, kind := range []string{"Deployment", "Lease", "Role", "RoleBinding", "ServiceAccount", "Service", "EndpointSlice", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"} {
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
	args := sidecarArgs(t, objects)
	for _, object := range objects {
		if field(object, "", "kind") != "Deployment" {
			must(t, kube.apply(t, object, false))
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
		{http.MethodGet, "/api/v1/namespaces/default/pods"}, {http.MethodGet, "/api/v1/namespaces/default/secrets"},
		{http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"}, {http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/other"},
	} {
		if err := kube.call(t, account, no.method, no.path, "{}", nil); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s %s: %v, want 403", no.method, no.path, err)
		}
	}
	var pods []*exec.Cmd
	for i, address := range []string{"10.1.0.1", "10.1.0.2"} {
		p := command(t, filepath.Join(stores.Root(t), "bin/leaderelect"))
		for _, arg := range args {
			p.Args = append(p.Args, strings.ReplaceAll(arg, "--host-port=:8080", "--host-port="+address+":8080"))
		}
		pod := fmt.Sprint("web-", i)
		p.Env = []string{"LEADERELECT_ID=" + pod, "KUBECONFIG=" + config}
		p.Stderr = logs(t, pod)
		must(t, p.Start())
		pods = append(pods, p)
		eventually(t, "the Service leads to web-0", func() bool { return kube.leads(t) == "10.1.0.1" })
	}
	for i, then := range []string{"10.1.0.2", ""} {
		must(t, pods[i].Process.Signal(syscall.SIGTERM))
		if err := pods[i].Wait(); err != nil {
			t.Errorf("web-%d: %v", i, err)
		}
		eventually(t, "the Service leads to "+then, func() bool { return kube.leads(t) == then })
	}
}

// No container of the pod can make the leader step down by the sidecar, unless election.readOnly is false: then
// all can, or those that have a secret.
func TestChartIsReadOnly(t *testing.T) {
	helm := newCharter(t)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "sixteen characters, or more")
	for _, c := range []struct {
		name, values, authorization string
		status                      int
	}{
		{"as it comes", "", "", http.StatusForbidden},
		{"not read-only", "{election: {readOnly: false}}", "", http.StatusAccepted},
		{"a secret that is missing", "{election: {readOnly: false, args: [--secret-file=" + secret + "]}}", "", http.StatusForbidden},
		{"a secret", "{election: {readOnly: false, args: [--secret-file=" + secret + "]}}", "Bearer sixteen characters, or more", http.StatusAccepted},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, complaint, err := helm.render(t, c.values)
			if err != nil {
				t.Fatal(err, complaint)
			}
			p := command(t, append([]string{filepath.Join(stores.Root(t), "bin/leaderelect")}, sidecarArgs(t, objects)...)...)
			for i, arg := range p.Args { // no cluster
				switch {
				case strings.HasPrefix(arg, "kubernetes:"):
					p.Args[i] = "file://" + filepath.Join(t.TempDir(), "election.json")
				case strings.HasPrefix(arg, "--endpoint-slice="):
					p.Args[i] = "--log-format=text"
				}
			}
			log := logs(t, "log")
			p.Env, p.Stderr = []string{"LEADERELECT_ID=web-0"}, log
			must(t, p.Start())
			var at string
			eventually(t, "it leads", func() bool {
				m := regexp.MustCompile(`url=(http://\S+)`).FindSubmatch(read(t, log.Name()))
				if m == nil {
					return false
				}
				at = string(m[1])
				return ask(t, http.MethodGet, at+"/leader", "") == http.StatusOK
			})
			if got := ask(t, http.MethodPost, at+"/stepdown", c.authorization); got != c.status {
				t.Errorf("POST /stepdown is answered %d, want %d", got, c.status)
			}
			if err := errors.Join(p.Process.Signal(syscall.SIGTERM), p.Wait()); err != nil {
				t.Error(err)
			}
		})
	}
}

// ask makes a request of a sidecar, and returns the status of the answer.
func ask(t *testing.T, method, address, authorization string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	must(t, err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	return answer.StatusCode
}

// sidecarArgs are those of the Deployment, the only object that has some, but for the port.
func sidecarArgs(t *testing.T, objects []string) (args []string) {
	t.Helper()
	_, list, _ := strings.Cut(strings.Join(objects, ""), "\n          args:\n")
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

// leads is the address that the Service web-leader leads to, or nothing.
func (c *cluster) leads(t *testing.T) string {
	t.Helper()
	var slice struct {
		Endpoints []struct{ Addresses []string }
	}
	must(t, c.call(t, "", http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-leader", "", &slice))
	var at []string
	for _, e := range slice.Endpoints {
		at = append(at, e.Addresses...)
	}
	return strings.Join(at, " ")
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases/"

// lease is the version of a Lease, which grows with each write.
func (c *cluster) lease(t *testing.T, name string) string {
	t.Helper()
	var l struct {
		Metadata struct{ UID, ResourceVersion string }
	}
	must(t, c.call(t, "", http.MethodGet, leasesPath+name, "", &l))
	return l.Metadata.UID + " " + l.Metadata.ResourceVersion
}

// Whatever is done to a release, by force, back, with another store between, or to the end: it works,
// and nothing touches the Lease.
func TestChartLives(t *testing.T) {
	helm, kube := newCharter(t), newCluster(t)
	config := kube.Config(t, "admin", "")
	do := func(values string, args ...string) {
		t.Helper()
		if out, complaint, err := helm.run(t, config, values, args...); err != nil {
			t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, complaint)
		}
	}
	const elsewhere = `{election: {store: "s3://elections/web?region=eu-central-1"}}`
	do("", "install", "web", chart(t))
	is := kube.lease(t, "web")
	for _, step := range []struct {
		values string
		args   []string
	}{
		{"replicaCount: 2", []string{"upgrade", "web", chart(t)}},
		{"replicaCount: 4", []string{"upgrade", "--force", "web", chart(t)}},
		{"", []string{"rollback", "web", "1"}},
		{"", []string{"rollback", "--force", "web", "2"}},
		{elsewhere, []string{"upgrade", "web", chart(t)}},
		{"", []string{"rollback", "web", "1"}},
		{elsewhere, []string{"upgrade", "--force", "web", chart(t)}},
		{"", []string{"upgrade", "web", chart(t)}},
		{"", []string{"uninstall", "web"}},
		{"", []string{"install", "web", chart(t)}},
	} {
		do(step.values, step.args...)
		if now := kube.lease(t, "web"); now != is {
			t.Fatalf("helm %s: the Lease is %s, was %s", strings.Join(step.args, " "), now, is)
		}
	}
	// Another release beside it, and one whose Lease is there: client-go's.
	do("", "install", "api", chart(t))
	must(t, kube.call(t, "", http.MethodPost, strings.TrimSuffix(leasesPath, "/"), `{"metadata":{"name":"old"},"spec":{"holderIdentity":"x","leaseDurationSeconds":15,"leaseTransitions":3}}`, nil))
	old, api := kube.lease(t, "old"), kube.lease(t, "api")
	do("election: {lease: {name: old}}", "install", "moved", chart(t))
	if kube.lease(t, "old") != old || kube.lease(t, "api") != api || kube.lease(t, "web") != is {
		t.Error("a release has touched another's Lease")
	}
	if err := kube.call(t, "", http.MethodGet, leasesPath+"moved", "", nil); err == nil {
		t.Error("it has made a Lease of its own")
	}
}

// logs is a file that is shown if the test fails.
func logs(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	must(t, err)
	t.Cleanup(func() {
		_ = f.Close()
		if t.Failed() {
			t.Logf("%s:\n%s", name, read(t, f.Name()))
		}
	})
	return f
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
