package record_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/pages"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// observerSkew is what the observers take for the skew, as docs/record.md shows.
const observerSkew = 250 * time.Millisecond

// watched is an observer that runs.
type watched struct {
	name  string
	lines chan string
	all   []string
}

// observe starts an observer of the record at place, which ends with the test.
func observe(t *testing.T, language, place string) *watched {
	t.Helper()
	o := observers[language]
	w := &watched{name: language + " of " + place, lines: make(chan string, 1000)}
	cmd := exec.CommandContext(t.Context(), stores.Need(t, o.command[0]), append(o.command[1:], filepath.Join(recordDocs, o.program), place, fmt.Sprint(observerSkew.Seconds()), "0.05")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		<-read
		_ = cmd.Wait()
	})
	return w
}

// until waits for a line that begins with what want returns at that time.
func (w *watched) until(t *testing.T, want func() string) {
	t.Helper()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for {
		select {
		case line := <-w.lines:
			if w.all = append(w.all, line); strings.HasPrefix(line, want()) {
				return
			}
		case <-patience.C:
			t.Fatalf("the observer in %s does not say %q, but\n%s", w.name, want(), strings.Join(w.all, "\n"))
		}
	}
}

// The observers of docs/record.md follow a real election, in a file and over HTTP, and print what
// the page says.
func TestObserversFollowAnElection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "election.json")
	d := file.NewDecider(path, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }))
	t.Cleanup(server.Close)
	var all []*watched
	for language := range observers {
		t.Run(language, func(t *testing.T) { stores.Need(t, observers[language].command[0]) }) // which says that it is missing
		if _, err := exec.LookPath(observers[language].command[0]); err == nil {
			all = append(all, observe(t, language, path), observe(t, language, server.URL+"/election.json"))
		}
	}
	current := func() *leaderelection.RaceEntry {
		t.Helper()
		e, err := d.ReadCurrent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	now := func(state string) func() string {
		return func() string {
			e := current()
			line := fmt.Sprintf("%s, token %d", state, e.ElectionNumber)
			if !e.Vacant() {
				line += fmt.Sprintf(", leader %q, until %s", e.LeaderID, e.TermExpiry.Add(observerSkew).UTC().Format("2006-01-02T15:04:05.000Z"))
			}
			return line
		}
	}
	say := func(state string) {
		t.Helper()
		for _, w := range all {
			w.until(t, now(state))
		}
	}
	lead := func(id string) (stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		c, err := leaderelection.Config{Decider: d, LeaderID: id, ClockPolicy: leaderelection.SharedClock}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return func() { cancel(); <-c.Done() }
	}

	for _, w := range all {
		w.until(t, func() string { return "unknown, " })
	}
	stop := lead("web-1")
	say("led")
	stop()
	say("vacant")
	stop = lead("web-2")
	say("led")
	stop()
	say("vacant")

	// A leader that has died: nobody releases for it.
	e := current()
	e.LeaderID, e.Incarnation, e.Extension, e.ElectionNumber = "web-3", "dead", 0, e.ElectionNumber+1
	e.TermLength, e.TermExpiry = 15*time.Second, time.Now().Add(time.Second)
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	say("lapsed")
	if over := e.TermExpiry.Add(observerSkew); time.Now().Before(over) {
		t.Errorf("a term that is over at %v has lapsed before", over)
	}

	blocks, err := pages.Read(stores.Root(t), "record.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Lang != "text" {
			continue
		}
		for _, w := range all {
			if err := pages.Prints(b.Text, strings.Join(w.all, "\n")); err != nil {
				t.Errorf("%v: the observer in %s: %v", b, w.name, err)
			}
		}
	}
}
