//go:build go1.25 && (linux || darwin)

package open_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

const term = 6 * time.Second

var errToken = errors.New("invalid auth token")

// world is a store, and the clients that were opened on it.
type world struct {
	store *memory.Decider

	mu     sync.Mutex
	opened []*client
	refuse error // openings
}

// client is a decider, a handle of its own, whose client may go bad for good.
type client struct {
	*memory.Decider
	number    int
	closed    atomic.Int64
	inherited leaderelection.RaceDecider
}

func (w *world) open(_ context.Context, u *url.URL) (*client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	c := &client{Decider: w.store.Handle(), number: len(w.opened)}
	w.opened = append(w.opened, c)
	return c, nil
}

func (w *world) clients() []*client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened
}

// fails has calls end with err from now on: those of these kinds, or reads and writes.
func (c *client) fails(err error, kinds ...memory.Kind) {
	if kinds == nil {
		kinds = []memory.Kind{memory.Read, memory.Write}
	}
	c.Inject(memory.Fail(err).On(kinds...))
}

func (c *client) Close() error { c.closed.Add(1); return nil }

func (c *client) Inherit(from leaderelection.RaceDecider) { c.inherited = from }

func (c *client) String() string { return fmt.Sprint("client ", c.number) }

func (c *client) Durability(context.Context) ([]durability.Warning, error) {
	return []durability.Warning{{Detail: c.String()}}, nil
}

// opens opens a world's store, which has a record that names the term.
func opens(t *testing.T) (w *world, d leaderelection.RaceDecider, log *logtest.Log) {
	log = new(logtest.Log)
	w = &world{store: memory.NewDecider()}
	d, err := open.Stores{"one": open.With(w.open)}.Open(open.WithLogger(t.Context(), slog.New(slog.NewTextHandler(log, nil))), "one://user:hush@host/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", TermLength: term, TermExpiry: time.Now().Add(term), ElectionNumber: 1, Incarnation: "i", WriteID: "w"}); err != nil {
		t.Fatal(err)
	}
	return w, d, log
}

// reads reads once a second.
func reads(t *testing.T, d leaderelection.RaceDecider, seconds int) (last error) {
	for range seconds {
		_, last = d.ReadCurrent(t.Context())
		time.Sleep(time.Second)
	}
	return last
}

// A client whose calls have failed for a term is replaced, once a term.
func TestOneNewClientATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, log := opens(t)
		w.clients()[0].fails(errToken)
		if err := reads(t, d, 6); !errors.Is(err, errToken) || len(w.clients()) != 1 {
			t.Errorf("before a term is over: %v, %d clients", err, len(w.clients()))
		}
		if err := reads(t, d, 2); err != nil || len(w.clients()) != 2 {
			t.Errorf("after a term: %v, %d clients", err, len(w.clients()))
		}
		if c := w.clients()[0]; c.closed.Load() != 1 || w.clients()[1].inherited != leaderelection.RaceDecider(c) {
			t.Errorf("the old client was closed %d times; the new one has inherited from %v", c.closed.Load(), w.clients()[1].inherited)
		}
		if text := log.Take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "a new client has taken over") || !strings.Contains(text, errToken.Error()) || strings.Contains(text, "hush") {
			t.Errorf("the log: %s", text)
		}
		// The next ones fail as well.
		w.clients()[1].fails(errToken)
		w.mu.Lock()
		w.refuse = errRefused
		w.mu.Unlock()
		time.Sleep(time.Minute)
		if err := reads(t, d, 20); !errors.Is(err, errToken) || len(w.clients()) != 2 {
			t.Errorf("no new client can be made: %v, %d clients", err, len(w.clients()))
		}
		if text := log.Take(); !strings.Contains(text, "no new client could be made") || !strings.Contains(text, errRefused.Error()) {
			t.Errorf("the log: %s", text)
		}
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		before := len(w.clients())
		for range 3 * int(term/time.Second) {
			for _, c := range w.clients() {
				c.fails(errToken)
			}
			reads(t, d, 1)
		}
		if n := len(w.clients()) - before; n < 2 || n > 3 {
			t.Errorf("%d new clients in three terms in which all fail", n)
		}
		if err := open.Close(d); err != nil {
			t.Error(err)
		}
		for i, c := range w.clients() {
			if c.closed.Load() != 1 {
				t.Errorf("client %d was closed %d times", i, c.closed.Load())
			}
		}
	})
}

// Nobody replaces a client that works: the store decides against a write, asks for a pause, says that no
// retry can help, or fails now and then.
func TestNoNewClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, log := opens(t)
		defer open.Close(d)
		c := w.clients()[0]
		for name, err := range map[string]error{
			"lost":      &leaderelection.LostRaceError{},
			"pause":     &leaderelection.RetryAfterError{After: time.Second, Err: errRefused},
			"permanent": fmt.Errorf("no such bucket: %w", leaderelection.ErrPermanent),
		} {
			c.fails(err)
			if got := reads(t, d, 60); !errors.Is(got, err) || len(w.clients()) != 1 {
				t.Errorf("%s: %v, %d clients", name, got, len(w.clients()))
			}
		}
		for range 60 {
			c.fails(errToken)
			reads(t, d, 5)
			c.Inject(nil)
			reads(t, d, 1)
		}
		// A write that fails once, and after a month once more.
		for range 2 {
			c.fails(errToken, memory.Write)
			_, _ = d.WriteEntry(t.Context(), &leaderelection.RaceEntry{})
			time.Sleep(30 * 24 * time.Hour)
			c.Inject(nil)
			reads(t, d, 1)
		}
		if text := log.Take(); len(w.clients()) != 1 || text != "" {
			t.Errorf("%d clients; the log: %s", len(w.clients()), text)
		}
	})
}

