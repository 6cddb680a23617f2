// Package querytest has the tests of package rethinkdb's queries, word for word, and of
// each answer that RethinkDB's documentation says they have, by the driver's own mock.
// They are apart since the mock leaves goroutines behind, which the other tests must not.
package querytest

import (
	"errors"
	"testing"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func getTerm() r.Term {
	return r.DB("ops").Table("elections", r.TableOpts{ReadMode: "majority"}).Get("web")
}

func feedTerm() r.Term {
	return r.DB("ops").Table("elections").Get("web").Changes(r.ChangesOpts{IncludeInitial: true})
}

// replaceTerm is the conditional write; version and record differ each time.
func replaceTerm(at string) r.Term {
	fields := map[string]any{"id": "web", "version": r.MockAnything(), "record": r.MockAnything(), "written": r.Now()}
	return r.DB("ops").Table("elections").Get("web").Replace(func(was r.Term) any {
		if at == "" {
			return r.Branch(was.Eq(nil), fields, was)
		}
		return r.Branch(was.Ne(nil).And(was.Field("version").Default("").Eq(at)), was.Merge(fields), was)
	}, r.ReplaceOpts{Durability: "hard", ReturnChanges: "always"})
}

func decider(m *r.Mock) *rethinkdb.Decider {
	return rethinkdb.NewDecider(m, "ops", "elections", "web", nil)
}

// storedRow is a row as the server sends it.
func storedRow(t *testing.T, number uint64, version string) map[string]any {
	t.Helper()
	data, err := record.Marshal(feedtest.State(number, nil))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"id": "web", "version": version, "record": string(data),
		"written": map[string]any{"$reql_type$": "TIME", "epoch_time": 1795267185.25, "timezone": "+00:00"},
	}
}

func TestReadQuery(t *testing.T) {
	m := r.NewMock()
	m.On(getTerm()).Return([]any{storedRow(t, 7, "v7")}, nil).Once()
	m.On(getTerm()).Return(nil, nil).Once()
	m.On(getTerm()).Return(nil, r.ErrConnectionClosed).Once()
	d := decider(m)
	if e := feedtest.Read(t, d); e.ElectionNumber != 7 || !e.Token.CommitTS().Equal(time.UnixMilli(1795267185250)) {
		t.Errorf("read %+v", e)
	}
	if e := feedtest.Read(t, d); !e.Vacant() || e.ElectionNumber != leaderelection.NoElections || e.Token == nil {
		t.Errorf("read %+v", e)
	}
	if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, r.ErrConnectionClosed) || errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("read: %v", err)
	}
	m.AssertExpectations(t)
}

func TestWriteQuery(t *testing.T) {
	change := func(row any) []any { return []any{map[string]any{"new_val": row, "old_val": nil}} }
	for name, c := range map[string]struct {
		answer map[string]any
		err    error
		lost   bool // else: an open question
		number leaderelection.ElectionNumber
	}{
		"stale":                      {answer: map[string]any{"unchanged": 1, "changes": change(storedRow(t, 8, "v8"))}, lost: true, number: 8},
		"stale, and foreign":         {answer: map[string]any{"unchanged": 1, "changes": change(map[string]any{"id": "web"})}, lost: true},
		"deleted":                    {answer: map[string]any{"skipped": 1, "changes": change(nil)}, lost: true},
		"deleted, without changes":   {answer: map[string]any{"skipped": 1, "changes": []any{}}, lost: true},
		"an error of the write":      {answer: map[string]any{"errors": 1, "first_error": "it went wrong"}},
		"no change is returned":      {answer: map[string]any{"replaced": 1}},
		"more changes than rows":     {answer: map[string]any{"replaced": 2, "changes": append(change(nil), change(nil)...)}},
		"the connection was closed":  {err: r.ErrConnectionClosed},
		"the driver gave up waiting": {err: r.ErrQueryTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []string{"", "v7"} {
				m := r.NewMock()
				m.On(replaceTerm(at)).Return(c.answer, c.err).Once()
				d := decider(m)
				var token leaderelection.LeaderToken
				if at != "" {
					m.On(getTerm()).Return([]any{storedRow(t, 7, "v7")}, nil)
					token = feedtest.Read(t, d).Token
				}
				got, err := d.WriteEntry(t.Context(), feedtest.State(9, token))
				if got != nil || err == nil || errors.Is(err, leaderelection.ErrLostRace) != c.lost || errors.Is(err, leaderelection.ErrPermanent) {
					t.Errorf("at %q: %v, %v", at, got, err)
				}
				var lost *leaderelection.LostRaceError
				if errors.As(err, &lost) && c.number != 0 && (lost.Current == nil || lost.Current.ElectionNumber != c.number) {
					t.Errorf("at %q: lost to %+v", at, lost.Current)
				}
				m.AssertExpectations(t)
			}
		})
	}
}

func TestFeedQuery(t *testing.T) {
	for name, c := range map[string]struct {
		item any
		says string
	}{
		"error":   {map[string]any{"error": "Changefeed cache over array size limit, skipped 3 elements."}, "skipped 3"},
		"foreign": {map[string]any{"new_val": map[string]any{"id": "web"}}, "version"},
		"end":     {nil, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			items := make(chan []any, 3)
			items <- []any{map[string]any{"new_val": nil}}
			items <- []any{map[string]any{"new_val": storedRow(t, 7, "v7"), "old_val": nil}}
			if c.item != nil {
				items <- []any{c.item}
			} else {
				close(items)
			}
			m := r.NewMock()
			m.On(feedTerm()).Return(items, nil)
			feed := feedtest.Follow(t, decider(m))
			feedtest.Number(t, feed, 0)
			feedtest.Number(t, feed, 7)
			n := feedtest.Next(t, feed)
			if n.RaceEntry != nil || n.Err == nil {
				t.Errorf("the feed yields %+v", n)
			}
			feedtest.Says(t, n.Err, c.says, `"web"`)
		})
	}
	m := r.NewMock()
	m.On(feedTerm()).Return(nil, errors.New("Changefeed aborted (table unavailable)."))
	feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, decider(m))).Err)
}
