package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
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
	env []string
}

// open makes a release with two versions and serves it as files. The versions are of this run only, and
// taken out of the machine's module cache at the end, which has the other modules for all runs.
func open(t *testing.T) *market {
	t.Helper()
	root, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	m, now := &market{}, time.Now().UnixNano()
	if m.Release, err = Make(root, t.TempDir(), fmt.Sprintf("v1.2.0-consume.%d", now), fmt.Sprintf("v0.9.0-consume.%d", now), proxy); err != nil {
		t.Fatal(err)
	}
	before := m.run(t, root, "go", "env", "GOPROXY")
	m.env = []string{"GOPROXY=file://" + proxy + "," + before, "GOFLAGS=-modcacherw", "GOWORK=off", "GONOSUMDB=" + m.Path, "GOSUMDB=off"}
	cache := m.run(t, root, "go", "env", "GOMODCACHE")
	t.Cleanup(func() { m.forget(t, cache) })
	return m
}

// forget removes this run's versions from the module cache.
func (m *market) forget(t *testing.T, cache string) {
	for _, o := range m.Modules {
		path, err := module.EscapePath(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(path), "@v", m.Versions[o.Path]+".*"))
		for _, name := range append(found, filepath.Join(cache, filepath.FromSlash(path)+"@"+m.Versions[o.Path])) {
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
		m.run(t, dir, "go", "get", path+"@"+m.Versions[path])
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

// brought is the Go and the modules that each module of ours brings along, by its directory.
func brought(t *testing.T, m *market) map[string][]string {
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
				names = append(names, strings.TrimPrefix(path.Join(m.Path, other), m.Path+"/"))
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

// imports is what a consumer imports of a module: itself, but for the root, whose packages
// need more than the one at its root.
func imports(m *market, o repo.Module) []string {
	if o.Dir != "." {
		return []string{o.Path}
	}
	all := []string{m.Path}
	for _, p := range []string{"clocks", "deciders/memory", "deciders/file", "deciders/hinted", "deciders/decidertest", "fence"} {
		all = append(all, m.Path+"/"+p)
	}
	return all
}

// Each module that a program imports can be had, builds, and brings what its list has: no
// test server, no exporter, no SDK of another.
func TestConsumeEach(t *testing.T) {
	m := open(t)
	lists := brought(t, m)
	for _, o := range m.Modules {
		if !o.Tagged || o.Dir == "cmd/leaderelect" || strings.Contains("/"+o.Dir, "/internal/") {
			continue
		}
		want := lists[o.Dir]
		delete(lists, o.Dir)
		t.Run(o.Dir, func(t *testing.T) {
			dir := m.consumer(t, []string{o.Path}, imports(m, o), nil)
			got := []string{"go " + m.goVersion(t, dir)}
			for _, v := range m.modules(t, dir) {
				if name, _, _ := strings.Cut(v, "@"); name != o.Path {
					got = append(got, strings.TrimPrefix(name, m.Path+"/"))
				}
			}
			slices.Sort(got[1:])
			if !slices.Equal(got, want) {
				t.Errorf("what it brings is not what testdata/brought says:\n%s: %s", o.Dir, strings.Join(got, "\n\t"))
			}
		})
	}
	for dir := range lists {
		t.Errorf("testdata/brought has a list for %s, which is not tagged", dir)
	}
}

// The root, the stores, the fences and the command are v1 while shard, what has its types and the adapters
// are v0, and a program may use both.
func TestConsumeYoung(t *testing.T) {
	m := open(t)
	young := []string{"adapters/gocron", "adapters/kubernetes", "legrpc", "lehttp", "leotel", "leprom", "leslog", "shard"}
	var tags []string
	for _, o := range m.Modules {
		if o.Tagged && slices.Contains(young, o.Dir) != strings.HasPrefix(m.Versions[o.Path], "v0.9.0-") {
			t.Errorf("%s is %s", o.Dir, m.Versions[o.Path])
		}
		if o.Tagged {
			tags = append(tags, o.Tag(m.Versions[o.Path]))
		}
	}
	if !slices.Equal(m.Tags, tags) || !slices.Contains(tags, m.Versions[m.Path]) || !slices.Contains(tags, "shard/"+m.Versions[m.Path+"/shard"]) {
		t.Errorf("the tags are %q", m.Tags)
	}
	both := []string{m.Path, m.Path + "/shard", m.Path + "/lehttp"}
	all := m.modules(t, m.consumer(t, both, both, nil))
	for _, path := range both {
		if v := path + "@" + m.Versions[path]; !slices.Contains(all, v) {
			t.Errorf("%s is not in %q", v, all)
		}
	}
}

// Versions that the module paths are not for, and v1 for young modules, are refused.
func TestRefused(t *testing.T) {
	for _, v := range [][2]string{{"v2.0.0", "v0.9.0"}, {"1.0.0", "v0.9.0"}, {"v1.0.0", "v1.0.0"}, {"v1.0.0", "0.9.0"}} {
		if _, err := Make(t.TempDir(), t.TempDir(), v[0], v[1], ""); err == nil || !strings.Contains(err.Error(), "is no version") {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// A program that has older versions of what only our tests and other modules use keeps them.
func TestConsumeKeepsVersions(t *testing.T) {
	m := open(t)
	for dir, had := range map[string][]string{
		".":                {"github.com/prometheus/client_golang@v1.20.0", "github.com/redis/go-redis/v9@v9.7.0", "go.opentelemetry.io/otel@v1.34.0", "google.golang.org/grpc@v1.70.0"},
		"deciders/natskv":  {"github.com/nats-io/nats-server/v2@v2.10.0"},
		"deciders/redis":   {"github.com/alicebob/miniredis/v2@v2.33.0"},
		"deciders/s3":      {"github.com/johannesboyne/gofakes3@v0.0.0-20240217095638-c55a48f17be6"},
		"fence/fenceredis": {"github.com/alicebob/miniredis/v2@v2.33.0"},
		"fence/fencesql":   {"github.com/jackc/pgx/v5@v5.7.1", "github.com/go-sql-driver/mysql@v1.8.0"},
		"leotel":           {"github.com/prometheus/client_golang@v1.20.0", "go.opentelemetry.io/otel/sdk@v1.34.0"},
	} {
		t.Run(dir, func(t *testing.T) {
			path := strings.TrimSuffix(m.Path+"/"+dir, "/.")
			all := m.modules(t, m.consumer(t, []string{path}, []string{path}, had))
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
	both := []string{m.Path + "/deciders/s3", m.Path + "/adapters/gocron"}
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
	path := m.Path + "/cmd/leaderelect"
	m.run(t, t.TempDir(), "go", "install", path+"@"+m.Versions[path])
	if out := m.run(t, bin, filepath.Join(bin, "leaderelect"), "--version"); !strings.Contains(out, m.Versions[path]) {
		t.Errorf("leaderelect --version prints %q", out)
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
		if o.Dir != "." && o.Dir != "shard" && o.Dir != "deciders/s3" && o.Dir != "cmd/leaderelect" {
			continue
		}
		var got struct{ Sum, GoModSum string }
		version := m.Versions[o.Path]
		if err := json.Unmarshal([]byte(m.run(t, t.TempDir(), "go", "mod", "download", "-json", o.Path+"@"+version)), &got); err != nil {
			t.Fatal(err)
		}
		want := strings.Join(m.sums[o.Path], "")
		have := fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", o.Path, version, got.Sum, o.Path, version, got.GoModSum)
		if have != want {
			t.Errorf("the tag %s has\n%s, packed was\n%s", o.Tag(version), have, want)
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
	if !maps.Equal(again.Versions, m.Versions) {
		t.Errorf("go.work is for %v", again.Versions)
	}
	m.env = append(m.env, "GOFLAGS=-mod=readonly -modcacherw")
	for _, dir := range []string{"deciders/s3", "cmd/leaderelect"} {
		m.run(t, filepath.Join(m.Root, dir), "go", "list", "-deps", "./...")
	}
	m.env = append(m.env, "GOWORK=", "GOPROXY=off")
	m.run(t, m.Root, "go", "list", "-deps", "./deciders/s3", "./cmd/leaderelect")
}
