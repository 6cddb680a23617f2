package rethinkdb_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
)

// Candidates that begin at once mostly make one table; where they make two, each says so.
func TestCreateAtOnce(t *testing.T) {
	const rounds, candidates = 7, 3
	var mu sync.Mutex
	var all sync.WaitGroup
	single := 0
	for range rounds {
		s := imitate(t)
		s.noDatabase, s.tables, s.makeTable = true, 0, 20*time.Millisecond
		all.Go(func() {
			errs := make([]error, candidates)
			var round sync.WaitGroup
			for i := range errs {
				d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
				round.Go(func() { errs[i] = d.Create(t.Context(), 3) })
			}
			round.Wait()
			mu.Lock()
			defer mu.Unlock()
			s.mu.Lock()
			defer s.mu.Unlock()
			err := errors.Join(errs...)
			if len(s.created) == 1 {
				single++
				if err != nil {
					t.Errorf("one table was made, and: %v", err)
				}
			} else {
				feedtest.Permanent(t, err, "ambiguous", "table_config")
			}
		})
	}
	all.Wait()
	t.Logf("%d candidates at once made one table in %d of %d rounds", candidates, single, rounds)
	if single <= rounds/2 {
		t.Errorf("%d candidates at once made one table in %d of %d rounds", candidates, single, rounds)
	}
}

// Two tables of one name are told by everything, with what to do.
func TestTwoTables(t *testing.T) {
	s := imitate(t)
	s.tables = 2
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	_, err1 := d.ReadCurrent(t.Context())
	_, err2 := d.WriteEntry(t.Context(), feedtest.State(1, nil))
	for _, err := range []error{err1, err2, d.Create(t.Context(), 1), feedtest.Next(t, feedtest.Follow(t, d)).Err} {
		feedtest.Permanent(t, err, "ambiguous", "table_config", "drop the empty ones", `"web"`)
	}
}

// Who may only read and write needs no more where there is nothing to make, and is told
// what is missing where there is.
func TestCreateNeedsNoRightsForNothing(t *testing.T) {
	s := imitate(t)
	s.noConfig = true
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	if err := d.Create(t.Context(), 1); err != nil {
		t.Errorf("with nothing to make: %v", err)
	}
	for _, noDatabase := range []bool{false, true} {
		s.mu.Lock()
		s.tables, s.noDatabase = 0, noDatabase
		s.mu.Unlock()
		feedtest.Permanent(t, d.Create(t.Context(), 1), "config", "administrator")
	}
	s.mu.Lock()
	s.noConfig, s.noDatabase = false, false // there is a database, which need not be made
	s.mu.Unlock()
	if err := d.Create(t.Context(), 1); err != nil {
		t.Error(err)
	}
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
}

// A table with another primary key is no use, and not written to.
func TestOtherPrimaryKey(t *testing.T) {
	for _, key := range []string{"name", "version"} {
		s := imitate(t)
		s.key = key
		d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
		_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
		feedtest.Permanent(t, err, "primary key must be", `"web"`)
		ours := imitate(t)
		feedtest.Write(t, rethinkdb.NewDecider(connect(t, ours.addr), database, table, "web", nil), 1, nil)
		row := ours.rows["web"].(map[string]any)
		row["id"] = "another" // as it may be where that is a field like others
		s.set("web", row)
		e, err := d.ReadCurrent(t.Context())
		feedtest.Permanent(t, err, "primary key")
		if e != nil {
			t.Errorf("read %+v", e)
		}
	}
}

// An error says what the server did, and not what the candidate wrote, which is no cause.
func TestErrorsSayNoQuery(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	s.inject(func(string) *fault { return &fault{refuse: &refusal{p.Response_INTERNAL, "Something passes"}} })
	e := feedtest.State(1, nil)
	e.LeaderID, e.ConnectionParams = "Wrong password", []byte("s3cret")
	_, err := d.WriteEntry(t.Context(), e)
	feedtest.Passing(t, err, "Something passes", `"web"`, "writing")
	if text := err.Error(); len(text) > 200 {
		t.Errorf("it says %s", text)
	}
}
