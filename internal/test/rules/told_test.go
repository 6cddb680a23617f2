//go:build go1.25

package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// clear forgets what was logged.
func (l *lines) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// logged gives a candidate a log.
func logged(l *lines) func(*config) {
	return func(c *config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }
}

// Without a Logger the program's own gets what goes wrong, and nothing else.
func TestWithoutALoggerTheDefaultWarns(t *testing.T) {
	var l lines
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&l, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(old)
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.Logger = nil })
		sleep(time.Minute)
		if n := l.count("\n"); n > 0 {
			t.Errorf("%d lines of a healthy candidate:\n%s", n, &l.text)
		}
		a.store.Inject(memory.LoseRequests())
		sleep(time.Minute)
		if l.count("level=WARN") == 0 || l.count("a store operation failed") == 0 || l.count("level=INFO")+l.count("level=DEBUG") > 0 {
			t.Errorf("logged:\n%s", &l.text)
		}
	})
}

// The error of a caller that waited in vain says what the store said, even if that was nothing, and
// wraps the ctx's error.
func TestStoresLastErrorIsTold(t *testing.T) {
	hang := make(chan struct{})
	for name, c := range map[string]struct {
		fault memory.Faults
		says  string
	}{
		"fails": {memory.LoseRequests(), "connection lost"},
		"hangs": {func(memory.Op) memory.Fault { return memory.Fault{Hang: hang} }, "no answer"},
	} {
		for call, f := range map[string]func(ctx context.Context, cfg le.Config) error{
			"Acquire": func(ctx context.Context, cfg le.Config) error { return cfg.Acquire(ctx) },
			"Run": func(ctx context.Context, cfg le.Config) error {
				return cfg.Run(ctx, func(context.Context, *le.TimeView) error { return nil })
			},
			"Watch": func(ctx context.Context, cfg le.Config) error {
				return le.WatchConfig{Decider: cfg.Decider}.Watch(ctx, func(context.Context, le.RaceEntry) {})
			},
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				for _, wait := range []time.Duration{time.Second, time.Minute} {
					bubble(t, func(t *testing.T) {
						d := memory.NewDecider()
						hang = make(chan struct{})
						defer close(hang)
						d.Inject(c.fault)
						ctx, cancel := context.WithTimeout(t.Context(), wait)
						defer cancel()
						err := f(ctx, le.Config{Decider: d.Polled(), LeaderID: "a", Logger: slog.New(slog.DiscardHandler)})
						if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.says) {
							t.Errorf("after %v: %v, want it to say %q", wait, err, c.says)
						}
					})
				}
			})
		}
	}
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a")
		a.store.Inject(memory.LoseRequests())
		sleep(10 * time.Second)
		if err := a.LastError(); !errors.Is(err, memory.ErrLost) {
			t.Errorf("LastError is %v", err)
		}
		a.store.Inject(nil)
		sleep(T)
		if err := a.LastError(); err != nil {
			t.Errorf("LastError is %v, of a store that works", err)
		}
		a.quit()
		if err := a.Wait(); err != context.Canceled {
			t.Errorf("%v", err)
		}
	})
}

// A leader that resigns from OnElected, and not with its own ctx, waits for itself: until its view
// has ended, and then it is told so.
func TestResignFromOnElectedWithAnotherCtx(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		self := make(chan *le.Campaign, 1)
		resigned := make(chan error, 1)
		var view *le.TimeView
		cfg := le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S, Logger: slog.New(slog.DiscardHandler), OnElected: func(ctx context.Context, v *le.TimeView) {
			if view != nil {
				<-ctx.Done()
				return
			}
			view = v
			resigned <- (<-self).Resign(context.Background())
		}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		self <- c
		sleep(3 * T)
		select {
		case err := <-resigned:
			if err == nil || !strings.Contains(err.Error(), "OnElected has not returned") {
				t.Errorf("Resign returned %v", err)
			}
		default:
			t.Error("Resign waits for itself")
		}
		if view.ValueInFuture() {
			t.Error("the view is alive")
		}
		cancel()
		<-c.Done()
	})
}

