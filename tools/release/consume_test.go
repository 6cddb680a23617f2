package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

// market is where a release of what is committed can be had, for one test.
type market struct {
	*Release
	version string
	env     []string
}

// open makes a release and serves it as files. Its version is of this run only, and taken out
// of the machine's module cache at the end, which has the other modules for all runs.
func open(t *testing.T) *market {
	t.Helper()
	root, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	m := &market{version: fmt.Sprintf("v0.0.1-consume.%d", time.Now().UnixNano())}
	if m.Release, err = Make(root, t.TempDir(), m.version, proxy); err != nil {
		t.Fatal(err)
	}
	before := m.run(t, root, "go", "env", "GOPROXY")
	m.env = []string{"GOPROXY=file://" + proxy + "," + before, "GOFLAGS=-modcacherw", "GOWORK=off", "GONOSUMDB=" + m.Path, "GOSUMDB=off"}
	cache := m.run(t, root, "go", "env", "GOMODCACHE")
	t.Cleanup(func() { m.forget(t, cache) })
	return m
}

// forget removes this run's version from the module cache.
func (m *market) forget(t *testing.T, cache string) {
	for _, o := range m.Modules {
		path, err := module.EscapePath(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(path), "@v", m.version+".*"))
		for _, name := range append(found, filepath.Join(cache, filepath.FromSlash(path)+"@"+m.version)) {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	}
}

// run runs a command outside of the workspace and returns what it prints.
func (m *market) run(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), m.env...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, failed.String())
	}
	return strings.TrimSpace(string(out))
}

// consumer makes a program elsewhere that imports packages of modules, each of which it gets
// with go get, after it had required these versions of others.
func (m *market) consumer(t *testing.T, modules, packages, had []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := "package main\n\nimport (\n"
	for _, p := range packages {
		text += "\t_ \"" + p + "\"\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text+")\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.run(t, dir, "go", "mod", "init", "example.com/consumer")
	m.run(t, dir, "go", "mod", "edit", "-go=1.24.0")
	for _, v := range had {
		m.run(t, dir, "go", "mod", "edit", "-require="+v)
	}
	for _, path := range modules {
		m.run(t, dir, "go", "get", path+"@"+m.version)
	}
	return dir
}

// modules returns what the consumer in dir is built of, each as path@version.
func (m *market) modules(t *testing.T, dir string) []string {
	t.Helper()
	all := strings.Fields(m.run(t, dir, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}@{{.Version}}{{end}}", "all"))
	slices.Sort(all)
	return all
}

func (m *market) goVersion(t *testing.T, dir string) string {
	t.Helper()
	return m.run(t, dir, "go", "list", "-m", "-f", "{{.GoVersion}}")
}

// The root brings nothing along but what deciders/file and its own tests need, and no newer Go.
func TestConsumeRoot(t *testing.T) {
	m := open(t)
	packages := []string{m.Path}
	for _, p := range []string{"clocks", "deciders/memory", "deciders/file", "deciders/hinted", "deciders/decidertest", "fence", "lehttp", "leslog"} {
		packages = append(packages, m.Path+"/"+p)
	}
	dir := m.consumer(t, []string{m.Path}, packages, nil)
	m.run(t, dir, "go", "build", "-o", os.DevNull, ".")
	all := m.modules(t, dir)
	t.Log(all)
	var got []string
	for _, v := range all {
		path, _, _ := strings.Cut(v, "@")
		got = append(got, path)
	}
	want := []string{m.Path, "github.com/fsnotify/fsnotify", "go.uber.org/goleak", "golang.org/x/sys"}
	if !slices.Equal(got, want) {
		t.Errorf("the root brings along\n%v, want\n%v", got, want)
	}
	if v := m.goVersion(t, dir); v != "1.24.0" {
		t.Errorf("the root needs Go %s", v)
	}
}

// A program that has older versions of what stores use keeps them.
func TestConsumeRootKeepsVersions(t *testing.T) {
	m := open(t)
	had := []string{"github.com/prometheus/client_golang@v1.20.0", "github.com/redis/go-redis/v9@v9.7.0", "go.opentelemetry.io/otel@v1.34.0", "google.golang.org/grpc@v1.70.0"}
	dir := m.consumer(t, []string{m.Path}, []string{m.Path}, had)
	all := m.modules(t, dir)
	for _, v := range had {
		if !slices.Contains(all, v) {
			path, _, _ := strings.Cut(v, "@")
			t.Errorf("%s was required, and now it is %v", v, slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, path+"@") }))
		}
	}
}

