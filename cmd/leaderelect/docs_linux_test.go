package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/pages"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// The pages of docs are followed as they stand, one after the other: what their blocks of sh
// print is what they say. A block below the name of a program's directory is run by that program's tests.
func TestDocs(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	all, err := pages.All(stores.Root(t))
	must(t, err)
	ran, fired := 0, 0
	for page, text := range all {
		blocks, err := pages.Blocks(page, text)
		must(t, err)
		if slices.ContainsFunc(blocks, func(b pages.Block) bool { return b.Lang == "sh" && b.Note == "" }) {
			ran++
			t.Run(page, func(t *testing.T) {
				t.Parallel()
				followPage(t, blocks)
			})
		}
		for _, b := range blocks {
			if b.Lang != "crontab" {
				continue
			}
			for line := range strings.Lines(b.Text) {
				fields := strings.SplitN(strings.TrimSpace(line), " ", 6)
				if len(fields) < 6 {
					t.Fatalf("%v: no line of a crontab: %s", b, line)
				}
				fired++
				t.Run(b.String(), func(t *testing.T) {
					t.Parallel()
					testCrontab(t, fields[5])
				})
			}
		}
	}
	if ran < 2 || fired < 1 {
		t.Errorf("%d pages are run, and %d lines of crontabs: are they still found?", ran, fired)
	}
}

// followPage runs all blocks of sh in one shell, and compares what each printed with the block
// of text after it.
func followPage(t *testing.T, blocks []pages.Block) {
	if slices.ContainsFunc(blocks, func(b pages.Block) bool { return b.Lang == "sh" && strings.Contains(b.Text, "curl") }) {
		stores.Need(t, "curl")
	}
	const end = "the end of a block"
	var script strings.Builder
	for _, b := range blocks {
		if b.Lang == "sh" {
			script.WriteString(b.Text + "\necho '" + end + "'\n")
		}
	}
	ports := pages.Ports{}
	here := func(text string) string {
		t.Helper()
		text, err := ports.Here(text)
		must(t, err)
		return text
	}
	// Long enough for a busy machine: none of these waits for a term to end.
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", here(script.String()))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PWD="+cmd.Dir, "TMPDIR="+cmd.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v, %v:\n%s", err, context.Cause(ctx), out)
	}
	printed := strings.Split(string(out), end+"\n")
	n := -1
	for i, b := range blocks {
		if b.Lang != "sh" {
			continue
		}
		n++
		want := ""
		if i+1 < len(blocks) && blocks[i+1].Lang == "text" {
			want = here(blocks[i+1].Text)
		}
		if err := pages.Prints(want, printed[n]); err != nil {
			t.Errorf("%v: %v", b, err)
		}
	}
}

var (
	flagOf   = regexp.MustCompile(`--([a-z][a-z-]+)`)
	toldFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)
	verbOf   = regexp.MustCompile(`(?m)\bleaderelect (shards )?([a-z]+)\b`)
	settings = regexp.MustCompile(`\bLEADERELECT_[A-Z_]+\b`)
)

// The flags, the commands and the variables of which the pages tell are there.
func TestDocsFlags(t *testing.T) {
	t.Parallel()
	help := func(words ...string) string {
		out, err := exec.Command("leaderelect", append([]string{"help"}, words...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("help %q: %v\n%s", words, err, out)
		}
		return string(out)
	}
	verbs := map[string]string{} // and what is said of each
	listed := func(text string) (names []string) {
		_, list, _ := strings.Cut(text, "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for line := range strings.Lines(list) {
			names = append(names, strings.Fields(line)[0])
		}
		return names
	}
	for _, verb := range listed(help()) {
		verbs[verb] = help(verb)
	}
	for _, verb := range listed(verbs["shards"]) {
		verbs["shards "+verb] = help("shards", verb)
	}
	flags := map[string]bool{"help": true}
	said := ""
	for _, text := range verbs {
		said += text
		for _, m := range toldFlag.FindAllStringSubmatch(text, -1) {
			flags[m[1]] = true
		}
	}
	ours := ownPages(t)
	all, err := pages.All(stores.Root(t))
	must(t, err)
	counted := 0
	for page, text := range all {
		for _, m := range flagOf.FindAllStringSubmatch(text, -1) {
			if counted++; !flags[m[1]] {
				t.Errorf("docs/%s: leaderelect has no --%s", page, m[1])
			}
		}
		for _, m := range verbOf.FindAllStringSubmatch(text, -1) {
			if counted++; verbs[m[1]+m[2]] == "" {
				t.Errorf("docs/%s: there is no leaderelect %s%s", page, m[1], m[2])
			}
		}
		for _, name := range settings.FindAllString(text, -1) {
			flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "LEADERELECT_")), "_", "-")
			if counted++; !flags[flag] && !strings.Contains(said+ours, name) {
				t.Errorf("docs/%s: leaderelect knows no %s", page, name)
			}
		}
	}
	if counted < 40 {
		t.Errorf("%d flags, commands and variables on all pages: are they still found?", counted)
	}
}

// ownPages is the text of the README and of the pages in docs, in this directory.
func ownPages(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%q, %v: are the pages still found?", files, err)
	}
	text := ""
	for _, f := range append(files, "README.md") {
		page, err := os.ReadFile(f)
		must(t, err)
		text += string(page)
	}
	return text
}

// readme finds a pattern in the README or its pages. The tests run what these tell people to
// write down as it stands there, on another store.
func readme(t *testing.T, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(ownPages(t))
	if m == nil {
		t.Fatalf("neither README.md nor docs has %s", pattern)
	}
	return m[1]
}

