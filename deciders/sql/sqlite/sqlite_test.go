package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	program "os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// database names one that is made when it is opened.
func database(t testing.TB) (path string) { return filepath.Join(t.TempDir(), "app ?.db") }

// decider returns an election in the usual table, and maker one that makes the table if it is missing.
func decider(db *sql.DB, election string) *lesql.Decider {
	return lesql.NewDecider(db, sqlite.Dialect(), "leaderelection", election, nil)
}

func maker(db *sql.DB) *lesql.Decider {
	return lesql.NewDecider(db, sqlite.Dialect(), "leaderelection", "e", create)
}

func TestConformance(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		path := database(t)
		return func() leaderelection.RaceDecider { return maker(pool(t, path)) }
	}, nil)
}

// Three candidates in processes of their own: one is killed, one stopped past its term.
func TestProcesses(t *testing.T) {
	proctest.Run(t, proctest.Options{Address: "sqlite://" + filepath.Join(t.TempDir(), "app.db") + "?election=e&create=true"})
}

// racerEnv has the database's path, in a process that is a racer.
const racerEnv = "LEADERELECTION_SQLITE_RACER"

// racer takes part in races, each time with the version that it has just read, until it has won 25, and prints
// the numbers that it has won. For each race it begins to copy the database, which drops its process's locks; not
// for ever, as its own operations are refused while it copies.
func racer(path string) error {
	db, err := sqlite.NewDB(path, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	d := decider(db, "e")
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
	for won := 0; won < 25; {
		select {
		case copies <- struct{}{}:
		default: // it has not done with those of the race before
		}
		e, err := d.ReadCurrent(context.Background())
		if err == nil {
			next := feedtest.State(uint64(e.ElectionNumber)+1, e.Token)
			next.Incarnation = fmt.Sprint(os.Getpid())
			if _, err = d.WriteEntry(context.Background(), next); err == nil {
				won++
				fmt.Println(next.ElectionNumber)
			}
		}
		if err != nil && !errors.Is(err, leaderelection.ErrLostRace) {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return nil
}

// Candidates whose SQLite has lost all its locks, and who read while others write: of each race one wins.
func TestWithoutLocks(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	path := database(t)
	feedtest.Write(t, maker(pool(t, path)), 1, nil)
	var all sync.WaitGroup
	won := make(chan string, 1000)
	for range 3 {
		all.Go(func() {
			c := program.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), racerEnv+"="+path)
			numbers, err := c.Output()
			if err != nil {
				t.Errorf("a racer: %v", err)
			}
			for number := range strings.FieldsSeq(string(numbers)) {
				won <- number
			}
		})
	}
	all.Wait()
	close(won)
	seen := map[string]bool{}
	for number := range won {
		if seen[number] {
			t.Errorf("race %s has two winners", number)
		}
		seen[number] = true
	}
	if sound := storetest.Value[string](t, pool(t, path), "PRAGMA integrity_check"); sound != "ok" {
		t.Errorf("the database: %s", sound)
	}
}

// What else of this process has the database open is found out before a write, and pools of
// this package are not.
func TestForeignDescriptors(t *testing.T) {
	path := database(t)
	d := maker(pool(t, path))
	token := feedtest.Write(t, d, 1, nil)
	token = feedtest.Write(t, decider(pool(t, path), "e"), 2, token)
	token = feedtest.Write(t, d, 3, token)
	for _, end := range []string{"", "-wal", "-shm"} {
		f, err := os.Open(path + end)
		if err != nil {
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

// The log was removed under the connection, as by another process that saw no lock: what is
// written there nobody reads.
func TestLogRemoved(t *testing.T) {
	for _, end := range []string{"-wal", "-shm"} {
		path := database(t)
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
