package sql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
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

func TestForeignTokenAndClosedPool(t *testing.T) {
	s := newServer()
	db := s.open(t)
	d := lesql.NewDecider(db, dialect(), "t", "e", nil)
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, storetest.Foreign{}))
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

// An answer that a write cannot have is neither a success nor a lost race, and leaves it
// open what has happened.
func TestFalseResults(t *testing.T) {
	other := errors.New("not supported")
	for name, lie := range map[string]result{
		"two rows":              {affected: 2, id: 1},
		"a negative number":     {affected: -1, id: 1},
		"no number of rows":     {noRows: other, id: 1},
		"no time":               {affected: 1},
		"a time before 1970":    {affected: 1, id: -5},
		"the time is no answer": {affected: 1, id: 1, noTime: other},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			d := s.decider(t, nil)
			for _, token := range []leaderelection.LeaderToken{nil, feedtest.Write(t, d, 1, nil)} {
				s.write = func(string, result, error) (result, error) { return lie, nil }
				feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), `table `+"`t`", `"e"`)
				s.write = nil
			}
		})
	}
}

// A success that was none is found out by what comes after it, and one that is denied is
// found by reading.
func TestDeniedSuccess(t *testing.T) {
	s := newServer()
	d := s.decider(t, nil)
	token := feedtest.Write(t, d, 1, nil)
	s.write = func(string, result, error) (result, error) { return result{}, nil }
	feedtest.Lost(t, feedtest.WriteError(t, d, 2, token))
	s.write = nil
	if e := feedtest.Read(t, d); e.ElectionNumber != 2 || s.count("written + 1") != 1 {
		t.Errorf("%+v, after %d touches", e, s.count("written + 1"))
	}
}

// What is read and is no record of this election is told of, and decides nothing.
func TestFalseRows(t *testing.T) {
	for name, c := range map[string]struct {
		rows  func(r []driver.Value) [][]driver.Value
		words string
	}{
		"another election": {func(r []driver.Value) [][]driver.Value { r[0] = "E"; return [][]driver.Value{r} }, `takes "E" for "e"`},
		"no election":      {func(r []driver.Value) [][]driver.Value { r[0] = nil; return [][]driver.Value{r} }, `takes "" for "e"`},
		"no version":       {func(r []driver.Value) [][]driver.Value { r[1] = ""; return [][]driver.Value{r} }, "has no version"},
		"NULL version":     {func(r []driver.Value) [][]driver.Value { r[1] = nil; return [][]driver.Value{r} }, "has no version"},
		"time is a word":   {func(r []driver.Value) [][]driver.Value { r[2] = "now"; return [][]driver.Value{r} }, "CREATE TABLE"},
		"no record":        {func(r []driver.Value) [][]driver.Value { r[3] = nil; return [][]driver.Value{r} }, "it is empty"},
		"others' record":   {func(r []driver.Value) [][]driver.Value { r[3] = `{"a":1}`; return [][]driver.Value{r} }, "e"},
		"too long":         {func(r []driver.Value) [][]driver.Value { r[3] = strings.Repeat(" ", 1<<20); return [][]driver.Value{r} }, "e"},
		"two rows":         {func(r []driver.Value) [][]driver.Value { return [][]driver.Value{r, r} }, "two rows"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			d := s.decider(t, nil)
			feedtest.Write(t, d, 1, nil)
			before := s.rows["e"]
			s.read = func(rows [][]driver.Value, err error) ([][]driver.Value, error) { return c.rows(rows[0]), err }
			feedtest.Permanent(t, feedtest.ReadError(t, d), c.words, `election "e"`)
			if s.rows["e"] != before {
				t.Error("the row was changed")
			}
		})
	}
	s := newServer()
	d := s.decider(t, nil)
	feedtest.Write(t, d, 1, nil)
	s.read = func([][]driver.Value, error) ([][]driver.Value, error) { return nil, errors.New("gone") }
	feedtest.Passing(t, feedtest.ReadError(t, d), "gone", `election "e"`)
}

