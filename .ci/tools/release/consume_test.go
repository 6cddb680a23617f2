// Package release tests what release.sh makes, as its users get it.
package release

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const own = "github.com/c8e606e4/leaderelection"

// market is where a release of what is committed can be had, for one test.
type market struct {
	root    string // the release's tree
	version string // of this run only
	modules []string
	env     []string
}

// open makes a release and serves it as files, as the go command packs its tags. The release is taken out of the
// machine's module cache at the end, which has the other modules for all runs.
func open(t *testing.T) *market {
	t.Helper()
	dir := t.TempDir()
	m := &market{root: filepath.Join(dir, "tree"), version: fmt.Sprint("v1.2.0-consume.", time.Now().UnixNano())}
	m.run(t, ".", "./release.sh", m.version, m.root)
	pinned := []string{"GOFLAGS=-modcacherw", "GOWORK=off", "GONOSUMDB=" + own, "GOSUMDB=off"}
	m.env = append(pinned, "GOPROXY=direct", "GOMODCACHE="+filepath.Join(dir, "packed"), "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://"+m.root+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+own)
	for tag := range strings.FieldsSeq(m.run(t, m.root, "git", "tag")) {
		m.modules = append(m.modules, strings.TrimSuffix(path.Join(own, path.Dir(tag)), "/."))
	}
	for _, module := range m.modules {
		m.run(t, dir, "go", "mod", "download", module+"@"+m.version)
	}
	m.env = pinned
	m.env = append(m.env, "GOPROXY=file://"+filepath.Join(dir, "packed/cache/download")+","+m.run(t, dir, "go", "env", "GOPROXY"))
	cache := m.run(t, dir, "go", "env", "GOMODCACHE")
	t.Cleanup(func() { // t's ctx is over
		out, err := exec.Command("find", filepath.Join(cache, path.Dir(own)), filepath.Join(cache, "cache/download", path.Dir(own)), "-depth", "-path", "*@*"+m.version+"*", "-delete").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return m
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

// all returns what the consumer in dir is built of, each as path@version.
func (m *market) all(t *testing.T, dir string) []string {
	t.Helper()
	all := strings.Fields(m.run(t, dir, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}@{{.Version}}{{end}}", "all"))
	slices.Sort(all)
	return all
}

// brought is the Go and the modules that each module of ours brings along, by its directory.
func brought(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "brought"))
	if err != nil {
		t.Fatal(err)
	}
	all, of := map[string][]string{}, ""
	var with func(dir string) []string
	with = func(dir string) (names []string) {
		for _, name := range all[dir][1:] {
			if other, ours := strings.CutPrefix(name, "= "); ours {
				names = append(names, strings.TrimPrefix(path.Join(own, other), own+"/"))
				names = append(names, with(other)...)
			} else {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	for line := range strings.Lines(string(text)) {
		switch name := strings.TrimSpace(line); {
		case name == "" || strings.HasPrefix(name, "#"):
		case line[0] != '\t':
			of, _, _ = strings.Cut(name, ":")
			all[of] = []string{strings.TrimPrefix(name, of+": ")}
		default:
			all[of] = append(all[of], name)
		}
	}
	full := map[string][]string{}
	for dir := range all {
		full[dir] = append(all[dir][:1:1], with(dir)...)
	}
	return full
}

// imports is what a consumer imports of a module: itself, the fence beside a store, and of the root the packages that
// might need more than the one at its root.
func imports(module string) []string {
	switch strings.TrimPrefix(module, own+"/") {
	case "deciders/azblob":
		return []string{module, module + "/fenceazure"}
	case "deciders/dynamo":
		return []string{module, module + "/fencedynamo"}
	case "deciders/gcs":
		return []string{module, module + "/fencegcs"}
	case "deciders/redis":
		return []string{module, module + "/fenceredis"}
	case "deciders/s3":
		return []string{module, module + "/fences3"}
	case "adapters/legrpc":
		return []string{module, module + "/fencegrpc"}
	}
	if module != own {
		return []string{module}
	}
	return []string{own, own + "/clocks", own + "/deciders/memory", own + "/deciders/file", own + "/deciders/hinted", own + "/deciders/decidertest", own + "/deciders/consul", own + "/deciders/sql",
		own + "/fence", own + "/fence/fencesql", own + "/shard", own + "/adapters/lehttp", own + "/adapters/leslog"}
}

// Each module that a program imports can be had, builds, and brings what its list has: no
// test server, no exporter, no SDK of another.
func TestConsumeEach(t *testing.T) {
	m := open(t)
	lists := brought(t)
	for _, module := range m.modules {
		of := strings.TrimPrefix(strings.TrimPrefix(module, own), "/")
		if of == "" {
			of = "."
		}
		if strings.HasPrefix(of, "cmd/") {
			continue
		}
		want := lists[of]
		delete(lists, of)
		t.Run(of, func(t *testing.T) {
			dir := m.consumer(t, []string{module}, imports(module), nil)
			got := []string{"go " + m.run(t, dir, "go", "list", "-m", "-f", "{{.GoVersion}}")}
			for _, v := range m.all(t, dir) {
				if name, _, _ := strings.Cut(v, "@"); name != module {
					got = append(got, strings.TrimPrefix(name, own+"/"))
				}
			}
			slices.Sort(got[1:])
			if !slices.Equal(got, want) {
				t.Errorf("what it brings is not what testdata/brought says:\n%s: %s", of, strings.Join(got, "\n\t"))
			}
		})
	}
	for of := range lists {
		t.Errorf("testdata/brought has a list for %s, which is not tagged", of)
	}
}

// Versions that the module paths are not for are refused.
func TestRefused(t *testing.T) {
	for _, v := range []string{"v2.0.0", "1.0.0", "v1.0", "v1.0.0 v1.0.1", ""} {
		if out, err := exec.CommandContext(t.Context(), "./release.sh", v, filepath.Join(t.TempDir(), "tree")).CombinedOutput(); err == nil {
			t.Errorf("%q: %s", v, out)
		}
	}
}

// A program that has older versions of what only our tests and other modules use keeps them.
func TestConsumeKeepsVersions(t *testing.T) {
	m := open(t)
	for dir, had := range map[string][]string{
		".": {"github.com/prometheus/client_golang@v1.20.0", "github.com/redis/go-redis/v9@v9.7.0", "go.opentelemetry.io/otel@v1.34.0", "google.golang.org/grpc@v1.70.0",
			"github.com/jackc/pgx/v5@v5.7.1", "github.com/go-sql-driver/mysql@v1.8.0"},
		"deciders/natskv": {"github.com/nats-io/nats-server/v2@v2.10.0"},
		"deciders/redis":  {"github.com/alicebob/miniredis/v2@v2.33.0"},
		"deciders/s3":     {"github.com/johannesboyne/gofakes3@v0.0.0-20240217095638-c55a48f17be6"},
		"adapters/leotel": {"github.com/prometheus/client_golang@v1.20.0", "go.opentelemetry.io/otel/sdk@v1.34.0"},
	} {
		t.Run(dir, func(t *testing.T) {
			path := strings.TrimSuffix(own+"/"+dir, "/.")
			all := m.all(t, m.consumer(t, []string{path}, []string{path}, had))
			for _, v := range had {
				if !slices.Contains(all, v) {
					of, _, _ := strings.Cut(v, "@")
					t.Errorf("%s was required, and now it is %v", v, slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, of+"@") }))
				}
			}
		})
	}
}

// A store and an adapter build into a program that was never in the workspace.
func TestConsumeBuild(t *testing.T) {
	m := open(t)
	both := []string{own + "/deciders/s3", own + "/adapters/gocron"}
	dir := m.consumer(t, both, both, nil)
	m.run(t, dir, "go", "build", "-o", os.DevNull, ".")
	linked := m.run(t, dir, "go", "list", "-deps", ".")
	for _, p := range []string{"goleak", "fsnotify"} {
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
	path := own + "/cmd/leaderelect"
	m.run(t, t.TempDir(), "go", "install", path+"@"+m.version)
	if out := m.run(t, bin, filepath.Join(bin, "leaderelect"), "--version"); !strings.Contains(out, m.version) {
		t.Errorf("leaderelect --version prints %q", out)
	}
}

// A tag's tree builds as it is, in its go.work, without the module proxy. So does what is to be merged.
func TestReleaseTree(t *testing.T) {
	m := open(t)
	m.env = []string{"GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK="}
	for _, at := range []string{m.version, "release/" + m.version} {
		m.run(t, m.root, "git", "checkout", "--quiet", at)
		m.run(t, m.root, "go", "list", "-deps", "./deciders/s3", "./cmd/leaderelect")
	}
	m.env = append(m.env, "GOWORK=off")
	m.run(t, filepath.Join(m.root, "cmd/leaderelect"), "go", "list", "-deps", ".")
}
