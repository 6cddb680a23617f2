package rethinkdb_test

import (
	"errors"
	"testing"
	"time"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestConformance(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { decidertest.Run(t, elections(addr), nil) })
}

// A row that is none of ours is reported, and left alone.
func TestForeignRowIsLeftAlone(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	for name, row := range map[string]map[string]any{
		"another's":         {"id": "web", "holder": "x"},
		"without a version": {"id": "web", "record": `{}`},
		"version of a kind": {"id": "web", "version": []any{1}, "record": `{}`},
		"record of a kind":  {"id": "web", "version": "v", "record": map[string]any{"a": 1}},
		"record no record":  {"id": "web", "version": "v", "record": `{"leader":"x"}`},
		"truncated":         {"id": "web", "version": "v", "record": `{"leaderelection":1,`},
		"without a record":  {"id": "web", "version": "v"},
	} {
		t.Run(name, func(t *testing.T) {
			s.set("web", row)
			feedtest.Foreign(t, d, "leaderelection_test.elections", `"web"`)
			s.mu.Lock()
			defer s.mu.Unlock()
			if now, _ := s.rows["web"].(map[string]any); len(now) != len(row) {
				t.Errorf("it was %v and is %v", row, now)
			}
		})
	}
}

func TestOtherFieldsAreLeftAlone(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	token := feedtest.Write(t, d, 1, nil)
	s.mu.Lock()
	s.rows["web"].(map[string]any)["note"] = "ours"
	s.mu.Unlock()
	token = feedtest.Write(t, d, 2, token)
	if s.rows["web"].(map[string]any)["note"] != "ours" {
		t.Errorf("the row is %v", s.rows["web"])
	}
	if age := time.Since(token.CommitTS()); age.Abs() > time.Minute {
		t.Errorf("CommitTS is %v ago", age)
	}
	if ts := feedtest.Read(t, d).Token.CommitTS(); !ts.Equal(token.CommitTS()) {
		t.Errorf("CommitTS read %v, written %v", ts, token.CommitTS())
	}
}

// A refusal tells who stood in the way, also that there was nobody.
func TestLostRaceHasTheCurrentRecord(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	first := feedtest.Write(t, d, 1, nil)
	feedtest.Write(t, d, 2, first)
	var lost *leaderelection.LostRaceError
	for _, token := range []leaderelection.LeaderToken{nil, first} {
		if _, err := d.WriteEntry(t.Context(), feedtest.State(9, token)); !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 2 {
			t.Errorf("with token %v: %v", token, err)
		}
	}
	s.set("web", nil)
	if _, err := d.WriteEntry(t.Context(), feedtest.State(9, first)); !errors.As(err, &lost) || lost.Current == nil || !lost.Current.Vacant() {
		t.Errorf("where the row was deleted: %v", err)
	}
	feedtest.Write(t, d, 1, lost.Current.Token)
}

// What the server answers, and what becomes of it.
func TestServerErrors(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	token := feedtest.Write(t, d, 1, nil)
	for _, f := range []struct {
		refusal
		word string // of the advice, if no retry can help
	}{
		{refusal{p.Response_OP_FAILED, "Table `ops.elections` does not exist."}, "create"},
		{refusal{p.Response_OP_FAILED, "Database `ops` does not exist."}, "create"},
		{refusal{p.Response_PERMISSION_ERROR, "User `x` does not have the required `read` permission"}, "grant"},
		{refusal{p.Response_QUERY_LOGIC, "Primary key too long (max 127 characters)"}, "127"},
		{refusal{p.Response_QUERY_LOGIC, "Something else about the query"}, "query"},
		{refusal{p.Response_OP_FAILED, "Cannot perform write: primary replica for shard [\"\", +inf) not available"}, ""},
		{refusal{p.Response_OP_INDETERMINATE, "Cannot perform write: The primary replica isn't connected to a quorum of replicas."}, ""},
		{refusal{p.Response_RESOURCE_LIMIT, "Array over size limit"}, ""},
		{refusal{p.Response_INTERNAL, "Server is shutting down"}, ""},
	} {
		s.inject(func(string) *fault { return &fault{refuse: &f.refusal} })
		for _, err := range feedtest.Errors(t, d) {
			switch {
			case err == nil, errors.Is(err, leaderelection.ErrLostRace):
				t.Errorf("%s: %v", f.text, err)
			case f.word != "":
				feedtest.Permanent(t, err, f.word, `"web"`, f.text)
			case errors.Is(err, leaderelection.ErrPermanent):
				t.Errorf("%s: %v", f.text, err)
			}
		}
	}
	s.inject(nil)
	feedtest.Write(t, d, 2, token)
}

// A write whose answer is lost is asked for again by the driver. The row then has the
// version that this write gave it: it has happened.
func TestLostAnswer(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	var token leaderelection.LeaderToken
	for n := range uint64(2) { // the first creates
		once := true
		s.inject(func(kind string) *fault {
			if kind == "replace" && once {
				once = false
				return &fault{cutLate: true}
			}
			return nil
		})
		token = feedtest.Write(t, d, n+1, token)
		if e := feedtest.Read(t, d); uint64(e.ElectionNumber) != n+1 || e.Token != token {
			t.Errorf("read %+v", e)
		}
	}
	// Every attempt's answer is lost: an open question.
	s.inject(func(kind string) *fault {
		if kind == "replace" {
			return &fault{cutLate: true}
		}
		return nil
	})
	feedtest.Passing(t, feedtest.WriteError(t, d, 3, token))
	feedtest.Reads(t, d, 3)
}

func TestNoName(t *testing.T) {
	d := rethinkdb.NewDecider(connect(t, imitate(t).addr), database, table, "", nil)
	feedtest.Refuses(t, d, "name")
}

// With a server that does not answer every call returns when its ctx ends, which the
// driver alone would not; and what it leaves behind has a limit.
func TestNoAnswer(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	token := feedtest.Write(t, d, 1, nil)
	s.inject(func(string) *fault { return &fault{hang: true} })
	for range 25 {
		feedtest.TimesOut(t, 10*time.Millisecond, d, token, `"web"`)
	}
	s.inject(nil)
	s.stop()
	s.start(t, s.addr)
	feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
}

func TestClosedSession(t *testing.T) {
	session := connect(t, imitate(t).addr)
	d := rethinkdb.NewDecider(session, database, table, "web", nil)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	if n := feedtest.Next(t, feed); n.Err == nil {
		t.Errorf("the feed yields %+v", n)
	}
	if _, err := d.ReadCurrent(t.Context()); err == nil {
		t.Error("a closed session reads")
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close of a decider that owns nothing: %v", err)
	}
}