// families is how to know an SDK, and what else only some modules may bring.
var families = map[string][]string{
	"amazon": {"github.com/aws/"}, "azure": {"github.com/Azure/"}, "etcd": {"go.etcd.io/"}, "google": {"cloud.google.com/", "google.golang.org/api"},
	"grpc": {"google.golang.org/grpc"}, "kubernetes": {"k8s.io/", "sigs.k8s.io/"}, "mongodb": {"go.mongodb.org/"}, "mysql": {"github.com/go-sql-driver/"},
	"nats": {"github.com/nats-io/"}, "otel": {"go.opentelemetry.io/"}, "postgres": {"github.com/jackc/"}, "prometheus": {"github.com/prometheus/client_golang"},
	"redis": {"github.com/redis/", "github.com/alicebob/miniredis"}, "rethinkdb": {"gopkg.in/rethinkdb/"}, "gocron": {"github.com/go-co-op/"},
	"sqlite": {"modernc.org/sqlite"}, "zookeeper": {"github.com/go-zookeeper/"}, "cobra": {"github.com/spf13/cobra"}, "s3 server": {"github.com/johannesboyne/"},
}

// brings is the families that each module may name in its go.mod, or link. The servers in
// process are for its tests: a consumer's list of modules has them, its program does not.
// What an SDK's own go.mod names beyond that (grpc's has otel) is the SDK's matter.
var brings = map[string][]string{
	".":               nil,
	"deciders/azblob": {"azure"}, "deciders/consul": nil, "deciders/dynamo": {"amazon"}, "deciders/etcd": {"etcd", "grpc"},
	"deciders/gcs": {"google", "grpc", "otel"}, "deciders/kubernetes": {"kubernetes"}, "deciders/mongodb": {"mongodb"}, "deciders/natskv": {"nats"},
	"deciders/postgres": {"postgres"}, "deciders/redis": {"redis"}, "deciders/rethinkdb": {"rethinkdb"}, "deciders/s3": {"amazon", "s3 server"},
	"deciders/sql": nil, "deciders/sql/mysql": {"mysql"}, "deciders/sql/sqlite": {"sqlite"}, "deciders/zookeeper": {"zookeeper"},
	"fence/fenceazure": {"azure"}, "fence/fencedynamo": {"amazon"}, "fence/fencegcs": {"google", "grpc", "otel"}, "fence/fencegrpc": {"grpc"},
	"fence/fenceredis": {"redis"}, "fence/fences3": {"amazon", "s3 server"}, "fence/fencesql": {"postgres", "mysql"},
	"legrpc": {"grpc"}, "leotel": {"otel", "prometheus"}, "leprom": {"prometheus"}, "adapters/gocron": {"gocron"}, "adapters/kubernetes": {"kubernetes", "otel", "prometheus"},
}

