package rethinkdb_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

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
	if ts := feedtest.Read(t, d).Token.CommitTS(); !ts.Equal(token.CommitTS()) {
		t.Errorf("CommitTS read %v, written %v", ts, token.CommitTS())
	}
}

// A refusal tells who stood in the way, even that there was nobody.
func TestLostRaceHasTheCurrentRecord(t *testing.T) {
	s, d := imitated(t)
	first := feedtest.Write(t, d, 1, nil)
	feedtest.Write(t, d, 2, first)
	lost := func(token leaderelection.LeaderToken) *leaderelection.RaceEntry {
		t.Helper()
		var lost *leaderelection.LostRaceError
		if err := feedtest.WriteError(t, d, 9, token); !errors.As(err, &lost) || lost.Current == nil {
			t.Fatalf("with token %v: %v", token, err)
		}
		return lost.Current
	}
	for _, token := range []leaderelection.LeaderToken{nil, first} {
		if e := lost(token); e.ElectionNumber != 2 {
			t.Errorf("with token %v: %+v", token, e)
		}
	}
	s.set("web", nil)
	e := lost(first)
	if !e.Vacant() {
		t.Errorf("where the row was deleted: %+v", e)
	}
	feedtest.Write(t, d, 1, e.Token)
}

// Each answer that RethinkDB's documentation says a write can have, and others: one that shows no other
// version leaves the outcome open.
func TestAnswersToAWrite(t *testing.T) {
	changes := func(rows ...any) (all []any) {
		for _, row := range rows {
			all = append(all, map[string]any{"new_val": row, "old_val": nil})
		}
		return all
	}
	for name, c := range map[string]struct {
		answer map[string]any
		lost   bool // else: an open question
	}{
		"stale, and foreign":       {map[string]any{"unchanged": 1, "changes": changes(map[string]any{"id": "web"})}, true},
		"deleted, without changes": {map[string]any{"skipped": 1, "changes": []any{}}, true},
		"an error of the write":    {map[string]any{"errors": 1, "first_error": "it went wrong"}, false},
		"no change is returned":    {map[string]any{"replaced": 1}, false},
		"more changes than rows":   {map[string]any{"replaced": 2, "changes": changes(nil, nil)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := imitated(t)
			for _, token := range []leaderelection.LeaderToken{nil, feedtest.Write(t, d, 1, nil)} {
				s.inject(func(string) *fault { return &fault{lie: c.answer} })
				if err := feedtest.WriteError(t, d, 9, token); c.lost {
					feedtest.Lost(t, err)
				} else {
					feedtest.Passing(t, err, `"web"`)
				}
			}
		})
	}
}

// What the server answers, and what becomes of it.
func TestServerErrors(t *testing.T) {
	s, d := imitated(t)
	token := feedtest.Write(t, d, 1, nil)
	for _, f := range []struct {
		refusal
		is   func(testing.TB, error, ...string)
		word string // of the advice
	}{
		{refusal{p.Response_OP_FAILED, "Table `ops.elections` does not exist."}, feedtest.Permanent, "create"},
		{refusal{p.Response_OP_FAILED, "Database `ops` does not exist."}, feedtest.Permanent, "create"},
		{refusal{p.Response_OP_FAILED, "Table `ops.elections` is ambiguous; there are multiple tables with that name."}, feedtest.Permanent, "drop the empty ones"},
		{refusal{p.Response_PERMISSION_ERROR, "User `x` does not have the required `read` permission"}, feedtest.Denied, "grant"},
		{refusal{p.Response_QUERY_LOGIC, "Primary key too long (max 127 characters)"}, feedtest.Permanent, "127"},
		{refusal{p.Response_QUERY_LOGIC, "Something else about the query"}, feedtest.Permanent, "query"},
		{refusal{p.Response_OP_FAILED, "Cannot perform write: primary replica for shard [\"\", +inf) not available"}, feedtest.Passing, ""},
		{refusal{p.Response_OP_INDETERMINATE, "Cannot perform write: The primary replica isn't connected to a quorum of replicas."}, feedtest.Passing, ""},
		{refusal{p.Response_RESOURCE_LIMIT, "Array over size limit"}, feedtest.Passing, ""},
		{refusal{p.Response_INTERNAL, "Server is shutting down"}, feedtest.Passing, ""},
	} {
		s.inject(func(string) *fault { return &fault{refuse: &f.refusal} })
		for _, err := range feedtest.Errors(t, d) {
			f.is(t, err, f.word, `"web"`, f.text)
		}
	}
	s.inject(nil)
	feedtest.Write(t, d, 2, token)
}

// A write whose answer is lost is asked for again by the driver. The row then has the
// version that this write gave it: it has happened.
func TestLostAnswer(t *testing.T) {
	s, d := imitated(t)
	losses := 0
	s.inject(func(kind string) *fault {
		if kind != "replace" || losses == 0 {
			return nil
		}
		losses--
		return &fault{cutLate: true}
	})
	var token leaderelection.LeaderToken
	for n := uint64(1); n <= 2; n++ { // the first creates
		losses = 1
		token = feedtest.Write(t, d, n, token)
		if e := feedtest.Read(t, d); uint64(e.ElectionNumber) != n || e.Token != token {
			t.Errorf("read %+v", e)
		}
	}
	losses = 1000 // every attempt's answer: an open question
	feedtest.Passing(t, feedtest.WriteError(t, d, 3, token))
	feedtest.Reads(t, d, 3)
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
	s.Refuse()
	s.Heal()
	feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
}

