//go:build packages && linux

package packages_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// tagged is the one file with that ending of a release that make packages has made, in a clone, of tags.
func tagged(t *testing.T, end string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(stores.Root(t), "bin/candidate/bin/dist/*"+end))
	if err != nil || len(files) != 1 {
		t.Fatalf("*%s of a tag: %q, %v: run make packages", end, files, err)
	}
	return files[0]
}

// A release is of its tag, without changes.
func TestTagged(t *testing.T) {
	said := output(t, tagged(t, "linux_amd64*/leaderelect"), "--version")
	if !regexp.MustCompile(`^leaderelect v1\.99\.0 \(commit [0-9a-f]{12}, go`).MatchString(said) {
		t.Errorf("leaderelect version prints %q", said)
	}
}

// After a release the next snapshot goes by the root's tag, and not by one of the modules'.
func TestSnapshotAfterRelease(t *testing.T) {
	dir := t.TempDir()
	output(t, "git", "clone", "--quiet", filepath.Join(stores.Root(t), "bin/candidate"), dir)
	output(t, "git", "-C", dir, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "--allow-empty", "--message=next")
	build := command(t, os.Getenv("GORELEASER"), "build", "--snapshot", "--id=linux-amd64", "--skip=before")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("goreleaser: %v\n%s", err, out)
	}
	var meta struct{ Version string }
	if decode(t, filepath.Join(dir, "bin/dist/metadata.json"), &meta); !strings.HasPrefix(meta.Version, "1.99.1-snapshot.") {
		t.Errorf("it is %s", meta.Version)
	}
}

// The workflow's command packages the chart, which takes the image that the workflow publishes.
func TestChartOfRelease(t *testing.T) {
	helm, dir := newCharter(t), t.TempDir()
	workflow := string(read(t, filepath.Join(stores.Root(t), ".github/workflows/release.yml")))
	line := regexp.MustCompile(`helm package .* --destination bin\n`).FindString(workflow)
	pack := command(t, "sh", "-euc", strings.Replace(line, "--destination bin", "--destination "+dir, 1))
	pack.Dir, pack.Env = stores.Root(t), append(os.Environ(), "GITHUB_REF_NAME=v1.99.0", "PATH="+filepath.Dir(helm.program)+":"+os.Getenv("PATH"))
	if out, err := pack.CombinedOutput(); err != nil || line == "" {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	out, complaint, err := helm.run(t, "", "", "template", "web", filepath.Join(dir, "leaderelect-1.99.0.tgz"))
	if images := regexp.MustCompile(`image: \S+`).FindAllString(out, -1); err != nil || !slices.Contains(images, "image: ghcr.io/c8e606e4/leaderelect:1.99.0") {
		t.Errorf("%v: %s\nits images are %q", err, complaint, images)
	}
	if !regexp.MustCompile(`KO_DOCKER_REPO="ghcr.io/\$GITHUB_REPOSITORY_OWNER/leaderelect" \\\n.* --bare --tags "\$\{GITHUB_REF_NAME#v\}"`).MatchString(workflow) {
		t.Error("the workflow publishes another image")
	}
}

// lintian has nothing to say about the .deb that packaging/lintian-overrides does not explain.
func TestLintian(t *testing.T) {
	if out, err := command(t, "lintian", "--no-cfg", "--allow-root", "--fail-on=error,warning", one(t, ".deb")).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

// lives installs a package into the system in root, enables its units, upgrades it and removes it.
func lives(t *testing.T, root, end string, install, remove []string, purged string) {
	t.Helper()
	const systemctl, units = "usr/bin/systemctl", "leaderelect@report.service leaderelect-undertake@report.service"
	file := func(name string) string { return filepath.Join(root, name) }
	there := func(name string) bool { _, err := os.Lstat(file(name)); return err == nil }
	if !there(systemctl + ".real") { // and then the package's scripts believe that systemd runs
		if err := os.Rename(file(systemctl), file(systemctl+".real")); err != nil {
			t.Fatal(err)
		}
		write(t, file(systemctl), "#!/bin/sh\n[ \"$1\" != --root=/ ] || exec /usr/bin/systemctl.real \"$@\"\necho \"$*\" >>/called\n")
		write(t, file("run/systemd/system/x"), "")
		if err := os.Chmod(file(systemctl), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(words []string, called string) {
		t.Helper()
		write(t, file("called"), "")
		output(t, words...)
		if got := string(read(t, file("called"))); got != called {
			t.Errorf("%q has systemctl do\n%swant\n%s", words, got, called)
		}
	}
	const reload = "daemon-reload\n" // by each script that is not the one before a removal
	run(append(install, one(t, end)), reload)
	if said := output(t, append([]string{"chroot", root, "systemctl", "--root=/", "enable"}, strings.Fields(units)...)...); strings.Count(said, "Created symlink") != 2 {
		t.Errorf("enabled: %s", said)
	}
	write(t, file("etc/leaderelect/report.env"), "COMMAND=true\n")
	run(append(install, tagged(t, end)), reload+reload)
	if said := output(t, "chroot", root, "leaderelect", "--version"); !strings.HasPrefix(said, "leaderelect v1.99.0 ") {
		t.Errorf("upgraded to %s", said)
	}
	is := func(name string, want bool) {
		t.Helper()
		if there(name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	for _, unit := range strings.Fields(units) {
		is("etc/systemd/system/multi-user.target.wants/"+unit, true)
	}
	run(remove, "stop leaderelect@*.service leaderelect-undertake@*.service\n"+reload+purged)
	for _, unit := range strings.Fields(units) {
		is("etc/systemd/system/multi-user.target.wants/"+unit, false)
	}
	is("usr/bin/leaderelect", false)
	is("etc/leaderelect/report.env", true)
}
