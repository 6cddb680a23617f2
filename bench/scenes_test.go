package main

import (
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The store's leading server dies, and every contestant is watched: the views of this library do
// not overlap, and it wins each new election in the end. How soon is measured, not tested: on a machine
// that gives its servers no time, calls end after a quarter of a term, and nothing may be won for long.
func TestStoreFailsOver(t *testing.T) {
	stores.Nightly(t, "it starts clusters")
	p := plan{elections: 3, term: 5 * time.Second}
	results := measureFailover(t, p)
	for i, c := range contestants {
		if clusters[c.store] == nil || c.freezeOnly || c.idleOnly || c.deathsOnly || c.variant {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			r := results[i]
			if r == nil {
				stores.Missing(t, missing(c.store)+" is not on this machine")
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			if len(r.vacant) != p.elections || len(r.over.told) != p.elections {
				t.Errorf("%d elections were watched, and %d for overlaps, want %d", len(r.vacant), len(r.over.told), p.elections)
			}
			if r.outage <= 0 || r.wait <= 0 {
				t.Errorf("another server led after %v, and a new election took %v at most", r.outage, r.wait)
			}
			if over := quantile(r.over.asked, 1); c.library == module && (over > 0 || r.waits) {
				t.Errorf("two views were true at once for up to %v; was a new election not won at all: %v", over, r.waits)
			}
		})
	}
}

// What processes use that only lead or stand by is measured of every contestant.
func TestIdle(t *testing.T) {
	p := plan{term: 10 * time.Second, window: 3 * time.Second}
	addrs := servers(t, p.term)
	sizes := idleSizes{2}
	results := measureIdle(t.Context(), t, p, sizes, addrs)
	_, err := os.Stat("/proc/self/statm")
	for i, c := range contestants {
		if c.freezeOnly || c.deathsOnly || c.variant {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			r := results[i]
			if r == nil {
				stores.Missing(t, missing(c.store)+" is not on this machine")
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			for what, d := range map[string]idled{"leader": r.leader[0], "standby": r.standby[0]} {
				if d.cpu <= 0 || d.switches <= 0 || (d.memory > 0) != (err == nil) {
					t.Errorf("a %s uses %v of CPU in a minute, %v switches and %d bytes", what, d.cpu, d.switches, d.memory)
				}
			}
		})
	}
}

// A process's figures grow with what it does.
func TestUsed(t *testing.T) {
	before := used()
	for deadline := time.Now().Add(20 * time.Second); used().CPU < before.CPU+int64(50*time.Millisecond); {
		if time.Now().After(deadline) {
			t.Fatalf("%+v after 20 s of work, %+v before", used(), before)
		}
	}
}

// The elections of a process share one client of a kind, or have one each.
func TestClients(t *testing.T) {
	made := 0
	open := func(seat) (leases, error) { made++; return leases{}, nil }
	for range 3 {
		_, done, _ := client(seat{}, open)
		done()
	}
	if made != 3 {
		t.Errorf("%d clients for three seats, want 3", made)
	}
	shared := &clients{made: map[any]any{}}
	for range 3 {
		_, done, _ := client(seat{Clients: shared}, open)
		done()
	}
	if made != 4 {
		t.Errorf("%d more clients for three seats that share one", made-3)
	}
}

// For how long nobody led: the gaps between spans that overlap and lie in any order.
func TestCovered(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	s := []span{{at(30), at(40)}, {at(0), at(12)}, {at(11), at(14)}, {at(12), at(13)}, {at(90), at(110)}}
	if got, want := covered(s, at(10), at(100)), 24*time.Second; got != want {
		t.Errorf("%v are covered, want %v: 10 to 14, 30 to 40, 90 to 100", got, want)
	}
	if got := covered(nil, at(10), at(100)); got != 0 {
		t.Errorf("%v are covered by nothing", got)
	}
}

// What is said of a store's death: a leadership that lived on, one that passed to the other
// after a while, one that was lost for good; and elections that were won late, or never.
func TestJudge(t *testing.T) {
	at := func(s int64) int64 { return time.Unix(s, 0).UnixNano() }
	believe := func(e int, on bool, s int64) []event {
		return []event{{Election: e, What: told, On: on, At: at(s)}, {Election: e, What: asked, On: on, At: at(s)}}
	}
	made := func(elections int, events ...[]event) *process {
		return &process{role: role{Elections: elections}, events: slices.Concat(events...), killed: time.Unix(160, 0)}
	}
	join := func(e int, from, won int64) []event {
		events := []event{{Election: e, What: joined, At: at(from)}}
		if won > 0 {
			events = append(events, event{Election: e, What: led, At: at(won)})
		}
		return events
	}
	p := trio{
		made(3, believe(0, true, 50), believe(1, true, 50), believe(1, false, 105), believe(2, true, 50), believe(2, false, 110)),
		made(3, believe(1, true, 103)[:1], believe(1, true, 108)[1:]),
		made(4, join(0, 60, 90), join(1, 99, 104), join(2, 110, 111)),
	}
	died := time.Unix(100, 0)
	r := &failover{elections: 3}
	p.judge(died, r)
	want := &failover{
		elections: 3, lost: 2, vacant: []time.Duration{0, 0, 50 * time.Second}, wait: 5 * time.Second,
		over: overlaps{told: []time.Duration{0, 2 * time.Second, 0}, asked: []time.Duration{0, 0, 0}},
	}
	if !reflect.DeepEqual(r, want) { //nolint:govet // neither has an error
		t.Errorf("%+v\nwant %+v", r, want)
	}
	if r.waited() != "5.0" {
		t.Errorf("to win again took %s", r.waited())
	}
	p[2] = made(4, join(0, 60, 61), join(3, 130, 0))
	r = &failover{elections: 3}
	if p.judge(died, r); !r.waits || r.waited() != "over 30" {
		t.Errorf("an election that was not won in 30 s: %q", r.waited())
	}
}

// A signal that did not end while it was looked at is told apart from one that did.
func TestGaveUp(t *testing.T) {
	for _, x := range []struct {
		stuck int
		want  string
	}{{0, "7.0 / 60.0"}, {1, "7.0 / never in 60"}, {2, "never in 7"}} {
		if got := gaveUp(&result{clung: []time.Duration{time.Minute, 7 * time.Second}, stuck: x.stuck}); got != x.want {
			t.Errorf("%d of two stuck: %q, want %q", x.stuck, got, x.want)
		}
	}
}

// After the death of a process its machine's standby, its successor and an undertaker do not
// wait for the term, and the others' candidates do.
func TestDeaths(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("lifelines need Linux")
	}
	p := plan{elections: 3, term: 5 * time.Second, rtt: 10 * time.Millisecond, only: regexp.MustCompile("on etcd$")}
	results, err := measureDeaths(t.Context(), t, p, map[string]string{etcdStore: stores.Etcd(t, "-fsync").Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	median := func(d []time.Duration) time.Duration { return quantile(d, 0.5) }
	for i, c := range contestants {
		r := results[i]
		if r == nil {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			if r.err != nil {
				t.Fatal(r.err)
			}
			ways := [][]time.Duration{r.beside, r.panicked, r.again}
			if c.library == module {
				ways = append(ways, r.undertaken, r.elsewhere)
			}
			for k, took := range ways {
				if len(took) != p.elections || slices.Min(took) < p.rtt/2 {
					t.Errorf("way %d to die: another led after %v, want %d values, each with an answer of the store", k, took, p.elections)
				}
			}
			if c.library == module && max(median(r.beside), median(r.panicked), median(r.undertaken)) >= median(r.elsewhere) {
				t.Errorf("%v and %v beside the dead, %v with an undertaker, %v without: a lifeline told of nothing", r.beside, r.panicked, r.undertaken, r.elsewhere)
			}
		})
	}
}
