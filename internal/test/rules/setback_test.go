//go:build go1.25

package rules

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

const goneBack = "the store has gone back"

// journal is a log that may be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// logTo has a candidate log to j.
func logTo(j *journal) func(*config) {
	return func(c *config) { c.Logger = slog.New(slog.NewTextHandler(j, nil)) }
}

// A record that was deleted, and begun anew by one who knew nothing, is no news to those who
// know more. They say so, once, after a term; and again if it happens again.
func TestStoreGoneBackIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(&le.RaceEntry{ElectionNumber: 41, Incarnation: "x", TermLength: T, TermExpiry: time.Now()})
		var log, watched journal
		b := join(t, d, "b", polled, logTo(&log))
		ctx, stop := context.WithCancel(t.Context())
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			_ = le.WatchConfig{Decider: d.Polled(), MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&watched, nil))}.
				Watch(ctx, func(context.Context, le.RaceEntry) {})
		}()
		sleep(T)
		b.leads(t)
		for i := 1; i <= 2; i++ {
			d.Replace(&le.RaceEntry{LeaderID: "fresh", ElectionNumber: 1, Incarnation: "y", TermLength: time.Hour, TermExpiry: time.Now().Add(time.Hour)})
			sleep(T)
			if n := strings.Count(log.String(), goneBack); n != i-1 {
				t.Errorf("%d: said %d times within a term, in which a replica may lag:\n%s", i, n, log.String())
			}
			sleep(10 * T)
			for _, j := range []*journal{&log, &watched} {
				if n := strings.Count(j.String(), goneBack); n != i {
					t.Errorf("%d: said %d times:\n%s", i, n, j.String())
				}
			}
			if !strings.Contains(log.String(), "known=") || !strings.Contains(log.String(), "read=1") {
				t.Errorf("it does not say which:\n%s", log.String())
			}
			d.Replace(&le.RaceEntry{ElectionNumber: le.ElectionNumber(100 * i), Incarnation: "z", TermLength: T, TermExpiry: time.Now()}) // as Reset
			sleep(2 * T)
			b.leads(t)
		}
		stop()
		<-watching
	})
}

// A replica that lags now and then, and a leader who finds the record gone and writes it again,
// are no matter of a warning.
func TestStoreGoneBackIsNotSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var log journal
		a := join(t, d, "a", polled, logTo(&log))
		sleep(5 * T)
		a.leads(t)
		d.Replace(nil)
		sleep(5 * T)
		a.leads(t)
		if strings.Contains(log.String(), goneBack) {
			t.Errorf("it says\n%s", log.String())
		}
	})
}

// A record that is gone is said at once, by leaders and observers alike: the leader writes it again,
// and nobody would know. Once for each time.
func TestRecordThatIsGoneIsSaid(t *testing.T) {
	for kind, hide := range map[string]func(*memory.Decider) le.RaceDecider{
		"pushed": func(d *memory.Decider) le.RaceDecider { return d },
		"polled": func(d *memory.Decider) le.RaceDecider { return d.Polled() },
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				var led, watched journal
				a := join(t, d, "a", func(c *config) { c.Decider = hide(c.Decider.(*memory.Decider)) }, logTo(&led))
				go func() {
					_ = le.WatchConfig{Decider: hide(d.Handle()), MaxClockSkew: S, PollInterval: time.Second, Logger: slog.New(slog.NewTextHandler(&watched, nil))}.
						Watch(t.Context(), func(context.Context, le.RaceEntry) {})
				}()
				sleep(2 * T)
				for i := 1; i <= 2; i++ {
					if i == 1 {
						d.Replace(nil)
					} else {
						d.Replace(&le.RaceEntry{})
					}
					sleep(T / 2)
					for who, j := range map[string]*journal{"leader": &led, "observer": &watched} {
						if n := strings.Count(j.String(), "the record is gone"); n != i {
							t.Errorf("%d: the %s has said it %d times:\n%s", i, who, n, j.String())
						}
					}
					sleep(T)
					a.leads(t)
				}
				if a.count() != 1 {
					t.Errorf("%d leaderships", a.count())
				}
			})
		})
	}
}
