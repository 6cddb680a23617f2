//go:build go1.25

package overhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// shelf is a server with one record on it, and a version.
type shelf struct {
	mu      sync.Mutex
	record  []byte
	version int
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		if over := r.Header.Get("If-Match"); over != "" && over != strconv.Itoa(s.version) {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.record, _ = io.ReadAll(r.Body)
		s.version++
	}
	w.Header().Set("ETag", strconv.Itoa(s.version))
	_, _ = w.Write(s.record)
}

// client is a decider over that, right but for its mistakes.
type client struct {
	http *http.Client
	mistakes
}

type mistakes struct {
	unconditional bool // it writes over whatever is there
	hopeful       bool // no answer to a write is a good one
	trusting      bool // so is any answer
	retries       bool // it tries again what has failed, over what is there now
	emptyHanded   bool // a record that it cannot read is none
}

type version string

func (version) CommitTS() time.Time { return time.Time{} }

func (c *client) do(ctx context.Context, method, over string, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://shelf/", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("If-Match", over)
	a, err := c.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	return a, got, err
}

func (c *client) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	a, body, err := c.do(ctx, http.MethodGet, "", nil)
	if err != nil {
		return nil, err
	}
	e := &leaderelection.RaceEntry{}
	if a.StatusCode != http.StatusOK {
		return nil, errors.New(a.Status)
	}
	if a.Header.Get("ETag") != "0" {
		err = json.Unmarshal(body, e)
	}
	switch {
	case err != nil && c.emptyHanded:
		e = &leaderelection.RaceEntry{}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrPermanent, err)
	}
	e.Token = version(a.Header.Get("ETag"))
	return e, nil
}

func (c *client) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	e := entry.Clone()
	over, _ := e.Token.(version)
	e.Token = nil
	if c.unconditional {
		over = ""
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	a, _, err := c.do(ctx, http.MethodPut, string(over), body)
	if err != nil && c.retries {
		if now, err := c.ReadCurrent(ctx); err == nil {
			over = now.Token.(version)
		}
		a, _, err = c.do(ctx, http.MethodPut, string(over), body)
	}
	switch {
	case err != nil && c.hopeful:
		return over + "?", nil
	case err != nil:
		return nil, err
	case a.StatusCode == http.StatusOK || c.trusting:
		return version(a.Header.Get("ETag")), nil
	case a.StatusCode == http.StatusPreconditionFailed:
		return nil, leaderelection.ErrLostRace
	}
	return nil, errors.New(a.Status)
}

// on is a store with such clients.
func on(m mistakes) Store {
	return Store{
		Serve:   func() http.Handler { return &shelf{} },
		Decider: func(h *http.Client) leaderelection.RaceDecider { return &client{h, m} },
		Writes:  func(r *http.Request) bool { return r.Method == http.MethodPut },
	}
}

func TestSeeds(t *testing.T) { Seeds(t, on(mistakes{}), 50) }

// The simulation finds what is wrong with a client.
func TestSeedsFindMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		mistakes
		says string
	}{
		"Unconditional": {mistakes{unconditional: true}, "becomes one for|wins while the view|does not raise|OVERLAP|releases what is not its own"},
		"Hopeful":       {mistakes{hopeful: true}, "nothing of that leadership was ever written|after its end by|OVERLAP"},
		"Trusting":      {mistakes{trusting: true}, "becomes one for|nothing of that leadership was ever written|after its end by|OVERLAP"},
		"Retries":       {mistakes{retries: true}, "becomes one for|campaigns|does not raise|wins while the view|OVERLAP|not its own"},
		"EmptyHanded":   {mistakes{emptyHanded: true}, "campaigns|does not raise|wins while the view|was given already|OVERLAP"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Unconditional" && name != "EmptyHanded" {
				t.Skip("nightly: it takes many seeds")
			}
			s, said := on(c.mistakes), ""
			// A seed is not the same twice under the race detector: Retries is found by 18 or by 132.
			for seed := uint64(1); said == "" && seed <= 400; seed++ {
				synctest.Test(t, func(*testing.T) {
					said = strings.Join(s.simulate(seed).Violations, "\n")
				})
			}
			for _, says := range strings.Split(c.says, "|") {
				if strings.Contains(said, says) {
					t.Logf("found: %.200s", said)
					return
				}
			}
			t.Errorf("it is not found; said is %q", said)
		})
	}
}
