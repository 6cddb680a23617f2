//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The workers are this test binary, started again.
func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(workMain(name))
	}
	os.Exit(m.Run())
}

func dsn(t *testing.T) string {
	t.Helper()
	return "postgres://postgres@" + stores.Postgres(t).Addr + "/postgres?sslmode=disable"
}

var scenario = regexp.MustCompile(`^PostgreSQL \S+.* \((the one given|started for this)\), schema fencing_[a-z2-7]{12}
first   leads with token \d{10}, has asked its view, and is told that it may write
first   is stopped at that very moment \(SIGSTOP\); its term is 2s
second  leads with token \d{10}, [0-9.]+ s later, and writes
          the fenced table:   accepted
          the unfenced table: accepted
first   goes on \(SIGCONT\), and writes what it was about to write
          the fenced table:   REFUSED: fence: stale token orders:\d{10}: \d{10} has been seen
          the unfenced table: accepted
first   wants to write once more, by its write gate
          the fenced table:   REFUSED: fence: not sent: leaderelection: this process does not lead \(token \d{10} of "orders"\)
          the unfenced table: REFUSED: fence: not sent: leaderelection: this process does not lead \(token \d{10} of "orders"\)
in PostgreSQL, the fenced table holds what second wrote, the unfenced one what first wrote
the late write of a deposed leader was refused where there is a fence, and accepted where there is none
$`)

func TestGivenServer(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	dsn := dsn(t)
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-dsn", dsn}, &out, &errs); status != 0 || !scenario.Match(out.Bytes()) {
		t.Fatalf("status %d, errors %q, and:\n%s", status, &errs, &out)
	}
	leavesNothing(t, dsn)
}

// leavesNothing says what is left in a database.
func leavesNothing(t *testing.T, dsn string) {
	t.Helper()
	s := &scene{out: io.Discard}
	defer s.end()
	if err := s.prepare(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	var n int
	q := "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'fencing%' AND nspname <> $1"
	if err := s.tables.db.QueryRowContext(t.Context(), q, s.tables.schema).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d schemas are left, %v", n, err)
	}
}

func TestOwnServer(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	if _, err := program("initdb"); err != nil {
		stores.Missing(t, err.Error())
	}
	t.Setenv("TMPDIR", tempDir(t))
	var out, errs bytes.Buffer
	if status := run(t.Context(), nil, &out, &errs); status != 0 || !scenario.Match(out.Bytes()) {
		t.Fatalf("status %d, errors %q, and:\n%s", status, &errs, &out)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// tempDir is one with a short name, which sockets need, that all may enter.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Where the late write does get through, that is seen: here the fence forgets
// what it has seen.
func TestBrokenFence(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	var out bytes.Buffer
	err := show(t.Context(), &out, dsn(t), func(tables *tables) {
		if _, err := tables.db.ExecContext(t.Context(), "DELETE FROM "+tables.schema+".fences"); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, errProof) || !strings.Contains(out.String(), "the fenced table holds what first wrote") {
		t.Errorf("%v:\n%s", err, &out)
	}
}

// Broken off in the middle, it leaves nothing behind, its frozen worker neither.
func TestBrokenOff(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	dsn := dsn(t)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var out bytes.Buffer
	err := show(ctx, &out, dsn, func(*tables) { cancel(why) })
	if err == nil || errors.Is(err, errProof) {
		t.Errorf("%v:\n%s", err, &out)
	}
	leavesNothing(t, dsn)
}

func TestWrongUse(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	was := bins
	bins = []string{t.TempDir()}
	defer func() { bins = was }()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no server":      {nil, "there is no PostgreSQL to write to: name one, as -dsn"},
		"no such one":    {[]string{"-dsn", "postgres://x:secret@127.0.0.1:1/y?connect_timeout=5"}, "PostgreSQL does not answer"},
		"no dsn":         {[]string{"-dsn", "http://x:secret@y"}, "fencing: "},
		"unknown flag":   {[]string{"-such"}, "not defined: -such"},
		"stray argument": {[]string{"postgres://x"}, `unexpected argument "postgres://x"`},
	} {
		var out, errs bytes.Buffer
		status := run(t.Context(), c.args, &out, &errs)
		if status != 2 || !strings.Contains(errs.String(), c.says) || strings.Contains(errs.String(), "secret") {
			t.Errorf("%s: status %d, %q", name, status, &errs)
		}
	}
}
