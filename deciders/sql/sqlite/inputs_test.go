package sqlite_test

import (
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/sqlite"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// What is in the table and no record of ours is reported, and left alone.
func TestForeignRecordIsLeftAlone(t *testing.T) {
	db := pool(t, database(t))
	storetest.Exec(t, db, sqlite.Dialect().Schema("leaderelection"))
	storetest.LeavesAlone(t, feedtest.NoRecords(), func(election string) leaderelection.RaceDecider { return decider(db, election) },
		func(election, content string) {
			storetest.Exec(t, db, "INSERT INTO leaderelection VALUES ($1, 'v', 1, $2)", election, content)
		},
		func(election string) string {
			return storetest.Value[string](t, db, "SELECT record FROM leaderelection WHERE election = $1 AND version = 'v'", election)
		})
}

func TestTablesThatWillNotDo(t *testing.T) {
	for name, c := range map[string]struct {
		sql   string
		words []string
	}{
		"missing":       {"SELECT 1", []string{"no such table", "CREATE TABLE", "create=true"}},
		"a view":        {"CREATE VIEW leaderelection AS SELECT 'e' AS election", []string{"not an ordinary table", "view"}},
		"no key":        {"CREATE TABLE leaderelection (election TEXT, version TEXT, written INTEGER, record TEXT)", []string{"unique index"}},
		"ignores case":  {"CREATE TABLE leaderelection (election TEXT PRIMARY KEY COLLATE NOCASE, version TEXT, written INTEGER, record TEXT)", []string{"upper case"}},
		"partial key":   {"CREATE TABLE leaderelection (election TEXT, version TEXT); CREATE UNIQUE INDEX i ON leaderelection (election) WHERE version <> ''", []string{"unique index"}},
		"another key":   {"CREATE TABLE leaderelection (id INTEGER, election TEXT, UNIQUE (election, id))", []string{"unique index"}},
		"other columns": {"CREATE TABLE leaderelection (election TEXT PRIMARY KEY, leader TEXT)", []string{"must be as in", "CREATE TABLE"}},
	} {
		t.Run(name, func(t *testing.T) {
			db := pool(t, database(t))
			storetest.Exec(t, db, c.sql)
			feedtest.Refuses(t, decider(db, "e"), append(c.words, `"leaderelection"`, `"e"`)...)
		})
	}
	memory := driversOwn(t, ":memory:")
	feedtest.Refuses(t, lesql.NewDecider(memory, sqlite.Dialect(), "t", "e", create), "in memory", "deciders/memory")
	feedtest.Refuses(t, lesql.NewDecider(pool(t, database(t)), sqlite.Dialect(), "other.t", "e", create), "no database")
}

// Names are taken as they are, whatever is in them.
func TestOddNames(t *testing.T) {
	db := pool(t, database(t))
	for _, table := range []string{"Elections", "select", `a"b`, "t; DROP TABLE x", "main.t", strings.Repeat("t", 64)} {
		for _, election := range []string{"e", "E", "e ", "it's", `"\`, strings.Repeat("e", 255), "?1", "élection"} {
			d := lesql.NewDecider(db, sqlite.Dialect(), table, election, create)
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 1, nil)
			feedtest.Reads(t, d, 1)
		}
	}
}

// What is wrong with the file is said, with what to do.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	damaged := filepath.Join(dir, "damaged.db")
	if err := os.WriteFile(damaged, []byte(strings.Repeat("no database at all. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	address := func(path, more string) *lesql.Decider {
		return feedtest.Opened(t, sqlite.Open, (&url.URL{Scheme: "sqlite", Path: path, RawQuery: "election=e" + more}).String())
	}
	feedtest.Refuses(t, address(damaged, ""), "not a sound SQLite database")
	feedtest.Refuses(t, address(filepath.Join(dir, "missing.db"), ""), "create=true")
	if _, err := os.Stat(filepath.Join(dir, "missing.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	feedtest.Refuses(t, address(filepath.Join(dir, "nowhere", "x.db"), "&create=true"), "directory")

	path := filepath.Join(dir, "a%20b?.db")
	d := address(path, "&create=true&busy_timeout=3s")
	feedtest.Write(t, d, 1, nil)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if mode := storetest.Value[string](t, pool(t, path), "PRAGMA journal_mode"); mode != "wal" {
		t.Errorf("a file that Open makes is in mode %q", mode)
	}
	// Read-only, as to one who has no permission: root has it always.
	reading := driversOwn(t, "file:"+url.PathEscape(path)+"?mode=ro")
	observer := decider(reading, "e")
	feedtest.Permanent(t, feedtest.WriteError(t, observer, 2, feedtest.Read(t, observer).Token), "write permission")
}

// When the file was moved, removed or replaced, nobody leads on in the old one.
func TestFileReplaced(t *testing.T) {
	path := database(t)
	move := func(to string) {
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.Rename(path+end, path+to+end); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	db := pool(t, path)
	d := maker(db)
	token := feedtest.Write(t, d, 7, nil)
	token = feedtest.Write(t, d, 8, token)
	move(".old")
	other := maker(pool(t, path))
	feedtest.Write(t, other, 1, nil)
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, token))
	feedtest.Reads(t, d, 1)
	// The old one is put back.
	move(".new")
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	_ = os.Rename(path+".old-wal", path+"-wal")
	feedtest.Reads(t, d, 8)
	// It is removed: a pool that may make it makes an empty one.
	move(".gone")
	feedtest.Passing(t, feedtest.ReadError(t, d), "no such table", "made again")
	feedtest.Reads(t, d, 0)
	move(".gone")
	only, err := sqlite.NewDB(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	feedtest.Refuses(t, decider(only, "e"), "create=true")
}

// A database that somebody keeps locked is waited for, for busy_timeout or until the ctx
// ends, and nothing is written late.
func TestLocked(t *testing.T) {
	path := database(t)
	at := (&url.URL{Scheme: "sqlite", Path: path}).String()
	d := feedtest.Opened(t, sqlite.Open, at+"?election=e&create=true&busy_timeout=50ms")
	patient := feedtest.Opened(t, sqlite.Open, at+"?election=e&busy_timeout=10m")
	token := feedtest.Write(t, d, 1, nil)
	feedtest.Read(t, patient)
	c, err := pool(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "locked", "busy_timeout")
	begun := time.Now()
	_, err = patient.WriteEntry(storetest.Within(t, 100*time.Millisecond), feedtest.State(2, token))
	feedtest.Passing(t, err, "deadline exceeded", "locked", "busy_timeout")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it returned after %v", took)
	}
	if _, err := c.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if e := feedtest.Read(t, patient); e.ElectionNumber == 1 {
		feedtest.Write(t, d, 3, e.Token)
	}
}

// Only in WAL mode nobody undoes what another writes, whatever has become of the locks.
func TestOtherJournalsAreRefused(t *testing.T) {
	for _, journal := range []string{"delete", "truncate", "persist", "memory", "off"} {
		db := driversOwn(t, "file:"+url.PathEscape(database(t))+"?_pragma=journal_mode("+journal+")")
		storetest.Exec(t, db, sqlite.Dialect().Schema("leaderelection"))
		d := decider(db, "e")
		feedtest.Refuses(t, d, "journal_mode is "+journal, "journal_mode = WAL")
		feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "journal_mode")
	}
}

// driversOwn opens a pool as the driver makes it.
func driversOwn(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Each setting by which a loss of power forgets what was confirmed is warned of.
func TestDurability(t *testing.T) {
	path := database(t)
	feedtest.Examines(t, maker(pool(t, path)))
	for synchronous, words := range map[string]string{"extra": "", "full": "", "normal": "= FULL", "off": "= FULL"} {
		db := driversOwn(t, "file:"+url.PathEscape(path)+"?_pragma=synchronous("+synchronous+")")
		if feedtest.Examines(t, decider(db, "e"), strings.Fields(words)...); t.Failed() {
			t.Fatalf("that was synchronous = %s", synchronous)
		}
	}
	plain := driversOwn(t, filepath.Join(t.TempDir(), "x.db"))
	if level := storetest.Value[int](t, plain, "PRAGMA synchronous"); level != 2 {
		t.Errorf("the driver's default is %d: the documentation says FULL", level)
	}
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, sqlite.Open, map[string]string{
		"mysql:///x.db?election=e":                         "scheme",
		"sqlite://host/x.db?election=e":                    "three slashes",
		"sqlite://user@/x.db?election=e":                   "no user",
		"sqlite:///x.db":                                   "?election=",
		"sqlite:///?election=e":                            "names no file",
		"sqlite::memory:?election=e":                       "names no file",
		"sqlite:///dir/?election=e":                        "names no file",
		"sqlite:///x.db?election=e&_pragma=synchronous(0)": `no parameter "_pragma"`,
		"sqlite:///x.db?election=e&create=perhaps":         `"create"`,
		"sqlite:///x.db?election=e&busy_timeout=5":         `"busy_timeout"`,
	})
	if err := sqlite.Local("/d", "", nil); err != nil {
		t.Error(err)
	}
	feedtest.Permanent(t, sqlite.Local("/d", "NFS", nil), "/d", "NFS", "allow_network")
}

// A bare number counts nanoseconds: nobody means so few.
func TestBareNumbers(t *testing.T) {
	_, err := sqlite.NewDB(filepath.Join(t.TempDir(), "db"), &sqlite.Options{BusyTimeout: 10, Create: true})
	feedtest.Says(t, err, "nanoseconds")
}