// Each module that a program imports can be had, and brings its own SDK and no other.
func TestConsumeEach(t *testing.T) {
	m := open(t)
	for _, o := range m.Modules {
		if !o.Released() || o.Dir == "examples" || o.Dir == "cmd/leaderelect" || strings.Contains("/"+o.Dir, "/internal/") {
			continue
		}
		t.Run(o.Dir, func(t *testing.T) {
			allowed, known := brings[o.Dir]
			if !known {
				t.Fatal("say in this test what it may bring along")
			}
			dir := m.consumer(t, []string{o.Path}, []string{o.Path}, nil)
			linked := strings.Fields(m.run(t, dir, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
			t.Logf("%d modules, Go %s", len(m.modules(t, dir)), m.goVersion(t, dir))
			f, err := repo.Mod(filepath.Join(m.Root, filepath.FromSlash(o.Dir), "go.mod"))
			if err != nil {
				t.Fatal(err)
			}
			all := linked
			for _, q := range f.Require {
				all = append(all, q.Mod.Path)
			}
			slices.Sort(all)
			for family, prefixes := range families {
				if slices.Contains(allowed, family) {
					continue
				}
				for _, v := range slices.Compact(slices.Clone(all)) {
					if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(v, p) }) {
						t.Errorf("it brings %s, of %s", v, family)
					}
				}
			}
		})
	}
}

// A store and an adapter build into a program that was never in the workspace.
func TestConsumeBuild(t *testing.T) {
	m := open(t)
	both := []string{m.Path + "/deciders/s3", m.Path + "/adapters/gocron"}
	dir := m.consumer(t, both, both, nil)
	m.run(t, dir, "go", "build", "-o", os.DevNull, ".")
	linked := m.run(t, dir, "go", "list", "-deps", ".")
	for _, p := range []string{"johannesboyne", "goleak", "fsnotify"} {
		if strings.Contains(linked, p) {
			t.Errorf("%s is linked", p)
		}
	}
}

// The command is installed as users install it.
func TestConsumeInstall(t *testing.T) {
	m := open(t)
	bin := t.TempDir()
	m.env = append(m.env, "GOBIN="+bin)
	m.run(t, t.TempDir(), "go", "install", m.Path+"/cmd/leaderelect@"+m.version)
	if out := m.run(t, bin, filepath.Join(bin, "leaderelect"), "version"); !strings.Contains(out, m.version) {
		t.Errorf("leaderelect version prints %q", out)
	}
}

// What the tags hold is what was packed: the go command gets the same sums from the
// repository itself.
func TestTags(t *testing.T) {
	m := open(t)
	at := m.Root
	m.env = append(m.env, "GOPROXY=direct", "GOMODCACHE="+t.TempDir(), "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://"+at+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+m.Path)
	for _, o := range m.Modules {
		if o.Dir != "." && o.Dir != "deciders/s3" && o.Dir != "cmd/leaderelect" {
			continue
		}
		var got struct{ Sum, GoModSum string }
		if err := json.Unmarshal([]byte(m.run(t, t.TempDir(), "go", "mod", "download", "-json", o.Path+"@"+m.version)), &got); err != nil {
			t.Fatal(err)
		}
		want := strings.Join(m.sums[o.Path], "")
		have := fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", o.Path, m.version, got.Sum, o.Path, m.version, got.GoModSum)
		if have != want {
			t.Errorf("the tag %s has\n%s, packed was\n%s", o.Tag(m.version), have, want)
		}
	}
}

// A tag's tree builds with go.work and without it, where go.sum has to have our own modules.
func TestReleaseTree(t *testing.T) {
	m := open(t)
	again, err := repo.Load(m.Root)
	if err != nil {
		t.Fatal(err)
	}
	if again.Version != m.version {
		t.Errorf("go.work is for %s", again.Version)
	}
	m.env = append(m.env, "GOFLAGS=-mod=readonly -modcacherw")
	for _, dir := range []string{"deciders/s3", "cmd/leaderelect"} {
		m.run(t, filepath.Join(m.Root, dir), "go", "list", "-deps", "./...")
	}
	m.env = append(m.env, "GOWORK=", "GOPROXY=off")
	m.run(t, m.Root, "go", "list", "-deps", "./deciders/s3", "./cmd/leaderelect")
}
