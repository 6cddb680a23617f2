package sql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A dialect of one's own: what it leaves out has a default, what it says is in the
// statements.
func TestOwnDialect(t *testing.T) {
	s := newServer()
	var said []string
	s.before = func(q string) error { said = append(said, q); return errors.New("no") }
	d := lesql.Dialect{Name: "other", Mark: func(i int) string { return fmt.Sprint("$", i) }, Table: "CREATE TABLE %s (...)", Alone: "alone()"}
	decider := lesql.NewDecider(s.open(t), d, `a"b.t`, "e", nil)
	token := feedtest.Write(t, newServer().decider(t, nil), 1, nil) // any will do
	for range 2 {
		feedtest.Passing(t, feedtest.ReadError(t, decider), `other table "a""b"."t", election "e": no`)
	}
	for _, at := range []leaderelection.LeaderToken{nil, token} {
		feedtest.Passing(t, feedtest.WriteError(t, decider, 1, at), "no")
	}
	read := `SELECT election, version, written, record FROM "a""b"."t" WHERE election = $1`
	want := []string{read, read,
		`INSERT INTO "a""b"."t" (election, version, written, record) SELECT $1, $2, 0, $3 WHERE alone()`,
		`UPDATE "a""b"."t" SET version = $1, written = 0, record = $2 WHERE election = $3 AND version = $4 AND alone()`}
	if !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
	if got := d.Schema("s.t"); got != `CREATE TABLE "s"."t" (...)` {
		t.Error(got)
	}
	_, err := decider.Durability(t.Context())
	feedtest.Passing(t, err, "no setting of")
}

// Without Now nothing is said of times, whatever is in the column.
func TestNoTimes(t *testing.T) {
	s := newServer()
	d := dialect()
	d.Now, d.NowIsInsertID = "", false
	decider := lesql.NewDecider(s.open(t), d, "t", "e", nil)
	for _, token := range []leaderelection.LeaderToken{feedtest.Write(t, decider, 1, nil), feedtest.Read(t, decider).Token} {
		if !token.CommitTS().IsZero() {
			t.Error(token.CommitTS())
		}
	}
	if ts := feedtest.Write(t, s.decider(t, nil), 2, feedtest.Read(t, decider).Token).CommitTS(); time.Since(ts).Abs() > time.Minute {
		t.Error(ts)
	}
}

func TestBadNames(t *testing.T) {
	s := newServer()
	for _, names := range [][2]string{
		{"", "e"}, {"t", ""}, {"a.b.c", "e"}, {".t", "e"}, {"t.", "e"}, {"t ", "e"}, {"t\x00", "e"}, {"t", "e\x00"},
		{strings.Repeat("t", 65), "e"}, {"t", strings.Repeat("e", 256)},
	} {
		d := lesql.NewDecider(s.open(t), dialect(), names[0], names[1], nil)
		feedtest.Refuses(t, d, "name must")
		_, err := d.Durability(t.Context())
		feedtest.Permanent(t, err, "name must")
	}
	if len(s.log) > 0 {
		t.Errorf("asked: %q", s.log)
	}
}

type foreign struct{}

func (foreign) CommitTS() time.Time { return time.Time{} }

func TestForeignTokenAndClosedPool(t *testing.T) {
	s := newServer()
	db := s.open(t)
	d := lesql.NewDecider(db, dialect(), "t", "e", nil)
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, foreign{}))
	feedtest.Permanent(t, err, "another kind of store")
	if err := d.Close(); err != nil { // the pool is the caller's
		t.Fatal(err)
	}
	token := feedtest.Write(t, d, 1, nil)
	if err := lesql.NewDecider(db, dialect(), "t", "e", &lesql.Options{Close: db.Close}).Close(); err != nil {
		t.Fatal(err)
	}
	feedtest.Permanent(t, feedtest.WriteError(t, d, 2, token), "database is closed", "keep the pool open")
}

// What the server refuses, by its number, and what to do.
func TestMySQLErrors(t *testing.T) {
	for _, c := range []struct {
		number  int
		passing bool
		words   string
	}{
		{1045, false, "user and password"}, {1044, false, "user and password"}, {1130, false, "hosts"}, {1142, false, "GRANT SELECT, INSERT, UPDATE"},
		{1049, false, "make the database"}, {1046, false, "name a database"}, {1146, false, "CREATE TABLE"}, {1054, false, "must be as in"}, {1406, false, "must be as in"},
		{3159, false, "tls=true"}, {1064, false, "MariaDB from"},
		{1290, true, "read_only"}, {1836, true, "read_only"}, {1792, true, "read_only"}, {1205, true, "holds the row's lock"}, {1213, true, "another node's write"},
		{1047, true, "quorum"}, {1040, true, "max_connections"}, {1021, true, "no room"}, {1129, true, "FLUSH HOSTS"}, {1053, true, ""}, {2006, true, ""}, {1317, true, ""},
	} {
		s := newServer()
		s.before = func(string) error { return fmt.Errorf("the driver's words: %w", refused(c.number)) }
		decider := s.decider(t, nil)
		_, read := decider.ReadCurrent(t.Context())
		_, written := decider.WriteEntry(t.Context(), feedtest.State(1, nil))
		for _, err := range []error{read, written} {
			if check := map[bool]func(testing.TB, error, ...string){true: feedtest.Passing, false: feedtest.Permanent}[c.passing]; check != nil {
				check(t, err, c.words, "the driver's words", "`t`", `"e"`)
			}
			if denied := c.words == "user and password" || c.words == "hosts" || strings.HasPrefix(c.words, "GRANT"); denied != errors.Is(err, leaderelection.ErrDenied) {
				t.Errorf("%v: access denied: %v", err, !denied)
			}
			if t.Failed() {
				t.Fatalf("that was %d", c.number)
			}
		}
	}
}

// A table that is missing is made, even if it goes missing later.
func TestCreateTable(t *testing.T) {
	s := newServer()
	missing := true
	d := dialect()
	d.Inspect = func(context.Context, lesql.Asker, string, string) (string, error) {
		if missing {
			return "", nil
		}
		return `db1:3306, database "app"`, nil
	}
	s.before = func(q string) error {
		if strings.HasPrefix(q, "CREATE") {
			missing = false
		} else if missing {
			return refused(1146)
		}
		return nil
	}
	decider := lesql.NewDecider(s.open(t), d, "t", "e", &lesql.Options{CreateTable: true})
	token := feedtest.Write(t, decider, 1, nil)
	if s := decider.String(); s != "mysql db1:3306, database \"app\", table `t`, election \"e\"" {
		t.Error(s)
	}
	missing = true
	feedtest.Passing(t, feedtest.WriteError(t, decider, 2, token), "made again")
	feedtest.Read(t, decider)
	missing = true
	feedtest.Permanent(t, feedtest.ReadError(t, lesql.NewDecider(s.open(t), d, "t", "e", nil)), "CREATE TABLE IF NOT EXISTS `t`", "create=true")
}
