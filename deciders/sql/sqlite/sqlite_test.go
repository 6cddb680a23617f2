package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	program "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/sqlite"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(racerEnv); path != "" {
		if err := racer(path); err != nil {
			log.Fatal(err)
		}
		return
	}
	proctest.Main(sqlite.Open)
	goleak.VerifyTestMain(m)
}

// pool opens the database at path, and closes it at the end of the test.
func pool(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sqlite.NewDB(path, &sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var create = &lesql.Options{CreateTable: true}

// journals are the modes in which a database may be.
var journals = []string{"wal", "delete", "truncate"}

// database makes an empty one in a mode.
func database(t testing.TB, journal string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app ?.db")
	storetest.Exec(t, pool(t, path), "PRAGMA journal_mode = "+journal)
	return path
}

// decider returns an election in the usual table, and maker one that makes the table if it is missing.
func decider(db *sql.DB, election string) *lesql.Decider {
	return lesql.NewDecider(db, sqlite.Dialect(), "leaderelection", election, nil)
}

func maker(db *sql.DB) *lesql.Decider {
	return lesql.NewDecider(db, sqlite.Dialect(), "leaderelection", "e", create)
}

func TestConformance(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			if testing.Short() && journal != journals[0] {
				t.Skip("nightly: the suite once more")
			}
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				path := database(t, journal)
				return func() leaderelection.RaceDecider {
					return maker(pool(t, path))
				}
			}, nil)
		})
	}
}

// Three candidates in processes of their own: one is killed, one stopped past its term.
func TestProcesses(t *testing.T) {
	proctest.Run(t, proctest.Options{Address: "sqlite://" + filepath.Join(t.TempDir(), "app.db") + "?election=e&create=true"})
}

// racerEnv has the database's path, in a process that is a racer.
const racerEnv = "LEADERELECTION_SQLITE_RACER"

// racer takes part in races, each of two lines of its input: it reads, and it writes. At each line it
// begins to copy the database, which drops its process's locks; not for ever, as its own operations
// are refused while it copies. It ends with its input, whatever it is at.
func racer(path string) error {
	db, err := sqlite.NewDB(path, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	d := decider(db, "e")
	lines := make(chan struct{})
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- struct{}{}
		}
		os.Exit(0)
	}()
	copies := make(chan struct{}, 1)
	go func() {
		for range copies {
			for range 100 {
				for _, end := range []string{"", "-wal", "-shm"} {
					_, _ = os.ReadFile(path + end)
				}
			}
		}
	}()
	line := func() {
		<-lines
		select {
		case copies <- struct{}{}:
		default: // it has not done with those of the line before
		}
	}
	for {
		line()
		var e *leaderelection.RaceEntry
		for e == nil { // busy, as long as the copy is seen to be made
			if e, err = d.ReadCurrent(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		fmt.Println("ready")
		line()
		for {
			next := feedtest.State(uint64(e.ElectionNumber)+1, e.Token)
			next.Incarnation = fmt.Sprint(os.Getpid())
			_, err := d.WriteEntry(context.Background(), next)
			if err == nil || errors.Is(err, leaderelection.ErrLostRace) {
				fmt.Println(err == nil)
				break
			}
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// Three candidates whose SQLite has lost all its locks: of each race one wins.
func TestWithoutLocks(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	const racers, rounds = 3, 25
	for _, journal := range journals[:2] {
		t.Run(journal, func(t *testing.T) {
			path := database(t, journal)
			d := maker(pool(t, path))
			feedtest.Write(t, d, 1, nil)
			var in []io.Writer
			var out []*bufio.Scanner
			for range racers {
				c := program.CommandContext(t.Context(), os.Args[0])
				c.Env = append(os.Environ(), racerEnv+"="+path)
				w, err := c.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				r, err := c.StdoutPipe()
				if err == nil {
					err = c.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = w.Close(); _ = c.Wait() })
				in, out = append(in, w), append(out, bufio.NewScanner(r))
			}
			// each sends a line to each racer, and counts the answers that say so.
			each := func(says string) (n int) {
				for _, w := range in {
					fmt.Fprintln(w)
				}
				for _, r := range out {
					if !r.Scan() {
						t.Fatal("a racer has ended")
					}
					if strings.TrimSpace(r.Text()) == says {
						n++
					}
				}
				return n
			}
			for round := range rounds {
				if each("ready") != racers {
					t.Fatal("not ready")
				}
				if n := each("true"); n != 1 {
					t.Errorf("race %d has %d winners", round, n)
				}
			}
			if sound := storetest.Value[string](t, pool(t, path), "PRAGMA integrity_check"); sound != "ok" {
				t.Errorf("the database: %s", sound)
			}
		})
	}
}

// What else of this process has the database open is found out before a write, and pools of
// this package are not.
func TestForeignDescriptors(t *testing.T) {
	for _, journal := range journals[:2] {
		path := database(t, journal)
		d := maker(pool(t, path))
		token := feedtest.Write(t, d, 1, nil)
		token = feedtest.Write(t, decider(pool(t, path), "e"), 2, token)
		token = feedtest.Write(t, d, 3, token)
		for _, end := range []string{"", "-wal", "-shm"} {
			f, err := os.Open(path + end)
			if errors.Is(err, os.ErrNotExist) && journal != "wal" {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			feedtest.Permanent(t, feedtest.WriteError(t, d, 4, token), path, "sqlite.NewDB", "VACUUM INTO")
			feedtest.Reads(t, d, 3)
			_ = f.Close()
		}
		// Its close has dropped our locks; new connections have their own.
		d = decider(pool(t, path), "e")
		feedtest.Write(t, d, 4, feedtest.Read(t, d).Token)
	}
}

// The log was removed under the connection, as by another process that saw no lock: what is
// written there nobody reads.
func TestLogRemoved(t *testing.T) {
	for _, end := range []string{"-wal", "-shm"} {
		path := database(t, "wal")
		d := maker(pool(t, path))
		token := feedtest.Write(t, d, 1, nil)
		storetest.Exec(t, pool(t, path), "PRAGMA wal_checkpoint(TRUNCATE)")
		if err := os.Remove(path + end); err != nil {
			t.Fatal(err)
		}
		other := decider(pool(t, path), "e")
		_, _ = other.ReadCurrent(t.Context())
		if _, err := d.WriteEntry(t.Context(), feedtest.State(2, token)); err == nil {
			if e := feedtest.Read(t, other); e.ElectionNumber != 2 {
				t.Errorf("%s: what was written is not read: %+v", end, e)
			}
		}
	}
}

// Of all processes of this machine that run this, one at a time does the job.
func Example() {
	dir, err := os.MkdirTemp("", "election") // in a real program where its database is
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.NewDB(filepath.Join(dir, "app.db"), &sqlite.Options{Create: true}) // without: the file must be there
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	decider := lesql.NewDecider(db, sqlite.Dialect(), "leaderelection", "nightly", &lesql.Options{CreateTable: true})
	config := leaderelection.Config{Decider: decider, LeaderID: "worker-1", ClockPolicy: leaderelection.SharedClock}
	err = config.Run(context.Background(), func(_ context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading:", view.ElectionNumber() > 0, view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading: true true
	// <nil>
}
