package rethinkdb_test

import (
	"context"
	"errors"
	"iter"
	"maps"
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
	s, d := imitated(t)
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
	s, d := imitated(t)
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
	s, d := imitated(t)
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
	s, d := imitated(t)
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
	s, d := imitated(t)
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
	s, d := imitated(t)
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

// Two tables of one name are told by everything, with what to do.
func TestTwoTables(t *testing.T) {
	s := imitate(t)
	s.tables = 2
	d := web(t, s.addr)
	for _, err := range feedtest.Errors(t, d) {
		feedtest.Permanent(t, err, "ambiguous", "table_config", "drop the empty ones", `"web"`)
	}
}

// A table with another primary key is no use, and not written to.
func TestOtherPrimaryKey(t *testing.T) {
	for _, key := range []string{"name", "version"} {
		s := imitate(t)
		s.key = key
		d := web(t, s.addr)
		feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "primary key must be", `"web"`)
		ours := imitate(t)
		feedtest.Write(t, web(t, ours.addr), 1, nil)
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
	s, d := imitated(t)
	s.inject(func(string) *fault { return &fault{refuse: &refusal{p.Response_INTERNAL, "Something passes"}} })
	e := feedtest.State(1, nil)
	e.LeaderID, e.ConnectionParams = "Wrong password", []byte("s3cret")
	_, err := d.WriteEntry(t.Context(), e)
	feedtest.Passing(t, err, "Something passes", `"web"`, "writing")
	if text := err.Error(); len(text) > 200 {
		t.Errorf("it says %s", text)
	}
}

// A table whose write_acks is single acknowledges what a majority lacks: such a write does
// not count, and when the others have gone on without it, it never was.
func TestSingleAcks(t *testing.T) {
	s := imitate(t)
	s.singleAcks = true
	d := web(t, s.addr)
	first := feedtest.Write(t, d, 1, nil)
	s.cutOff()
	acknowledged := make(chan struct{})
	s.inject(func(kind string) *fault {
		if kind == "get" {
			close(acknowledged) // it reads back
			s.fault = nil
		}
		return nil
	})
	written := make(chan error, 1)
	go func() {
		_, err := d.WriteEntry(t.Context(), feedtest.State(2, first))
		written <- err
	}()
	<-acknowledged
	select {
	case err := <-written:
		t.Fatalf("a write that no majority has ends with %v", err)
	default:
	}
	s.undo()
	feedtest.Passing(t, <-written, "acknowledged", "majority", `"web"`)
	third := feedtest.Write(t, d, 3, first) // the record is as it was

	// Another has written over it since.
	s.inject(func(kind string) *fault {
		if kind == "get" {
			row := maps.Clone(s.rows["web"].(map[string]any))
			row["version"] = "another"
			s.rows["web"], s.fault = row, nil
		}
		return nil
	})
	feedtest.Passing(t, feedtest.WriteError(t, d, 4, third), "acknowledged", "written over")
}

// What doctor is told of the table.
func TestDurability(t *testing.T) {
	s, d := imitated(t)
	for _, c := range []struct {
		acks     string
		replicas []any
		want     []string
	}{
		{"majority", []any{"a", "b", "c"}, nil},
		{"single", []any{"a", "b", "c"}, []string{`write_acks is "single"`, "update({write_acks"}},
		{"majority", []any{"a"}, []string{"1 replicas", "reconfigure"}},
	} {
		s.mu.Lock()
		s.config = map[string]any{"write_acks": c.acks, "shards": []any{map[string]any{"replicas": c.replicas}}}
		s.mu.Unlock()
		feedtest.Examines(t, d, c.want...)
	}
	s.mu.Lock()
	s.config = nil // which a user without the right is refused
	s.mu.Unlock()
	_, err := d.Durability(t.Context())
	feedtest.Permanent(t, err, "examining", "config")
}

// RethinkDB keeps text, and puts other letters in the place of what is no UTF-8: a name of
// such bytes is refused before anything is asked.
func TestNamesAreUTF8(t *testing.T) {
	s := imitate(t)
	for _, names := range [][3]string{{"\xff", table, "web"}, {database, "\xff", "web"}, {database, table, "we\xffb"}} {
		d := rethinkdb.NewDecider(connect(t, s.addr), names[0], names[1], names[2], nil)
		feedtest.Refuses(t, d, "UTF-8")
	}
	if s.count("get")+s.count("replace") > 0 {
		t.Error("it was asked for")
	}
}

// cutOffAtWrite cuts the server off when the next write has reached it.
func (s *imitation) cutOffAtWrite() {
	s.inject(func(kind string) *fault {
		if kind == "replace" && s.cut == nil {
			s.cut = &cut{committed: maps.Clone(s.rows)}
		}
		return nil
	})
}

// elected is a term of leadership, as its leader sees it.
type elected struct {
	ctx  context.Context
	view *leaderelection.TimeView
}

func candidate(t *testing.T, addr, election string, leads chan<- elected, told chan<- leaderelection.RaceEntry) *leaderelection.Campaign {
	t.Helper()
	c, err := leaderelection.Config{
		Decider:  tellingDecider{rethinkdb.NewDecider(connect(t, addr), database, table, election, nil), told},
		LeaderID: "a", TermLength: time.Second, ClockPolicy: leaderelection.SharedClock,
		Trace:     &leaderelection.Trace{StoreOp: func(op leaderelection.StoreOp) { t.Logf("%s took %v: %v", op.Kind, op.Duration, op.Err) }},
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) { leads <- elected{ctx, view} },
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-c.Done() })
	return c
}

