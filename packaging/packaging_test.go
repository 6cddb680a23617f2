//go:build unix

// Package packaging is what packages bring besides the program.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A purge takes away what was enabled, and nothing else; an upgrade and a removal do not.
func TestPurgeDisables(t *testing.T) {
	for verb, kept := range map[string]bool{"purge": false, "0": false, "remove": true, "upgrade": true, "1": true} {
		root := t.TempDir()
		wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
		if err := os.MkdirAll(wants, 0o755); err != nil {
			t.Fatal(err)
		}
		enabled, undertaker := filepath.Join(wants, "leaderelect@report.service"), filepath.Join(wants, "leaderelect-undertake@report.service")
		other := filepath.Join(wants, "cron.service")
		for _, link := range []string{enabled, undertaker, other} {
			if err := os.Symlink("/usr/lib/systemd/system/"+filepath.Base(link), link); err != nil {
				t.Fatal(err)
			}
		}
		script := exec.Command("sh", "-eu", "postremove.sh", verb)
		script.Env = append(os.Environ(), "DPKG_ROOT="+root)
		if out, err := script.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", verb, err, out)
		}
		for _, link := range []string{enabled, undertaker} {
			if _, err := os.Lstat(link); (err == nil) != kept {
				t.Errorf("%s: %s is kept: %v, want %v", verb, filepath.Base(link), err == nil, kept)
			}
		}
		if _, err := os.Lstat(other); err != nil {
			t.Errorf("%s: another's link is gone", verb)
		}
	}
}

// settings of a unit, each as "Name=value".
func settings(t *testing.T, name string) []string {
	t.Helper()
	unit, err := os.ReadFile("systemd/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(unit), "\n"), func(line string) bool { return strings.HasPrefix(line, "#") })
}

const candidate, undertaker = "leaderelect@.service", "leaderelect-undertake@.service"

// Wrong settings are not tried for ever.
func TestUnitStopsForWrongSettings(t *testing.T) {
	for _, name := range []string{candidate, undertaker} {
		for _, want := range []string{"Restart=always", "RestartPreventExitStatus=2"} {
			if !slices.Contains(settings(t, name), want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
	}
}

// An undertaker can prove its candidate's death: both have one user and one directory, which
// outlives either of them. And it may do no more than the candidate.
func TestUndertakerHasTheLifeline(t *testing.T) {
	of, by := settings(t, candidate), settings(t, undertaker)
	for _, want := range []string{"DynamicUser=yes", "User=leaderelect", "RuntimeDirectory=leaderelect/%i", "RuntimeDirectoryPreserve=yes", "EnvironmentFile=/etc/leaderelect/%i.env"} {
		if !slices.Contains(of, want) || !slices.Contains(by, want) {
			t.Errorf("not both have %s", want)
		}
	}
	for _, line := range of {
		for _, limit := range []string{"Protect", "Private", "Restrict", "NoNew", "System", "Lock", "Capability"} {
			if strings.HasPrefix(line, limit) && !slices.Contains(by, line) {
				t.Errorf("%s lacks %s", undertaker, line)
			}
		}
	}
}
