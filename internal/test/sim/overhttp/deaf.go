//go:build go1.25

package overhttp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// DeafNobodyLeads holds a store's decider to not believing a server that only looks like
// the vendor's, and takes no notice of conditions: of two candidates there none ever leads,
// and each says why. Deafen takes one kind of condition off a request; each is tried by
// itself, in virtual time.
func DeafNobodyLeads(t *testing.T, s Store, deafen map[string]func(*http.Request)) {
	for name, deafen := range deafen {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := s.Serve()
				tr := &httpfault.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					deafen(r)
					server.ServeHTTP(w, r)
				})}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var campaigns sync.WaitGroup
				for _, id := range []string{"a", "b"} {
					d := s.Decider(&http.Client{Transport: tr})
					campaigns.Go(func() {
						err := leaderelection.Config{
							Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew,
							OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { t.Error(id, "leads"); <-ctx.Done() },
						}.Acquire(ctx)
						if err == nil {
							t.Error(id, "ended without an error")
						}
						if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "no notice of conditions") {
							t.Errorf("%s reads, and is told %v", id, err)
						}
					})
				}
				campaigns.Wait()
				time.Sleep(time.Hour) // for requests that are still under way
			})
		})
	}
}
