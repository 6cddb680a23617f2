//go:build go1.25

package rules

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// What a leader announces is on record at once, by one extension more, and its
// leadership goes on.
func TestAnnounceIsOneExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"old:1"} })
		sleep(8 * time.Second) // the first extension was at 7 s
		began := time.Now()
		sleep(2 * time.Second)
		host, params := []string{"new:1"}, []byte("v2")
		if err := a.Announce(host, params); err != nil {
			t.Fatal(err)
		}
		host[0], params[0] = "scribbled", 'x' // they are the caller's
		synctest.Wait()
		if e := d.Entry(); !slices.Equal(e.HostPort, []string{"new:1"}) || string(e.ConnectionParams) != "v2" || e.ElectionNumber != first {
			t.Errorf("on record is %+v", e)
		}
		sleep(4 * time.Second)
		if ops := a.opsSince(began); len(ops) != 1 || ops[0].Kind != le.OpExtend {
			t.Errorf("it took %+v, want one extension", ops)
		}
		if a.count() != 1 || a.leadership(t, 0).ctx.Err() != nil {
			t.Error("the leadership has ended")
		}
	})
}

// Announcements in a row make no more than one write a second, of the newest.
func TestAnnounceIsPaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(2 * time.Second)
		began := time.Now()
		for i := range 1000 {
			if err := a.Announce(nil, []byte{byte(i), byte(i >> 8)}); err != nil {
				t.Fatal(err)
			}
			sleep(4 * time.Millisecond)
		}
		sleep(2 * time.Second)
		if n := len(a.opsSince(began)); n > 6 {
			t.Errorf("%d store operations in 6 s", n)
		}
		if p := d.Entry().ConnectionParams; !slices.Equal(p, []byte{999 & 255, 999 >> 8}) {
			t.Errorf("on record is %v", p)
		}
	})
}

// A store that fails is asked no more often for an announcement than for an extension.
func TestAnnounceBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(2 * time.Second)
		a.store.Inject(memory.Fail(errors.New("no")).On(memory.Write))
		began := time.Now()
		if err := a.Announce([]string{"new:1"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(4 * time.Second)
		if n := len(a.opsSince(began, le.OpExtend)); n > 6 {
			t.Errorf("%d writes in 4 s, want at most 6: the pauses double from half a second", n)
		}
	})
}

// What a standby announces, or one that has lost, is what it tells when it leads.
func TestAnnounceIsKeptForTheNextLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"a:1"} })
		sleep(time.Second)
		b := join(t, d, "b", func(c *config) { c.HostPort = []string{"b:1"} })
		sleep(time.Second)
		if err := b.Announce([]string{"b:2"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if h := d.Entry().HostPort; !slices.Equal(h, []string{"a:1"}) {
			t.Fatalf("a standby has written %v", h)
		}
		a.quit()
		sleep(time.Second)
		b.leads(t)
		if h := d.Entry().HostPort; !slices.Equal(h, []string{"b:2"}) {
			t.Errorf("it leads at %v", h)
		}
	})
}

// Announce refuses what Config does, and does nothing then, nor when all is over.
func TestAnnounceRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"a:1"} })
		sleep(2 * time.Second)
		for want, params := range map[string][]byte{"UTF-8": nil, "196608": make([]byte, 150<<10)} {
			if err := a.Announce([]string{"a\xff"}, params); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		sleep(4 * time.Second)
		if h := d.Entry().HostPort; !slices.Equal(h, []string{"a:1"}) {
			t.Errorf("on record is %q", h)
		}
		a.quit()
		if err := a.Announce(nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// An observer is told of an announcement as of any extension.
func TestAnnounceReachesObservers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"a:1"} })
		sleep(2 * time.Second)
		var seen []string
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.WatchConfig{Decider: d, MaxClockSkew: S}.Watch(ctx, func(_ context.Context, e le.RaceEntry) { seen = append(seen, e.HostPort...) })
		}()
		sleep(time.Second)
		if err := a.Announce([]string{"a:2"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		stop()
		<-done
		if !slices.Equal(seen, []string{"a:1", "a:2"}) {
			t.Errorf("seen %v", seen)
		}
	})
}

// What is announced may take as much of a record as is allowed, if each byte of an address
// is written as six, and not a byte more.
func TestAnnounceAsMuchAsARecordKeeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a")
		for n, fits := range map[int]bool{(192<<10)/6 - 2: true, (192<<10)/6 - 1: false} {
			if err := a.Announce([]string{strings.Repeat("\x01", n) + ":1"}, nil); (err == nil) != fits {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	})
}

// An announcement never puts an extension off, also if these are more frequent.
func TestAnnounceDelaysNoExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.ExtendEvery = T / 20 })
		sleep(10 * time.Second)
		began := time.Now()
		if err := a.Announce([]string{"new:1"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(600 * time.Millisecond) // the last extension was 250 ms before
		if ops := a.opsSince(began, le.OpExtend); len(ops) != 1 || !slices.Equal(d.Entry().HostPort, []string{"new:1"}) {
			t.Errorf("%+v, on record is %v", ops, d.Entry().HostPort)
		}
	})
}

// A Config's HostPort and ConnectionParams are the caller's again when Start has returned.
func TestAnnouncedByConfigIsACopy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		host, params := []string{"a:1"}, []byte("v1")
		a := join(t, d, "a", func(c *config) { c.HostPort, c.ConnectionParams = host, params })
		host[0], params[0] = "scribbled", 'x'
		sleep(T)
		if e := d.Entry(); !slices.Equal(e.HostPort, []string{"a:1"}) || string(e.ConnectionParams) != "v1" {
			t.Errorf("on record is %+v", e)
		}
		a.leads(t)
	})
}

// Either of the two that are announced is reason enough to write.
func TestAnnounceOfOneOfTheTwo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort, c.ConnectionParams = []string{"a:1"}, []byte("v1") })
		for _, c := range []struct{ host, params string }{{"a:1", "v2"}, {"a:2", "v2"}} {
			sleep(2 * time.Second)
			if err := a.Announce([]string{c.host}, []byte(c.params)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if e := d.Entry(); e.HostPort[0] != c.host || string(e.ConnectionParams) != c.params {
				t.Errorf("on record are %v and %q, want %+v", e.HostPort, e.ConnectionParams, c)
			}
		}
	})
}