// inCluster are the sidecar's arguments that need an API server, and permissions there. A test
// without a cluster does without.
const inCluster = "--endpoint-slice, app-leader, "

// elsewhere replaces the store by a file, and what is to be run.
func elsewhere(dir, command string, replace ...string) string {
	command = regexp.MustCompile(`s3://\S*?eu-central-1`).ReplaceAllString(command, "file://"+filepath.Join(dir, "election.json"))
	return strings.NewReplacer(replace...).Replace(command)
}

// testCrontab fires a line at the same time on three machines, and a little later on one:
// the job is run once, and nothing is printed that cron would send by mail.
func testCrontab(t *testing.T, line string) {
	t.Helper()
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	if strings.ContainsRune(line, '%') {
		t.Errorf("to cron %% ends the line: %s", line)
	}
	self, err := exec.LookPath("leaderelect")
	must(t, err)
	line = elsewhere(dir, line, "/usr/local/bin/leaderelect", self, "/usr/local/bin/job", "sh -c 'echo x >>"+ran+"'", "--hold 12h", "--hold 1h")
	line = regexp.MustCompile(`--wait \S+`).ReplaceAllString(line, "--wait 1s") // who comes late ends at once, however late
	if !strings.Contains(line, ran) || !strings.Contains(line, "--hold 1h") {
		t.Fatalf("the line is %s", line)
	}
	codes := make(chan int)
	start := func() {
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "GORACE=" + os.Getenv("GORACE")} // cron's
		if out, _ := cmd.CombinedOutput(); len(out) > 0 {                                        // the code says how it went
			t.Errorf("printed %s", out)
		}
		codes <- cmd.ProcessState.ExitCode()
	}
	for range 3 {
		go start()
	}
	count := make(map[int]int)
	has(t, ran, "x")
	go start()
	for range 4 {
		count[<-codes]++
	}
	if text, _ := os.ReadFile(ran); string(text) != "x\n" || count[0] != 4 {
		t.Errorf("it ran %d times; exit codes %v", strings.Count(string(text), "x"), count)
	}
}

// The command of the systemd unit starts, and ends in order as KillMode=mixed asks
// for: SIGTERM to the main process.
func TestReadmeSystemd(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	dir := t.TempDir()
	line := readme(t, `(?m)^    ExecStart=(.*leaderelect run .*)$`)
	ledger := filepath.Join(dir, "ledger")
	line = elsewhere(dir, line, "/usr/local/bin/leaderelect", "leaderelect", "%H", "host-1", "/usr/local/bin/report", "child "+ledger)
	c := launchAt(t, ledger, false, nil, strings.Fields(line)[1:]...)
	has(t, ledger, "^beat")
	c.stops(t, 0)
	has(t, ledger, "^asked-SIGTERM")
	has(t, filepath.Join(dir, "election.json"), `"leader_id":""`)

	if path, err := exec.LookPath("systemd-analyze"); err == nil {
		unit := filepath.Join(dir, "report.service")
		text := readme(t, `(?s)    (# /etc/systemd/system/report.service\n.*?WantedBy=\S+)`)
		text = strings.ReplaceAll(text, "\n    ", "\n")
		text = strings.NewReplacer("/usr/local/bin/leaderelect", "/bin/true", "/usr/local/bin/report", "/bin/true").Replace(text)
		must(t, os.WriteFile(unit, []byte(text), 0o644))
		if out, err := exec.Command(path, "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "report.service:") {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	}
}

// The sidecar's arguments, as the pod gives them.
func TestReadmeSidecar(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	dir := t.TempDir()
	list := strings.Replace(readme(t, `(?m)^      args: \[(.*)\]$`), inCluster, "", 1)
	var args []string
	for word := range strings.SplitSeq(list, ", ") {
		args = append(args, elsewhere(dir, strings.Trim(word, `"`), ":4040", "127.0.0.1:0"))
	}
	c := launchAt(t, "", false, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "LEADERELECT_ID=pod-7") }, args...)
	has(t, c.log, `msg="leaderelection: leading" id=pod-7`)
	c.stops(t, 0)
}

// The address that moves: both commands may be run again, and the unit is right.
func TestReadmeAddress(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	ip, err := exec.LookPath("ip")
	if err != nil {
		stores.Missing(t, "no ip(8): install iproute2")
	}
	begin := readme(t, `(?m)^        --begin '(.*?)' --end '.*?'$`)
	end := readme(t, `(?m)^        --begin '.*?' --end '(.*?)'$`)
	script := strings.NewReplacer("eth0", "lo", "ip ", ip+" ").Replace(strings.Join([]string{"set -e", "ip link show eth0 || exit 77", end, begin, begin,
		"test $(ip -o addr show dev eth0 | grep -c 10.0.0.9) = 1", end, end, "! ip -o addr show dev eth0 | grep 10.0.0.9"}, "\n"))
	cmd := exec.Command("unshare", "--net", "sh", "-c", script)
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState.ExitCode() == 77:
		stores.Missing(t, fmt.Sprintf("no network namespace can be made: %s: run as root", out))
	case err != nil:
		t.Errorf("%v\n%s\n%s", err, script, out)
	}
	unit := readme(t, `(?m)^    ExecStart=(.*leaderelect hook .*)$`)
	post := readme(t, `(?m)^    ExecStopPost=-(.*)$`)
	if !strings.Contains(unit, "--begin '/sbin/"+begin+"' --end '/sbin/"+end+"'") || post != "/sbin/"+end {
		t.Errorf("the unit has other commands:\n%s\n%s", unit, post)
	}
}