// What does not return is named, once.
func TestCallbacksThatDoNotReturnAreNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l lines
		work, news := make(chan struct{}), make(chan struct{})
		a := join(t, memory.NewDecider(), "a", logged(&l), func(c *config) {
			c.DrainTimeout = 5 * time.Second
			c.OnElected = func(context.Context, *le.TimeView) { <-work }
			c.LeaderChanged = func(context.Context, le.RaceEntry) { <-news }
		})
		sleep(time.Second)
		a.stop()
		sleep(4 * time.Second)
		if n := l.count("past DrainTimeout"); n != 0 {
			t.Errorf("named too early:\n%s", &l.text)
		}
		sleep(time.Minute)
		if n := l.count("past DrainTimeout"); n != 1 || l.count("runs=OnElected") != 1 {
			t.Errorf("named %d times:\n%s", n, &l.text)
		}
		close(work)
		sleep(time.Minute)
		if n := l.count("Wait waits for it"); n != 1 || l.count("runs=LeaderChanged") != 1 {
			t.Errorf("named %d times:\n%s", n, &l.text)
		}
		close(news)
		<-a.Done()
	})
}

// Ping tells when only a new process helps: of a LeaderChanged that is stuck, and of a store that
// refuses for good what this process has.
func TestPingTellsWhatIsStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		news := make(chan struct{})
		a := join(t, memory.NewDecider(), "a", func(c *config) { c.LeaderChanged = func(context.Context, le.RaceEntry) { <-news } })
		sleep(4*T - time.Second)
		if err := a.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		sleep(2 * time.Second)
		if err := a.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "LeaderChanged") {
			t.Errorf("Ping returned %v", err)
		}
		close(news)
		sleep(time.Second)
		if err := a.Ping(t.Context()); err != nil {
			t.Error(err)
		}

		refused := fmt.Errorf("no such authority: %w", le.ErrPermanent)
		a.store.Inject(func(op memory.Op) (f memory.Fault) {
			if op.Kind != memory.Feed {
				f.Err = refused
			}
			return f
		})
		sleep(3 * T)
		if err := a.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		sleep(3 * T)
		if err := a.Ping(t.Context()); !errors.Is(err, le.ErrPermanent) {
			t.Errorf("Ping returned %v", err)
		}
		a.store.Inject(nil)
		sleep(T)
		if err := a.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Rule 17: a permission that is refused may be granted by a server that has begun, or when a new one
// has got through: it ends a campaign if it was refused for a term.
func TestRule17DeniedForATerm(t *testing.T) {
	denied := func(memory.Op) memory.Fault { return memory.Fault{Err: fmt.Errorf("403: %w", le.ErrDenied)} }
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		a.store.Inject(denied)
		sleep(T - time.Second)
		a.store.Inject(nil)
		sleep(T)
		a.leads(t)
	})
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(denied)
		begun := time.Now()
		err := le.Config{Decider: d.Polled(), LeaderID: "a", TermLength: T, MaxClockSkew: S}.Acquire(t.Context())
		if took := time.Since(begun); !errors.Is(err, le.ErrDenied) || took < T || took > 2*T {
			t.Errorf("%v after %v", err, took)
		}
	})
	bubble(t, func(t *testing.T) { // other answers between
		d := memory.NewDecider()
		n := 0
		d.Inject(func(memory.Op) memory.Fault {
			if n++; n%2 == 0 {
				return memory.Fault{Err: memory.ErrLost}
			}
			return denied(memory.Op{})
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*T)
		defer cancel()
		if err := (le.Config{Decider: d.Polled(), LeaderID: "a", TermLength: T, MaxClockSkew: S}).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A leader whose clock is ahead by more than twice MaxClockSkew is called so once a minute by each of
// the others, though every record of it shows that. Another such leader is called so at once.
func TestClocksDisagreeIsLoggedBriefly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		laptop := join(t, d, "laptop", unstamped, on(clocks.NewOffset(nil, 2*time.Hour)))
		sleep(time.Second)
		var standby, observer lines
		join(t, d, "a", unstamped, logged(&standby))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&observer, nil))}.Watch(ctx,
				func(context.Context, le.RaceEntry) {})
		}()
		sleep(time.Hour)
		const line = "clocks disagree"
		for name, l := range map[string]*lines{"standby": &standby, "observer": &observer} {
			if n := l.count(line); n < 50 || n > 61 {
				t.Errorf("the %s logged %d lines in an hour, want about one a minute", name, n)
			}
		}
		before := observer.count(line)
		laptop.quit()
		e := rival(d.Entry().ElectionNumber + 1)
		e.TermExpiry = time.Now().Add(time.Hour)
		d.Replace(e)
		sleep(time.Second)
		if n := observer.count(line); n != before+1 {
			t.Errorf("%d lines about another leader, want 1", n-before)
		}
		cancel()
		<-done
	})
}
