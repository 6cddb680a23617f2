//go:build go1.25

package shard

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// lines are what a member or an observer logs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// wants fails unless each of these words was logged once since the last call.
func (l *lines) wants(t *testing.T, words ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range words {
		if n := strings.Count(l.text.String(), w); n != 1 {
			t.Errorf("%q was logged %d times, want once:\n%s", w, n, &l.text)
		}
	}
	l.text.Reset()
}

func (l *lines) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func (l *lines) log(c *Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// A member that cannot read or write the assignment in an outage says so, and says when it can again. A
// second outage has its own lines.
func TestOutageIsLogged(t *testing.T) {
	play(t, func(g *group) {
		g.polled = true
		var log lines
		a := g.join("a", log.log)
		for range 2 {
			time.Sleep(5 * time.Minute)
			g.settles(12, time.Minute)
			log.clear()
			a.cut()
			time.Sleep(50 * time.Second)
			a.heal()
			time.Sleep(time.Minute)
			log.wants(g.t, "no seat; trying again", "has a seat again", "the assignment cannot be read", "the assignment is read again", "the assignment stays as it is", "the assignment is kept up to date again")
		}
	})
}

// An observer that starts in an outage says so, and says when it follows the assignment.
func TestOutageOfAnObserverIsLogged(t *testing.T) {
	play(t, func(g *group) {
		g.join("a")
		g.settles(12, time.Minute)
		var log lines
		var deciders []*memory.Decider
		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan error, 1)
		go func() {
			watched <- WatchConfig{
				Store: func(name string) (leaderelection.RaceDecider, error) {
					d := g.record(name).Handle()
					d.Inject(memory.LoseRequests())
					deciders = append(deciders, d)
					return d.Polled(), nil
				},
				MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}.Watch(ctx, func(context.Context, *Assignment) {})
		}()
		time.Sleep(50 * time.Second)
		for _, d := range deciders {
			d.Inject(nil)
		}
		time.Sleep(time.Minute)
		log.wants(g.t, "the assignment cannot be followed", "the assignment is followed again")
		cancel()
		<-watched
	})
}

// A list of the shards that fails, and one that works again, are logged.
func TestFailingListIsLogged(t *testing.T) {
	play(t, func(g *group) {
		var log lines
		l := &tenants{}
		l.set(nil, "blue", "red")
		g.join("a", log.log, func(c *Config) { c.Shards = Listed(l.list) })
		g.settles(2, time.Minute)
		for range 2 {
			time.Sleep(5 * time.Minute)
			log.clear()
			l.set(errors.New("the database is away"))
			time.Sleep(50 * time.Second)
			l.set(nil, "blue", "red")
			time.Sleep(time.Minute)
			log.wants(g.t, "the shards cannot be listed", "the shards are listed again")
		}
	})
}
