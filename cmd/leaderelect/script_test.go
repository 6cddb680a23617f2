//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// The test binary is leaderelect, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.GuardCommand { // which goes by another name
		main()
	}
	testscript.Main(patient{m}, map[string]func(){
		"leaderelect": main,
	})
}

// patient runs more tests at once than there are processors: they mostly wait.
type patient struct{ *testing.M }

func (p patient) Run() int {
	flag.Parse()
	// Under nohup what is started would ignore it, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// With the race detector each process would take a second to exit.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", "4")
	}
	dir, err := os.MkdirTemp("", "child")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./internal/child")
	if build.Stderr = os.Stderr; build.Run() != nil {
		log.Print("the child that leaderelect runs is not built")
		return 1
	}
	_ = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return p.M.Run()
}

// patience is how long a script waits for what should happen soon.
const patience = 30 * time.Second

// Each script runs on the file store and on NATS; $STORE is its election.
func TestScripts(t *testing.T) {
	t.Parallel()
	server := stores.NATS(t)
	bucket, err := natskv.Open(t.Context(), &url.URL{Scheme: "nats", Host: server.Addr, Path: "/scripts/none", RawQuery: "create=true&storage=memory"})
	must(t, err)
	defer bucket.Close()
	if _, err := bucket.ReadCurrent(t.Context()); err != nil { // makes the bucket, which only candidates do
		t.Fatal(err)
	}
	all := split(t)
	for name, place := range map[string]func(work string) string{
		"file": func(work string) string { return "file://" + filepath.Join(work, "election.json") },
		"nats": func(work string) string {
			key := regexp.MustCompile(`[^a-zA-Z0-9]`).ReplaceAllString(work, "")
			return server.URL() + "/scripts/" + key + "?create=true&storage=memory"
		},
	} {
		t.Run(name, func(t *testing.T) {
			var files []string
			for script, onServer := range all {
				waits := !strings.HasSuffix(script, "_usage.txtar") // for leaders
				if (name == "file" || onServer) && !(testing.Short() && waits) {
					files = append(files, script)
				}
			}
			testscript.Run(t, testscript.Params{
				Files:              files,
				RequireUniqueNames: true,
				Setup: func(e *testscript.Env) error {
					e.Setenv("STORE", place(e.WorkDir))
					e.Setenv("KIND", name)
					e.Setenv("TMPDIR", e.WorkDir)
					e.Setenv("GORACE", os.Getenv("GORACE"))
					e.Values[background{}] = make(map[string]*started)
					return nil
				},
				Condition: func(cond string) (bool, error) {
					if cond == name {
						return true, nil
					}
					if cond == "file" || cond == "nats" {
						return false, nil
					}
					return false, fmt.Errorf("unknown condition %q", cond)
				},
				Cmds: commands(),
			})
		})
	}
}

// split makes a file of each script of testdata. There one begins with a line "== NAME", or "== NAME nats" if it
// most depends on the store: it is to run on one that pushes and is far away, too. Its lines keep their numbers.
func split(t *testing.T) (onServer map[string]bool) {
	all, err := filepath.Glob("testdata/script/*.txtar")
	must(t, err)
	begins := regexp.MustCompile(`(?m)^== (\w+)( nats)?\n`)
	dir, onServer := t.TempDir(), map[string]bool{}
	for _, file := range all {
		text, err := os.ReadFile(file)
		must(t, err)
		found := begins.FindAllSubmatchIndex(text, -1)
		for i, m := range found {
			end := len(text)
			if i+1 < len(found) {
				end = found[i+1][0]
			}
			script := filepath.Join(dir, string(text[m[2]:m[3]])+".txtar")
			onServer[script] = m[4] >= 0
			above := strings.Repeat("\n", bytes.Count(text[:m[1]], []byte("\n")))
			own := strings.TrimRight(string(text[m[1]:end]), "\n") // of a file within, too
			must(t, os.WriteFile(script, []byte(above+own+"\n"), 0o644))
		}
	}
	return onServer
}

// commands are those that scripts have besides testscript's own.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	const many = 1000
	all := map[string]func(*testscript.TestScript, bool, []string){}
	for _, c := range []struct {
		usage       string
		least, most int // arguments
		do          func(*testscript.TestScript, []string)
	}{
		{"bg NAME PROGRAM ARGS...", 2, many, bg},
		{"sig NAME SIGNAL", 2, 2, sig},
		{"ends NAME CODE", 2, 2, ends},
		{"await FILE REGEXP [COUNT]", 2, 3, await},
		{"exitcode CODE PROGRAM ARGS...", 2, many, exitcode},
		{"dead LEDGER", 1, 1, dead},
		{"gone LEDGER", 1, 1, gone},
		{"url NAME VARIABLE", 2, 2, urlOf},
		{"http CODE METHOD URL", 3, 3, ask},
		{"mem VARIABLE", 1, 1, memory},
	} {
		name, _, _ := strings.Cut(c.usage, " ")
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < c.least || len(args) > c.most {
				ts.Fatalf("usage: %s", c.usage)
			}
			c.do(ts, args)
		}
	}
	return all
}

// background is the key of what runs in the background, by name.
type background struct{}

