//go:build packages && linux

package packages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// jail is a folder that programs have as their root: they can read all of it, and write to
// the folders that are bound to it, and to /tmp.
type jail struct {
	root  string
	uid   int
	binds map[string]string // from a folder of the jail to one of this machine
}

// enter mounts what the jail has, in namespaces of its own, which end with their first process.
const enter = `set -e
root=$1 uid=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
while [ "$1" != -- ]; do mount --bind "$2" "$root$1"; shift 2; done; shift
exec chroot --userspec="$uid:$uid" "$root" "$@"`

// command is words, to be run in the jail with that environment and no network.
func (j *jail) command(t *testing.T, env []string, words ...string) *exec.Cmd {
	t.Helper()
	for _, dir := range []string{"proc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(j.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-c", enter, "jail", j.root, strconv.Itoa(j.uid)}
	for at, dir := range j.binds {
		if err := os.MkdirAll(filepath.Join(j.root, at), 0o755); err != nil {
			t.Fatal(err)
		}
		args = append(args, at, dir)
	}
	cmd := command(t, append(append(args, "--"), words...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

// output runs words, which must succeed, and returns what they print.
func (j *jail) output(t *testing.T, words ...string) string {
	t.Helper()
	out, err := j.command(t, nil, words...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return string(out)
}

// data returns a folder that the jail's user owns.
func (j *jail) data(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chown(dir, j.uid, j.uid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// term asks a started command of a jail to end: the process within, not what waits for it.
func term(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	children := strings.Fields(string(read(t, fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))))
	if len(children) != 1 {
		t.Fatalf("the jail has processes %v", children)
	}
	pid, err := strconv.Atoi(children[0])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGTERM)
	}
	if err != nil {
		t.Fatal(err)
	}
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

func has(file, pattern string) func() bool {
	re := regexp.MustCompile(pattern)
	return func() bool {
		content, _ := os.ReadFile(file) // none: not yet
		return re.Match(content)
	}
}
