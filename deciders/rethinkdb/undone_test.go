package rethinkdb_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

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
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
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
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
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