// A record of one's own that is read while a write of one's own was not answered counts
// only when an UPDATE on top of it was confirmed.
func TestRecordInDoubt(t *testing.T) {
	s := newServer()
	d, other := s.decider(t, nil), s.decider(t, nil)
	token := feedtest.Write(t, d, 1, nil)
	if feedtest.Read(t, d); s.count("written + 1") != 0 {
		t.Error("what was confirmed is touched")
	}
	lost := errors.New("the connection broke")
	s.write = func(_ string, r result, _ error) (result, error) { return r, lost }
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "the connection broke")
	feedtest.Passing(t, feedtest.ReadError(t, d), "making sure", "the connection broke")
	feedtest.Reads(t, other, 2)
	s.write = nil
	touches := s.count("written + 1")
	if e := feedtest.Read(t, d); e.ElectionNumber != 2 || s.count("written + 1") != touches+1 {
		t.Errorf("%+v after %d touches", e, s.count("written + 1")-touches)
	}
	if feedtest.Read(t, d); s.count("written + 1") != touches+1 {
		t.Error("what was made sure of is touched again")
	}
	// It is replaced while it is made sure of: what replaced it is read.
	s.write = func(_ string, r result, _ error) (result, error) { return r, lost }
	feedtest.Passing(t, feedtest.WriteError(t, d, 3, feedtest.Read(t, other).Token))
	s.write = nil
	var once atomic.Bool
	s.mu.Lock()
	s.before = func(query string) error {
		if strings.Contains(query, "written + 1") && !once.Swap(true) {
			e := feedtest.State(4, feedtest.Read(t, other).Token)
			e.Incarnation = "another"
			_, err := other.WriteEntry(t.Context(), e)
			return err
		}
		return nil
	}
	s.mu.Unlock()
	feedtest.Reads(t, d, 4)
}

// A record of one's own that is in doubt, and that only a replica still has, is not made
// sure of again and again: a proxy may send reads to one that lags.
func TestDoubtAndLaggingReads(t *testing.T) {
	s := newServer()
	d, other := s.decider(t, nil), s.decider(t, nil)
	lost := errors.New("the connection broke")
	s.write = func(_ string, r result, _ error) (result, error) { return r, lost }
	feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil))
	replica, err := s.query([]driver.NamedValue{{Value: "e"}})
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, feedtest.Read(t, other).Token))
	s.write = nil
	s.read = func([][]driver.Value, error) ([][]driver.Value, error) { return slices.Clone(replica), nil }
	_, err = d.ReadCurrent(storetest.Within(t, 30*time.Second))
	feedtest.Passing(t, err, "replica", "primary")
	if n := s.count("written + 1"); n > 3 {
		t.Errorf("it was touched %d times", n)
	}
	s.read = nil
	feedtest.Reads(t, d, 2)
}

// A session whose writes do not commit by themselves writes nothing, and says why.
func TestNotAlone(t *testing.T) {
	s := newServer()
	with := dialect()
	with.Alone = "@@autocommit = 1"
	d := lesql.NewDecider(s.open(t), with, "t", "e", nil)
	s.write = func(string, result, error) (result, error) { return result{}, nil }
	s.read = func(rows [][]driver.Value, err error) ([][]driver.Value, error) {
		if rows == nil {
			return [][]driver.Value{{int64(0)}}, nil // the answer to SELECT CASE
		}
		return rows, err
	}
	s.rows["other"] = row{}
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "@@autocommit = 1")
	if !slices.ContainsFunc(s.log, func(q string) bool {
		return strings.HasPrefix(q, "INSERT INTO `t` (election, version, written, record) SELECT ?, ?, "+with.Now+", ? FROM DUAL WHERE @@autocommit = 1 /* leaderelection ")
	}) {
		t.Errorf("%q", s.log)
	}
}
