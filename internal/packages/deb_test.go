//go:build packages && linux

package packages_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// debian makes a minimal system of this machine's own kind, with systemd, in a folder.
func debian(t *testing.T) string {
	t.Helper()
	release := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(read(t, "/etc/os-release"))
	if release == nil {
		t.Fatal("/etc/os-release names no release: this needs Debian or its like")
	}
	suite := string(release[1])
	args := []string{"debootstrap", "--variant=minbase", "--include=systemd", suite, t.TempDir()}
	for line := range strings.Lines(output(t, "apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)")) {
		if mirror, found := strings.CutPrefix(strings.TrimSpace(line), suite+" "); found && strings.HasPrefix(mirror, "http") {
			args = append(args, mirror)
			break
		}
	}
	output(t, args...)
	return args[4]
}

// The .deb is installed into a clean system: everything is where that system looks for it, the
// unit is right, its command does what it is for, and nothing is left when it is removed. It and the .rpm are
// upgraded there.
func TestDeb(t *testing.T) {
	needRoot(t)
	root := debian(t)
	in := func(words ...string) string { return output(t, append([]string{"chroot", root}, words...)...) }
	if err := os.Link(one(t, ".deb"), filepath.Join(root, "leaderelect.deb")); err != nil {
		output(t, "cp", one(t, ".deb"), filepath.Join(root, "leaderelect.deb")) // another file system
	}
	in("dpkg", "-i", "/leaderelect.deb")
	_, version := made(t)
	isVersion(t, in("leaderelect", "--version"), version)
	if said := in("dpkg", "--verify", "leaderelect"); said != "" {
		t.Errorf("dpkg --verify: %s", said)
	}
	files := strings.Fields(in("dpkg", "-L", "leaderelect"))
	want := []string{"/etc/leaderelect", "/usr/lib/systemd/system/leaderelect@.service", "/usr/lib/systemd/system/leaderelect-undertake@.service",
		"/usr/share/zsh/vendor-completions/_leaderelect",
		"/usr/share/fish/vendor_completions.d/leaderelect.fish", "/usr/share/doc/leaderelect/copyright", "/usr/share/doc/leaderelect/third-party-notices.txt.gz"}
	for _, page := range pages {
		want = append(want, "/usr/share/man/man1/"+page+".1.gz")
	}
	for _, name := range want {
		if !slices.Contains(files, name) {
			t.Errorf("%s is not installed:\n%q", name, files)
		}
	}
	if page := in("zcat", "/usr/share/man/man1/leaderelect-run.1.gz"); !strings.Contains(page, ".SH NAME\nleaderelect-run - ") || !strings.Contains(page, "leaderelect v"+version) {
		t.Errorf("the manual page begins\n%.300s", page)
	}
	if said := in("bash", "-c", ". /usr/share/bash-completion/completions/leaderelect && complete -p leaderelect"); !strings.Contains(said, "__start_leaderelect") {
		t.Errorf("bash completes by %s", said)
	}
	verify(t, root)
	serve(t, root)
	in("dpkg", "--purge", "leaderelect")
	for _, name := range append(want, "/usr/bin/leaderelect") {
		if _, err := os.Lstat(filepath.Join(root, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there after it was removed (%v)", name, err)
		}
	}
	lives(t, root, ".deb", []string{"dpkg", "--root=" + root, "--install"}, []string{"dpkg", "--root=" + root, "--purge", "leaderelect"}, "daemon-reload\n")
	lives(t, root, ".rpm", []string{"rpm", "--root", root, "--upgrade", "--nodeps"}, []string{"rpm", "--root", root, "--erase", "leaderelect"}, "")
}

// verify has the installed systemd look at the units, and at two that are wrong.
func verify(t *testing.T, root string) {
	t.Helper()
	dir := filepath.Join(root, "usr/lib/systemd/system")
	unit := string(read(t, filepath.Join(dir, "leaderelect@.service")))
	check := func(name string) (string, error) { // the manual pages were looked at, and minimal systems have no man
		out, err := command(t, "chroot", root, "systemd-analyze", "--man=no", "verify", name).CombinedOutput()
		return string(out), err
	}
	for _, name := range []string{"leaderelect@report.service", "leaderelect-undertake@report.service"} {
		if out, err := check(name); err != nil || strings.Contains(out, "leaderelect@") || strings.Contains(out, "leaderelect-undertake@") {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
		// 10 is a service that may do everything.
		out, err := command(t, "chroot", root, "systemd-analyze", "security", "--offline=true", "--threshold=40", name).CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze security %s: %v\n%s", name, err, out)
		}
	}
	for old, wrong := range map[string]string{"/usr/bin/leaderelect run": "/usr/bin/leaderelected run", "WatchdogSec=": "WatchDogSec="} {
		broken := strings.Replace(unit, old, wrong, 1)
		write(t, filepath.Join(dir, "broken@.service"), broken)
		if out, err := check("broken@report.service"); broken == unit || err == nil && !strings.Contains(out, "broken@") {
			t.Errorf("with %s it passes", wrong)
		}
	}
	if err := os.Remove(filepath.Join(dir, "broken@.service")); err != nil {
		t.Fatal(err)
	}
}

// serve runs the unit's command as systemd does: with what the file has in its environment, as
// a user who may write to the state directory and /tmp alone, with a socket to be told by; and
// ends it as KillMode=mixed does.
func serve(t *testing.T, root string) {
	t.Helper()
	unit := string(read(t, filepath.Join(root, "usr/lib/systemd/system/leaderelect@.service")))
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("the unit has no ExecStart")
	}
	write(t, filepath.Join(root, "usr/local/bin/report"), "#!/bin/sh\nid -u >>ran; echo $LEADERELECT_TOKEN $1 >>ran; exec sleep 1000\n")
	if err := os.Chmod(filepath.Join(root, "usr/local/bin/report"), 0o755); err != nil {
		t.Fatal(err)
	}
	const state = "/var/lib/leaderelect/report"
	j := &jail{root: root, uid: 61234} // of those for DynamicUser
	dir := j.data(t)
	j.binds = map[string]string{state: dir}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "notify"), 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	const cmd = "/usr/local/bin/report --verbose"
	words := strings.Fields(strings.NewReplacer("%H", "host-1", "$COMMAND", cmd).Replace(start[1]))
	words = append([]string{"env", "-C", state}, words...)
	p := j.command(t, []string{"LEADERELECT_STORE=file://" + state + "/election.json", "COMMAND=" + cmd, "NOTIFY_SOCKET=" + state + "/notify"}, words...)
	var log strings.Builder
	p.Stderr = &log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", has(filepath.Join(dir, "ran"), "61234\n\\d{10} --verbose\n"))
	_ = socket.SetReadDeadline(time.Now().Add(time.Minute)) // a socket that is open has deadlines
	for said := make([]byte, 4096); ; {
		n, err := socket.Read(said)
		if err != nil {
			t.Errorf("systemd is not told READY: %v", err)
		}
		if err != nil || strings.Contains(string(said[:n]), "READY=1") {
			break
		}
	}
	term(t, p)
	if err := p.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if record := string(read(t, filepath.Join(dir, "election.json"))); !strings.Contains(record, `"leader_id":""`) {
		t.Errorf("the lease was not released: %s", record)
	}
}

// The .rpm is whole, has what the .deb has where Fedora looks for it, and its program runs. No
// Fedora was at hand to install it into.
func TestRPM(t *testing.T) {
	needRoot(t)
	rpm := one(t, ".rpm")
	if said := output(t, "rpm", "-K", rpm); !strings.Contains(said, "digests OK") {
		t.Error(said)
	}
	root := t.TempDir()
	output(t, "rpm", "--install", "--root", root, "--nodeps", "--noscripts", rpm)
	_, version := made(t)
	isVersion(t, output(t, filepath.Join(root, "usr/bin/leaderelect"), "--version"), version)
	for _, name := range []string{"usr/lib/systemd/system/leaderelect@.service", "usr/lib/systemd/system/leaderelect-undertake@.service", "usr/share/zsh/site-functions/_leaderelect",
		"usr/share/bash-completion/completions/leaderelect", "usr/share/man/man1/leaderelect-run.1.gz", "usr/share/doc/leaderelect/third-party-notices.txt.gz", "etc/leaderelect"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}
