//go:build go1.25

package httpsim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// candidate is a machine: a clock, a connection, and a campaign.
type candidate struct {
	w        *world
	id       string
	clock    clocks.Clock
	http     *httpfault.Transport
	campaign *leaderelection.Campaign
	cancel   context.CancelFunc

	mu          sync.Mutex
	rng         *rand.Rand
	weather     weather
	leaderships []*leadership
}

// weather is what happens to a candidate's requests. The zero value is calm.
type weather struct {
	cut, silent bool
	bad         float64 // how likely a fault is
}

// leadership is one that a campaign began.
type leadership struct {
	id    string
	view  *leaderelection.TimeView
	ctx   context.Context
	ended bool
}

func (r *leadership) String() string {
	return fmt.Sprintf("election %d of %s", r.view.ElectionNumber(), r.id)
}

// over checks a leadership whose view is over.
func (r *leadership) over(w *world) {
	if r.ended {
		return
	}
	r.ended = true
	w.notef("%v is over", r)
	// The callbacks of this moment run first.
	time.Sleep(time.Millisecond)
	if r.ctx.Err() == nil {
		w.Errorf("%v: its view is over, and its ctx has not ended", r)
	}
}

// launch starts a campaign.
func (c *candidate) launch() {
	ctx, cancel := context.WithCancel(c.w.Context())
	campaign, err := leaderelection.Config{
		Decider: c.w.store.Decider(&http.Client{Transport: c.http}), LeaderID: c.id, HostPort: []string{c.id + ":443"},
		TermLength: c.w.term, MaxClockSkew: c.w.skew, Clock: c.clock,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			c.mu.Lock()
			c.leaderships = append(c.leaderships, &leadership{id: c.id, view: view, ctx: ctx})
			c.mu.Unlock()
			<-ctx.Done()
		},
	}.Start(ctx)
	if err != nil {
		c.w.Fatal(err)
	}
	c.campaign, c.cancel = campaign, cancel
}

// stop ends the campaign, and waits until it has.
func (c *candidate) stop() {
	if c.campaign == nil {
		return
	}
	c.cancel()
	began := time.Now()
	if err := c.campaign.Wait(); !errors.Is(err, context.Canceled) && !errors.Is(err, leaderelection.ErrPermanent) {
		c.w.Errorf("%s ended with %v", c.id, err)
	}
	if took := time.Since(began); took > 3*c.w.term {
		c.w.Errorf("%s took %v to stop", c.id, took)
	}
	c.campaign = nil
}

// revive starts a campaign that was stopped, or that a garbled record has ended
// before anything had worked.
func (c *candidate) revive() {
	if c.campaign != nil {
		select {
		case <-c.campaign.Done():
			c.w.notef("%s had ended", c.id)
			c.stop()
		default:
			return
		}
	}
	c.launch()
}

func (c *candidate) allLeaderships() []*leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaderships[:len(c.leaderships):len(c.leaderships)]
}

func (c *candidate) set(w weather) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weather = w
}

// draw says what happens to a request.
func (c *candidate) draw(r *http.Request) (f httpfault.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	upTo := func(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }
	calm := min(20*time.Millisecond, c.w.term/200)
	f.Request, f.Answer = 1+upTo(calm), upTo(calm)
	switch w := c.weather; {
	case w.cut:
		return httpfault.Fault{LoseRequest: true, Silent: w.silent}
	case c.rng.Float64() >= w.bad:
		return f
	}
	switch c.rng.IntN(9) {
	case 0:
		f.LoseRequest, f.Silent = true, c.rng.IntN(2) == 0
	case 1, 2:
		f.LoseAnswer, f.Silent = true, c.rng.IntN(2) == 0
	case 3:
		f.Request, f.Answer = upTo(c.w.term), upTo(c.w.term)
	case 4:
		f.SlowBody = upTo(c.w.term)
	case 5:
		f.Truncate = true
	case 6:
		f.Garble = true
	case 7:
		busy := c.busy()
		busy.Request, busy.Answer = f.Request, f.Answer
		f = busy
	default:
		f.Status = []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[c.rng.IntN(4)]
		f.Header = http.Header{"Retry-After": {"60"}}
		f.Body = "<html>not now"
	}
	return f
}

// busy is one of the store's own refusals.
func (c *candidate) busy() httpfault.Fault {
	n := c.rng.IntN(len(c.w.store.Busy) + 1)
	for _, name := range slices.Sorted(maps.Keys(c.w.store.Busy)) {
		if n--; n < 0 {
			return c.w.store.Busy[name]
		}
	}
	return httpfault.Fault{Status: http.StatusServiceUnavailable}
}
