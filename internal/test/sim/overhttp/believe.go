//go:build go1.25

package overhttp

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Disbelieves holds a store's decider to rule 19: a success must be proved to be
// one. Whatever is answered in place of the server, nothing of it counts as
// written, nor as an empty election, nor as a version that can be written over.
// It waits for nothing, so that the server may be one with sockets.
func Disbelieves(t *testing.T, s Store, next http.RoundTripper) {
	for _, lie := range httpfault.Lies() {
		if why := s.Blind[lie.Name]; why != "" {
			t.Logf("%s is not told, since it cannot be found out: %s", lie.Name, why)
			continue
		}
		t.Run(lie.Name, func(t *testing.T) {
			liar := &httpfault.Liar{Next: next}
			victim := s.Decider(&http.Client{Transport: liar})
			honest := s.Decider(&http.Client{Transport: next})
			current := history(t, victim, honest)

			liar.Tell(&lie)
			if e, err := victim.ReadCurrent(t.Context()); err == nil {
				s.judgeRead(t, &lie, honest, e, current)
			} else if errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("reading: %v, want an error that may pass", err)
			}
			claim := leaderelection.RaceEntry{LeaderID: "victim", ElectionNumber: 9, Incarnation: "v", TermExpiry: time.Now().Add(time.Hour)}
			for what, token := range map[string]leaderelection.LeaderToken{"creating": nil, "updating": current.Token} {
				for _, about := range []func(*http.Request) bool{nil, s.Writes} {
					liar.About, claim.Token = about, token
					liar.Tell(&lie)
					got, err := victim.WriteEntry(t.Context(), &claim)
					if err == nil || errors.Is(err, leaderelection.ErrPermanent) {
						t.Errorf("%s: %v, %v, want an error that may pass", what, got, err)
					}
					if liar.Told() == 0 {
						t.Errorf("%s: no lie was told", what)
					}
				}
			}
			if e, err := honest.ReadCurrent(t.Context()); err != nil || e.Compare(current) != 0 || e.LeaderID != current.LeaderID {
				t.Errorf("the record is now %+v, %v", e, err)
			}
		})
	}
}

// history makes an election that has seen two leaderships, and returns its record. The
// server's answers pass by the victim's connection, which remembers them.
func history(t *testing.T, victim, honest leaderelection.RaceDecider) *leaderelection.RaceEntry {
	t.Helper()
	e, err := victim.ReadCurrent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e.Token != nil && e.ElectionNumber != leaderelection.NoElections { // of the test before, on the same server
		e.ElectionNumber++
	} else {
		e = &leaderelection.RaceEntry{ElectionNumber: 1, Token: e.Token}
	}
	for _, id := range []string{"a", "b"} {
		e.LeaderID, e.Incarnation, e.TermExpiry = id, id, time.Now()
		if _, err := victim.WriteEntry(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if e, err = victim.ReadCurrent(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.ElectionNumber++
	}
	current, err := honest.ReadCurrent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// judgeRead: what was read must be the record as it is, or, of a replay, as it
// was, with a token by which nothing can be written.
func (s *Store) judgeRead(t *testing.T, lie *httpfault.Lie, honest leaderelection.RaceDecider, e, current *leaderelection.RaceEntry) {
	t.Helper()
	if e.Compare(current) == 0 && e.LeaderID == current.LeaderID {
		return
	}
	if !lie.Replay {
		t.Errorf("reading: %+v is believed", e)
		return
	}
	over := *current
	over.LeaderID, over.ElectionNumber, over.Token = "unseen", current.ElectionNumber+1, e.Token
	if _, err := honest.WriteEntry(t.Context(), &over); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("by the token that came with %+v, %+v was written over unseen: %v", e, current, err)
		current.LeaderID = "" // and the rest is of no use
	}
}

// NobodyLeads holds whole campaigns to the same, in virtual time: a candidate whose
// requests, or whose writes alone, are answered by something else never leads.
func NobodyLeads(t *testing.T, s Store) {
	if testing.Short() {
		t.Skip("nightly: an election for each lie; Disbelieves is the short form")
	}
	for _, lie := range httpfault.Lies() {
		for what, about := range map[string]func(*http.Request) bool{"All": nil, "Writes": s.Writes} {
			t.Run(lie.Name+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { s.nobodyLeads(t, &lie, about) })
			})
		}
	}
}

func (s *Store) nobodyLeads(t *testing.T, lie *httpfault.Lie, about func(*http.Request) bool) {
	liar := &httpfault.Liar{Next: &httpfault.Transport{Handler: s.Serve()}, About: about}
	d := s.Decider(&http.Client{Transport: liar})
	history(t, d, d)
	time.Sleep(time.Minute) // the last term is over
	liar.Tell(lie)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := leaderelection.Config{
		Decider: d, LeaderID: "victim", TermLength: term, MaxClockSkew: skew,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { t.Error("it leads"); <-ctx.Done() },
	}.Acquire(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the campaign ended: %v", err)
	}
	if liar.Told() == 0 {
		t.Error("no lie was told")
	}
	time.Sleep(time.Hour) // for requests that are still under way
}
