//go:build unix

// Package packaging is what packages bring besides the program.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		enabled := filepath.Join(wants, "leaderelect@report.service")
		other := filepath.Join(wants, "cron.service")
		for _, link := range []string{enabled, other} {
			if err := os.Symlink("/usr/lib/systemd/system/"+filepath.Base(link), link); err != nil {
				t.Fatal(err)
			}
		}
		script := exec.Command("sh", "-eu", "postremove.sh", verb)
		script.Env = append(os.Environ(), "DPKG_ROOT="+root)
		if out, err := script.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", verb, err, out)
		}
		if _, err := os.Lstat(enabled); (err == nil) != kept {
			t.Errorf("%s: what was enabled is kept: %v, want %v", verb, err == nil, kept)
		}
		if _, err := os.Lstat(other); err != nil {
			t.Errorf("%s: another's link is gone", verb)
		}
	}
}

// What the unit of the packages must say.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile("systemd/leaderelect@.service")
	if err != nil {
		t.Fatal(err)
	}
	for why, settings := range map[string][]string{
		"wrong settings are not tried for ever":                                               {"Restart=always", "RestartPreventExitStatus=2"},
		"a process that was killed has its lifeline when it is started again":                 {"RuntimeDirectory=leaderelect/%i", "RuntimeDirectoryPreserve=yes"},
		"neither /proc, a file nor a core tells one election's command anything of another's": {"DynamicUser=yes", "User=le-%i", "ProtectProc=invisible", "UMask=0077", "LimitCORE=0"},
	} {
		for _, want := range settings {
			if !slices.Contains(strings.Split(string(unit), "\n"), want) {
				t.Errorf("the unit lacks %s: %s", want, why)
			}
		}
	}
}

// systemd says that the unit exposes little: 2.0 of 10 at most.
func TestUnitExposesLittle(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze: apt-get install systemd")
	}
	text, err := os.ReadFile("systemd/leaderelect@.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "leaderelect@report.service")
	if err := os.WriteFile(unit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", "--no-pager", unit).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Actions that a workflow uses are pinned by the hash of a commit: a tag can be moved. In the release only
// the job that runs nothing of this repository may write.
func TestWorkflowsArePinned(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(workflows) < 3 {
		t.Fatalf("%q, %v: are the workflows still found?", workflows, err)
	}
	pinned := regexp.MustCompile(`@[0-9a-f]{40} # v\d+\.\d+\.\d+( |$)`)
	for _, file := range workflows {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s:%d: %s", file, i+1, strings.TrimSpace(line))
			}
		}
		build, publish, _ := strings.Cut(string(text), "\n  publish:\n")
		if strings.Contains(build, ": write") || strings.Contains(publish, "actions/checkout") || strings.Contains(publish, "run: make") {
			t.Errorf("%s: code of this repository runs in a job that may write", file)
		}
	}
}
