//go:build go1.25

package shard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// tenants is a list of shards that changes.
type tenants struct {
	mu    sync.Mutex
	names []string
	err   error
	hang  chan struct{}
	asked int
	now   int
	most  int
}

func (l *tenants) list(context.Context) ([]string, error) {
	l.mu.Lock()
	l.asked++
	l.now++
	l.most = max(l.most, l.now)
	names, err, hang := slices.Clone(l.names), l.err, l.hang
	l.mu.Unlock()
	if hang != nil {
		<-hang // and takes no notice of its ctx
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now--
	return names, err
}

func (l *tenants) set(err error, names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names, l.err = names, err
}

// Shards that a function lists come and go without a restart. While it fails, or lists none, they
// stay as they are.
func TestListedShards(t *testing.T) {
	both(t, func(g *group) {
		l := &tenants{err: errors.New("the database is away")}
		for _, id := range []string{"a", "b", "c"} {
			g.join(id, func(c *Config) { c.Shards = Listed(l.list) })
		}
		time.Sleep(2 * T)
		if n := g.counts(); len(n) > 3 || n["a"]+n["b"]+n["c"] != 0 {
			g.t.Errorf("%v before anything was listed", n)
		}
		l.set(nil, "blue", "red", "green", "white")
		g.settles(4, time.Minute)
		l.set(nil, "blue", "red", "green", "white", "new", "newer")
		g.settles(6, time.Minute)
		blue, _ := g.all()[0].member.Assignment().Owner("blue")
		l.set(nil, "blue", "newer", "new")
		g.settles(3, time.Minute)
		for _, c := range []struct {
			err   error
			names []string
		}{{errors.New("away again"), nil}, {nil, nil}, {nil, []string{"blue", "blue"}}} {
			l.set(c.err, c.names...)
			time.Sleep(3 * T)
			g.settles(3, time.Second)
		}
		if o, _ := g.all()[0].member.Assignment().Owner("blue"); o.Token != blue.Token {
			g.t.Errorf("%+v owns what was listed all the time, and before %+v", o, blue)
		}
		l.set(nil, "blue", "newer", "new")
		l.mu.Lock()
		before := l.asked
		l.mu.Unlock()
		time.Sleep(10 * T)
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := l.asked - before; n < 8 || n > 12 {
			g.t.Errorf("asked %d times in ten terms", n)
		}
	})
}

// A list that hangs is called by nobody again, keeps nobody from leaving, and moves nothing.
func TestListThatHangs(t *testing.T) {
	play(t, func(g *group) {
		l := &tenants{names: []string{"blue", "red"}}
		g.join("a", func(c *Config) { c.Shards = Listed(l.list) })
		g.settles(2, time.Minute)
		hang := make(chan struct{})
		l.mu.Lock()
		l.hang = hang
		l.mu.Unlock()
		time.Sleep(10 * T)
		g.settles(2, time.Second)
		g.all()[0].leave()
		l.mu.Lock()
		if l.most != 1 || l.now != 1 {
			t.Errorf("%d calls at once", l.most)
		}
		l.mu.Unlock()
		close(hang)
		time.Sleep(time.Second)
	})
}