// Writes alone may fail for good, or credentials be refused.
func TestWritesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, _ := opens(t)
		defer open.Close(d)
		w.clients()[0].fails(fmt.Errorf("%w: %w", errToken, leaderelection.ErrDenied), memory.Write)
		for range 8 {
			reads(t, d, 1)
			_, _ = d.WriteEntry(t.Context(), &leaderelection.RaceEntry{})
		}
		if len(w.clients()) != 2 {
			t.Errorf("%d clients", len(w.clients()))
		}
	})
}

// The old client is closed after its last call, whose end says nothing about the new one. No call is
// repeated.
func TestTheOldClientsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, _ := opens(t)
		old := w.clients()[0]
		hang := make(chan struct{})
		old.Inject(memory.Always(memory.Fault{Hang: hang, Err: errToken}))
		var late sync.WaitGroup
		var outcome error
		late.Go(func() { _, outcome = d.WriteEntry(t.Context(), &leaderelection.RaceEntry{}) })
		synctest.Wait()
		old.fails(errToken)
		reads(t, d, 8)
		if len(w.clients()) != 2 || old.closed.Load() != 0 {
			t.Errorf("%d clients, the old one closed %d times while a write is under way", len(w.clients()), old.closed.Load())
		}
		close(hang)
		late.Wait()
		synctest.Wait()
		if !errors.Is(outcome, errToken) || old.closed.Load() != 1 {
			t.Errorf("the old client's write: %v; closed %d times", outcome, old.closed.Load())
		}
		if err := reads(t, d, 20); err != nil || len(w.clients()) != 2 {
			t.Errorf("after it: %v, %d clients", err, len(w.clients()))
		}
		if err := open.Close(d); err != nil || w.clients()[1].closed.Load() != 1 {
			t.Errorf("%v, closed %d times", err, w.clients()[1].closed.Load())
		}
	})
}

// A feed of the old client ends with an error, and the next one is the new client's.
func TestFeedsBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, _ := opens(t)
		defer open.Close(d)
		next, stop := iter.Pull2(d.(leaderelection.ChangeFeed).Changes(t.Context()))
		defer stop()
		if e, err, _ := next(); err != nil || e.LeaderID != "a" {
			t.Fatal(e, err)
		}
		w.clients()[0].fails(errToken)
		reads(t, d, 8)
		if e, err, ok := next(); !ok || e != nil || err == nil || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("the old feed: %v, %v", e, err)
		}
		for e, err := range d.(leaderelection.ChangeFeed).Changes(t.Context()) {
			if err != nil || e.LeaderID != "a" {
				t.Errorf("the new feed: %v, %v", e, err)
			}
			break
		}
		warnings, err := d.(durability.Examiner).Durability(t.Context())
		if err != nil || warnings[0].Detail != "client 1" || d.(fmt.Stringer).String() != "client 1" {
			t.Errorf("%v, %v, %v", warnings, err, d)
		}
	})
}

// A leadership goes on, or comes back, with a new client.
func TestACampaignGetsANewClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{store: memory.NewDecider()}
		d, err := open.Stores{"one": open.With(w.open)}.Open(open.WithLogger(t.Context(), slog.New(slog.DiscardHandler)), "one://x")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c, err := leaderelection.Config{LeaderID: "a", Decider: d, TermLength: term, MaxClockSkew: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(term)
		if !c.View().ValueInFuture() {
			t.Fatal("nobody leads at first")
		}
		w.clients()[0].fails(errToken)
		time.Sleep(4 * term)
		if !c.View().ValueInFuture() || len(w.clients()) != 2 {
			t.Errorf("leads: %v, with %d clients", c.View().ValueInFuture(), len(w.clients()))
		}
		stop()
		<-c.Done()
		if err := open.Close(d); err != nil {
			t.Error(err)
		}
	})
}

// Those that share a client get one new one together.
func TestSharedClientsAreReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set clients.Set
		ctx := open.WithLogger(set.In(t.Context()), slog.New(slog.DiscardHandler))
		w := &world{store: memory.NewDecider()}
		shared := func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
			c, done, err := clients.Open(ctx, u.Host, func(ctx context.Context) (*client, func() error, error) {
				c, err := w.open(ctx, u)
				return c, c.Close, err
			})
			if err != nil {
				return nil, err
			}
			return &sharing{c, done}, nil
		}
		var records [3]leaderelection.RaceDecider
		for i := range records {
			var err error
			if records[i], err = (open.Stores{"one": shared}).Open(ctx, fmt.Sprintf("one://host/%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if len(w.clients()) != 1 {
			t.Fatalf("%d clients", len(w.clients()))
		}
		w.clients()[0].fails(errToken)
		for range 20 {
			for _, d := range records {
				reads(t, d, 1)
			}
		}
		for i, d := range records {
			if err := reads(t, d, 1); err != nil {
				t.Errorf("record %d: %v", i, err)
			}
		}
		if len(w.clients()) != 2 || w.clients()[0].closed.Load() != 1 {
			t.Errorf("%d clients, the first closed %d times", len(w.clients()), w.clients()[0].closed.Load())
		}
		for _, d := range records {
			if err := open.Close(d); err != nil {
				t.Error(err)
			}
		}
		if n := w.clients()[1].closed.Load(); n != 1 {
			t.Errorf("the second was closed %d times", n)
		}
	})
}

type sharing struct {
	leaderelection.RaceDecider
	done func() error
}

func (s *sharing) Close() error { return s.done() }
