package rethinkdb_test

import (
	"maps"
	"testing"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Two tables of one name are told by everything, with what to do.
func TestTwoTables(t *testing.T) {
	s := imitate(t)
	s.tables = 2
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	for _, err := range feedtest.Errors(t, d) {
		feedtest.Permanent(t, err, "ambiguous", "table_config", "drop the empty ones", `"web"`)
	}
}

// A table with another primary key is no use, and not written to.
func TestOtherPrimaryKey(t *testing.T) {
	for _, key := range []string{"name", "version"} {
		s := imitate(t)
		s.key = key
		d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
		feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "primary key must be", `"web"`)
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

// A table whose write_acks is single acknowledges what a majority lacks: such a write does
// not count, and when the others have gone on without it, it never was.
func TestSingleAcks(t *testing.T) {
	s := imitate(t)
	s.singleAcks = true
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
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
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
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