type started struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// bg NAME PROGRAM ARGS... starts a program, with NAME.out and NAME.err.
func bg(ts *testscript.TestScript, args []string) {
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	errOut, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	s := &started{cmd: exec.Command(args[1], args[2:]...), ended: make(chan struct{})}
	s.cmd.Dir = ts.MkAbs(".")
	s.cmd.Stdout, s.cmd.Stderr = out, errOut
	for _, name := range []string{"STORE", "TMPDIR", "PATH", "HOME", "WORK", "GORACE"} {
		s.cmd.Env = append(s.cmd.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(s.cmd.Start())
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // its code is looked at by ends
		out.Close()
		errOut.Close()
	}()
	ts.Defer(func() {
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		_ = s.cmd.Process.Kill()
		<-s.ended
		if text, err := os.ReadFile(errOut.Name()); err == nil {
			ts.Logf("[%s.err]\n%s", args[0], text)
		}
	})
	ts.Value(background{}).(map[string]*started)[args[0]] = s
}

func named(ts *testscript.TestScript, name string) *started {
	s := ts.Value(background{}).(map[string]*started)[name]
	if s == nil {
		ts.Fatalf("nothing called %s was started", name)
	}
	return s
}

// mem VARIABLE sets a variable to a new directory in memory.
func memory(ts *testscript.TestScript, args []string) {
	dir, err := os.MkdirTemp("/dev/shm", "leaderelect-test-")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Setenv(args[0], dir)
}

// sig NAME SIGNAL sends a signal to what bg has started.
func sig(ts *testscript.TestScript, args []string) {
	s := unix.SignalNum("SIG" + args[1])
	if s == 0 {
		ts.Fatalf("no signal %s", args[1])
	}
	ts.Check(named(ts, args[0]).cmd.Process.Signal(s))
}

// ends NAME CODE waits for the end of what bg has started, with that exit code
// (-1: by a signal).
func ends(ts *testscript.TestScript, args []string) {
	s := named(ts, args[0])
	select {
	case <-s.ended:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended within %v", args[0], patience)
	}
	if code := strconv.Itoa(s.cmd.ProcessState.ExitCode()); code != args[1] {
		ts.Fatalf("%s ended with code %s, want %s", args[0], code, args[1])
	}
}

// await FILE REGEXP [COUNT] waits until FILE has COUNT matches (1).
func await(ts *testscript.TestScript, args []string) {
	want := 1
	if len(args) == 3 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		want = n
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	if !eventually(func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && len(re.FindAllIndex(text, -1)) >= want
	}) {
		text, _ := os.ReadFile(ts.MkAbs(args[0]))
		ts.Fatalf("%s has no %d matches of %s within %v:\n%s", args[0], want, args[1], patience, text)
	}
}

// eventually asks until it is told true, or patience is over.
func eventually(is func() bool) bool {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-limit.C:
			return is()
		}
	}
	return true
}

// exitcode CODE PROGRAM ARGS... runs a program to its end; its output is in stdout
// and stderr of the script.
func exitcode(ts *testscript.TestScript, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if failed, ok := err.(*exec.ExitError); ok {
		code = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// dead LEDGER checks that all processes named in a ledger are dead: now, without
// waiting.
func dead(ts *testscript.TestScript, args []string) {
	if alive := living(ts.ReadFile(args[0])); len(alive) > 0 {
		ts.Fatalf("processes of %s are alive: %v", args[0], alive)
	}
}

// gone LEDGER waits until all processes named in a ledger are dead.
func gone(ts *testscript.TestScript, args []string) {
	text := ts.ReadFile(args[0])
	if !eventually(func() bool { return len(living(text)) == 0 }) {
		ts.Fatalf("processes of %s are alive after %v: %v", args[0], patience, living(text))
	}
}

// living are the processes of a ledger that are alive.
func living(ledger string) (pids []int) {
	for line := range strings.Lines(ledger) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "start" {
			continue
		}
		if pid, err := strconv.Atoi(fields[2]); err == nil && syscall.Kill(pid, 0) != syscall.ESRCH {
			pids = append(pids, pid)
		}
	}
	return pids
}

// url NAME VARIABLE waits until NAME serves HTTP, and sets VARIABLE to where.
func urlOf(ts *testscript.TestScript, args []string) {
	var found []string
	re := regexp.MustCompile(`msg=serving url=(http://\S+)`)
	if !eventually(func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		found = re.FindStringSubmatch(string(text))
		return err == nil && found != nil
	}) {
		ts.Fatalf("%s does not serve", args[0])
	}
	ts.Setenv(args[1], found[1])
}

// http CODE METHOD URL makes a request; the answer is in stdout.
func ask(ts *testscript.TestScript, args []string) {
	r, err := http.NewRequest(args[1], args[2], nil)
	ts.Check(err)
	client := http.Client{Timeout: patience}
	answer, err := client.Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	_, err = io.Copy(ts.Stdout(), answer.Body)
	ts.Check(err)
	if code := strconv.Itoa(answer.StatusCode); code != args[0] {
		ts.Fatalf("%s %s: %s, want %s", args[1], args[2], code, args[0])
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
