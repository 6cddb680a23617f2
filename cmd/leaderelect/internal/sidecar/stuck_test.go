//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// An observer whose watch does not look when a term has run out is not alive; one that looks is,
// whatever the store says, and one that has nothing to look for.
func TestLivezOfAWatchThatIsStuck(t *testing.T) {
	const term, skew = 10 * time.Second, time.Second
	for name, c := range map[string]struct {
		before func(h *sidecar.Hub) // the term is over
		vacant bool
		want   int
	}{
		"stuck":             {func(*sidecar.Hub) {}, false, http.StatusServiceUnavailable},
		"has looked":        {(*sidecar.Hub).Looked, false, http.StatusOK},
		"nobody leads":      {func(*sidecar.Hub) {}, true, http.StatusOK},
		"is told of others": {func(h *sidecar.Hub) { h.Record(leads(2, time.Minute)) }, false, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := sidecar.NewHub(skew)
				defer hub.Close()
				live := func() int {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("GET", "http://localhost/livez", nil)
					sidecar.Handler(sidecar.Config{Hub: hub, Campaign: none, Metrics: http.NotFoundHandler()}).ServeHTTP(w, r)
					return w.Code
				}
				if code := live(); code != http.StatusOK {
					t.Errorf("before it knows of anybody: %d", code)
				}
				e := leads(1, term)
				if c.vacant {
					e.LeaderID = ""
				}
				hub.Record(e)
				hub.Looked()
				time.Sleep(term + skew + time.Second)
				c.before(hub)
				if code := live(); code != http.StatusOK {
					t.Errorf("just after the term: %d", code)
				}
				time.Sleep(time.Minute)
				if code := live(); code != c.want {
					t.Errorf("a minute later: %d, want %d", code, c.want)
				}
				hub.Record(leads(9, term))
				if code := live(); code != http.StatusOK {
					t.Errorf("when it goes on: %d", code)
				}
			})
		})
	}
}

// Anybody may ask /livez: why a campaign is stuck, which may name the store, is for the log.
func TestLivezTellsNoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const term, place = 10 * time.Second, "arn:aws:s3:::bucket"
		store := memory.NewDecider().Handle()
		ctx, cancel := context.WithCancel(t.Context())
		campaign, err := leaderelection.Config{Decider: store, LeaderID: "me", TermLength: term, Logger: slog.New(slog.DiscardHandler),
			OnElected: func(context.Context, *leaderelection.TimeView) {}}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hub := sidecar.NewHub(time.Second)
		defer hub.Close()
		synctest.Wait()
		store.Inject(memory.Fail(fmt.Errorf("%s: %w", place, leaderelection.ErrPermanent)))
		time.Sleep(6 * term)
		var log bytes.Buffer
		w := httptest.NewRecorder()
		sidecar.Handler(sidecar.Config{Hub: hub, Campaign: func() *leaderelection.Campaign { return campaign }, Metrics: http.NotFoundHandler(),
			Logger: slog.New(slog.NewTextHandler(&log, nil))}).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/livez", nil))
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "arn") || !strings.Contains(log.String(), place) {
			t.Errorf("%d %s, and it is logged: %s", w.Code, w.Body, log.String())
		}
		cancel()
		<-campaign.Done()
	})
}

// leads is a record of a leadership that has just begun.
func leads(number leaderelection.ElectionNumber, term time.Duration) leaderelection.RaceEntry {
	return leaderelection.RaceEntry{LeaderID: "a", Incarnation: "i", ElectionNumber: number, TermLength: term, TermExpiry: time.Now().Add(term)}
}