var _ leaderelection.ChangeFeed = tellingDecider{}

// tellingDecider hands on what its feed tells.
type tellingDecider struct {
	*rethinkdb.Decider
	told chan<- leaderelection.RaceEntry
}

func (d tellingDecider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		for e, err := range d.Decider.Changes(ctx) {
			if err == nil {
				d.told <- *e
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// A primary that is cut off tells of an acquisition that no majority has, and that is
// undone: nobody leads by that, and when the others are back somebody does.
func TestUncommittedAcquisition(t *testing.T) {
	s := imitate(t)
	s.cutOffAtWrite()
	leads, told := make(chan elected, 10), make(chan leaderelection.RaceEntry, 1000)
	c := candidate(t, s.addr, "web", leads, told)
	for e := range told { // its own, before the answer
		if e.LeaderID == "a" {
			break
		}
	}
	three := time.NewTimer(3 * time.Second) // terms
	select {
	case <-leads:
		t.Fatal("led by what a feed told of, which no majority has")
	case <-three.C:
	}
	if c.View().ValueInFuture() {
		t.Error("the view is true by what a feed told of")
	}
	s.inject(nil)
	s.undo()
	<-leads
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows["web"] == nil {
		t.Error("there is a leader, and no record of it")
	}
}

// The same of an extension: the view ends if it would have.
func TestUncommittedExtension(t *testing.T) {
	s := imitate(t)
	leads, told := make(chan elected, 10), make(chan leaderelection.RaceEntry, 1000)
	candidate(t, s.addr, "web", leads, told)
	first := <-leads
	var extension uint64
	for e := range told {
		if extension = e.Extension; extension > 0 {
			break
		}
	}
	<-time.After(50 * time.Millisecond) // the answer of that one
	end := first.view.Get()
	s.cutOffAtWrite()
	for e := range told {
		if e.Extension > extension {
			break
		}
	}
	<-first.ctx.Done()
	if cause := context.Cause(first.ctx); !errors.Is(cause, leaderelection.ErrExpired) {
		t.Errorf("it ended with %v", cause)
	}
	if now := first.view.Get(); !now.Equal(end) {
		t.Errorf("the view was moved on by %v, by what a feed told of", now.Sub(end))
	}
	s.inject(nil)
	s.undo()
	if second := <-leads; second.view.ElectionNumber() <= first.view.ElectionNumber() {
		t.Errorf("leadership %d after %d", second.view.ElectionNumber(), first.view.ElectionNumber())
	}
}

// What a write that is undone looks like: pushed, without an answer, then indeterminate;
// a read does not show it, and its token is void.
func TestUndoneWrite(t *testing.T) {
	s, d := imitated(t)
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 1)
	s.cutOff()
	written := make(chan error, 1)
	go func() {
		_, err := d.WriteEntry(t.Context(), feedtest.State(2, token))
		written <- err
	}()
	pushed := feedtest.Number(t, feed, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if e, err := d.ReadCurrent(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read of what no majority has: %+v, %v", e, err)
	}
	s.undo()
	feedtest.Passing(t, <-written, "may or may not have been performed")
	if e := feedtest.Read(t, d); e.ElectionNumber != 1 || e.Token != token {
		t.Errorf("read %+v", e)
	}
	var lost *leaderelection.LostRaceError
	if _, err := d.WriteEntry(t.Context(), feedtest.State(3, pushed.Token)); !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 1 {
		t.Errorf("with the token of what was undone: %v", err)
	}
	feedtest.Write(t, d, 4, token)
	feedtest.Number(t, feed, 4)
}

// A write that is stalled for a while, as when the primary and the Raft leader differ, is
// told of before it is answered, and stands.
func TestStalledWrite(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	s.cutOff()
	written := make(chan leaderelection.LeaderToken, 1)
	go func() { written <- feedtest.Write(t, d, 1, nil) }()
	pushed := feedtest.Number(t, feed, 1)
	select {
	case <-written:
		t.Error("it was answered before the majority had it")
	default:
	}
	s.rejoin()
	if token := <-written; token != pushed.Token {
		t.Errorf("written as %v, and told of as %v", token, pushed.Token)
	}
	feedtest.Write(t, d, 2, pushed.Token)
}