func TestClosedSession(t *testing.T) {
	session := connect(t, imitate(t).Addr)
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

// A table with another primary key is no use, and not written to.
func TestOtherPrimaryKey(t *testing.T) {
	for _, key := range []string{"name", "version"} {
		s := imitate(t)
		s.key = key
		d := web(t, s.Addr)
		feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "primary key must be", `"web"`)
		ours := imitate(t)
		feedtest.Write(t, web(t, ours.Addr), 1, nil)
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
	s, d := imitated(t)
	s.singleAcks = true
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
	go func() { written <- feedtest.WriteError(t, d, 2, first) }()
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

// A name is refused before anything is asked if it is empty, or no UTF-8: RethinkDB puts other letters in
// the place of such bytes.
func TestBadNames(t *testing.T) {
	s := imitate(t)
	for _, names := range [][3]string{{database, table, ""}, {"\xff", table, "web"}, {database, "\xff", "web"}, {database, table, "we\xffb"}} {
		d := rethinkdb.NewDecider(connect(t, s.Addr), names[0], names[1], names[2], nil)
		feedtest.Refuses(t, d, "name")
	}
	if s.count("get")+s.count("replace") > 0 {
		t.Error("it was asked for")
	}
}

// elected is a term of leadership, as its leader sees it.
type elected struct {
	ctx  context.Context
	view *leaderelection.TimeView
}

// candidate campaigns, and sends what its feed tells, too.
func candidate(t *testing.T, d *rethinkdb.Decider) (c *leaderelection.Campaign, leads chan elected, told chan leaderelection.RaceEntry) {
	t.Helper()
	leads, told = make(chan elected, 10), make(chan leaderelection.RaceEntry, 1000)
	c, err := leaderelection.Config{
		Decider: d, LeaderID: "a", TermLength: time.Second, ClockPolicy: leaderelection.SharedClock,
		Trace: &leaderelection.Trace{
			StoreOp: func(op leaderelection.StoreOp) { t.Logf("%s took %v: %v", op.Kind, op.Duration, op.Err) },
			News:    func(e leaderelection.RaceEntry) { told <- e },
		},
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) { leads <- elected{ctx, view} },
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-c.Done() })
	return c, leads, told
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

// A primary that is cut off tells of an acquisition that no majority has, and that is
// undone: nobody leads by that, and when the others are back somebody does.
func TestUncommittedAcquisition(t *testing.T) {
	s, d := imitated(t)
	s.cutOffAtWrite()
	c, leads, told := candidate(t, d)
	for e := range told { // its own, before the answer
		if e.LeaderID == "a" {
			break
		}
	}
	select {
	case <-leads:
		t.Fatal("led by what a feed told of, which no majority has")
	case <-time.After(3 * time.Second): // terms
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
	s, d := imitated(t)
	_, leads, told := candidate(t, d)
	first := <-leads
	var extension uint64
	after := func(was uint64) {
		for e := range told {
			if extension = e.Extension; extension > was {
				return
			}
		}
	}
	after(0)
	<-time.After(50 * time.Millisecond) // the answer of that one
	end := first.view.Get()
	s.cutOffAtWrite()
	after(extension)
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

// What a write looks like that is stalled for a while, as when the primary and the Raft leader differ: it
// is told of before it is answered, and stands. Or it is undone: then the outcome is indeterminate, a read does
// not show it, and its token is void.
func TestStalledWrite(t *testing.T) {
	for _, undone := range []bool{false, true} {
		s, d := imitated(t)
		token := feedtest.Write(t, d, 1, nil)
		feed := feedtest.Follow(t, d)
		feedtest.Number(t, feed, 1)
		s.cutOff()
		written := make(chan error, 1)
		var next leaderelection.LeaderToken
		go func() {
			var err error
			next, err = d.WriteEntry(t.Context(), feedtest.State(2, token))
			written <- err
		}()
		pushed := feedtest.Number(t, feed, 2)
		if e, err := d.ReadCurrent(storetest.Within(t, 100*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read of what no majority has: %+v, %v", e, err)
		}
		select {
		case err := <-written:
			t.Fatalf("it was answered before the majority had it: %v", err)
		default:
		}
		if !undone {
			s.rejoin()
			if err := <-written; err != nil || next != pushed.Token {
				t.Errorf("written as %v, %v, and told of as %v", next, err, pushed.Token)
			}
			feedtest.Write(t, d, 3, pushed.Token)
			continue
		}
		s.undo()
		feedtest.Passing(t, <-written, "may or may not have been performed")
		if e := feedtest.Read(t, d); e.ElectionNumber != 1 || e.Token != token {
			t.Errorf("read %+v", e)
		}
		feedtest.Lost(t, feedtest.WriteError(t, d, 3, pushed.Token))
		feedtest.Write(t, d, 4, token)
		feedtest.Number(t, feed, 4)
	}
}
