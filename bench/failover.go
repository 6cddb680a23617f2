package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// cluster is a store of three servers.
type cluster struct {
	addr   string                           // where clients reach it: etcd's members, a server of Consul, a sentinel
	leader func(ctx context.Context) string // which of them leads the others now; "" where none says so
	kill   map[string]func()                // kills a server
}

// clusters starts one kind of store each.
var clusters = map[string]func(t *testing.T, term time.Duration) cluster{
	etcdStore: func(t *testing.T, _ time.Duration) cluster {
		c := cluster{kill: map[string]func(){}}
		var members []string
		for _, m := range stores.EtcdCluster(t, 3) {
			members = append(members, m.Endpoint)
			c.kill[m.Endpoint] = m.Stop
		}
		c.addr = strings.Join(members, ",")
		c.leader = func(ctx context.Context) string {
			return first(members, func(m string) bool {
				return strings.Contains(fetch(ctx, "http://"+m+"/metrics"), "\netcd_server_is_leader 1")
			})
		}
		return c
	},
	consulStore: func(t *testing.T, term time.Duration) cluster {
		c := cluster{kill: map[string]func(){}}
		var servers []string
		leads := map[string]func(testing.TB) bool{}
		for _, s := range stores.ConsulCluster(t, 3, consulConfig(term)) {
			servers = append(servers, s.Address)
			c.kill[s.Address], leads[s.Address] = s.Stop, s.Leads
		}
		c.leader = func(context.Context) string {
			return first(servers, func(s string) bool { return leads[s](t) })
		}
		was := c.leader(t.Context())
		c.addr = first(servers, func(s string) bool { return s != was }) // as an agent that stays
		return c
	},
	redisStore: func(t *testing.T, _ time.Duration) cluster {
		master := stores.Redis(t)
		for range sentinelReplicas {
			stores.RedisReplica(t, master)
		}
		sentinel := stores.RedisSentinel(t, master, sentinelReplicas).Addr
		return cluster{sentinel, func(ctx context.Context) string {
			client := goredis.NewSentinelClient(&goredis.Options{Addr: sentinel})
			defer client.Close()
			addr, _ := client.GetMasterAddrByName(ctx, "main").Result()
			return strings.Join(addr, ":")
		}, map[string]func(){master.Addr: master.Stop}}
	},
}

// first is the first of those that are so, or "".
func first(those []string, so func(string) bool) string {
	if i := slices.IndexFunc(those, so); i >= 0 {
		return those[i]
	}
	return ""
}

// fetch returns what a URL answers, or "".
func fetch(ctx context.Context, url string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// errSpared says that the server that leads must not be killed, since clients use it: on a busy
// machine servers change their leader of themselves.
var errSpared = errors.New("the server that leads cannot be killed")

// die kills the server that leads, and returns when, and how long it took until another led. It
// returns at the end of the watch, or later: the servers of a busy machine take their time.
func (c cluster) die(ctx context.Context, watch time.Duration) (died time.Time, outage time.Duration, err error) {
	const often = 50 * time.Millisecond
	was := c.leader(ctx)
	for began := time.Now(); was == "" && time.Since(began) < watch; was = c.leader(ctx) { // they are choosing one
		if err := sleep(ctx, often); err != nil {
			return died, 0, err
		}
	}
	if was == c.addr || c.kill[was] == nil {
		return died, 0, fmt.Errorf("%w: it is %q, and clients use %s", errSpared, was, c.addr)
	}
	died = time.Now()
	c.kill[was]()
	for outage == 0 {
		if err := sleep(ctx, often); err != nil {
			return died, 0, err
		}
		if is := c.leader(ctx); is != "" && is != was {
			outage = time.Since(died)
		} else if busy := watch + time.Minute; time.Since(died) > busy {
			return died, 0, fmt.Errorf("%s was killed, and no other leads after %v", was, busy)
		}
	}
	return died, outage, sleep(ctx, time.Until(died.Add(watch)))
}

// failover is what was measured of one contestant when the server died that led its store.
type failover struct {
	elections int
	outage    time.Duration   // until the store had another server that led it
	lost      int             // so many of the leaderships
	vacant    []time.Duration // for so long nobody led, by the signal: one value for each election
	over      overlaps
	wait      time.Duration // the longest that it took to win an election in which nobody else took part
	waits     bool          // it had not been won in the end
	err       error
}

// errUnmeasured is left where a store's servers did not start: their helper says why, and ends
// the goroutine.
var errUnmeasured = errors.New("not measured: see what its servers said")

// measureFailover measures all contestants whose store can be had with three servers.
func measureFailover(t *testing.T, p plan) []*failover {
	results := make([]*failover, len(contestants))
	var wg sync.WaitGroup
	for store, start := range clusters {
		var those []int
		for i, c := range contestants {
			if c.store == store && p.takes(c) && !c.freezeOnly && !c.idleOnly && !c.deathsOnly && !c.variant {
				those = append(those, i)
				results[i] = &failover{elections: p.elections, err: errUnmeasured}
			}
		}
		if len(those) == 0 || missing(store) != "" {
			for _, i := range those {
				results[i] = nil
			}
			continue
		}
		wg.Go(func() {
			const tries = 3
			err := errSpared
			for try := 0; try < tries && errors.Is(err, errSpared); try++ {
				err = start(t, p.term).failOver(t, p, those, results)
			}
			for _, i := range those {
				results[i].err = err
			}
		})
	}
	wg.Wait()
	return results
}

// The scene: watched is for how many leases it is looked at after the death. Somebody joins an
// election of its own so many times in a lease, and goes on for two of them.
const (
	watched       = 4
	joinsEachTerm = 75
	joinFor       = 2
)

// failOver has the contestants lead and stand by, kills the server, and watches.
func (c cluster) failOver(t *testing.T, p plan, those []int, results []*failover) error {
	ctx := t.Context()
	started := make([]trio, len(those))
	defer func() {
		for _, each := range started {
			each.kill()
		}
	}()
	// The third ones begin when all others are there: they join elections for a short time only.
	for _, begin := range []func(measurement, context.Context, *trio) error{measurement.two, measurement.third} {
		var wg sync.WaitGroup
		errs := make([]error, len(those))
		for k, i := range those {
			m := measurement{plan: p, t: t, contestant: i, role: role{
				Addr: c.addr, Sentinel: contestants[i].store == redisStore, Shared: true, Again: true, Sample: true, Steady: true,
			}}
			wg.Go(func() { errs[k] = begin(m, ctx, &started[k]) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	died, outage, err := c.die(ctx, watched*p.term)
	if err != nil {
		return err
	}
	for k, i := range those {
		if contestants[i].library == module { // in the end, which is at once unless the machine is busy
			third := started[k][2]
			if err := third.await(ctx, "winning all that it joined", startup, all(third.Elections, led)); err != nil {
				results[i].waits = true
			}
		}
	}
	for k, i := range those {
		results[i].outage = outage
		started[k].kill()
		started[k].judge(died, results[i])
	}
	return nil
}

// trio is a process that leads, one that stands by, and one that joins further elections, one
// after the other, in which nobody else takes part.
type trio [3]*process

func (m measurement) two(ctx context.Context, p *trio) (err error) {
	p[0], p[1], err = m.pair(ctx, sceneStore)
	return err
}

func (m measurement) third(ctx context.Context, p *trio) (err error) {
	m.elections = joinFor * joinsEachTerm
	if p[2], err = m.start(ctx, sceneStore+"-new", "c", joinFor*m.term); err != nil {
		return err
	}
	return p[2].await(ctx, "leading", 2*m.term+startup, func(events []event) bool { return count(events, led) > 0 })
}

func (p trio) kill() {
	for _, each := range p {
		if each != nil {
			each.kill()
		}
	}
}

// judge says what happened from the server's death on.
func (p trio) judge(died time.Time, r *failover) {
	var events [3][]event
	for i := range p {
		events[i], _ = p[i].look()
	}
	died, end := died.Round(0), p[0].killed.Round(0)
	for i := range r.elections {
		was, is := spans(events[0], i, told, end), spans(events[1], i, told, end)
		if slices.ContainsFunc(was, func(s span) bool { return s.to.After(died) && s.to.Before(end) }) {
			r.lost++
		}
		r.vacant = append(r.vacant, end.Sub(died)-covered(append(was, is...), died, end))
		r.over.told = append(r.over.told, overlap(was, is))
		r.over.asked = append(r.over.asked, overlap(spans(events[0], i, asked, end), spans(events[1], i, asked, end)))
	}
	n := p[2].Elections
	won := at(events[2], n, led)
	for i, from := range at(events[2], n, joined) {
		to := won[i]
		if from.IsZero() || from.After(end) {
			continue
		}
		if to.IsZero() {
			to, r.waits = end, true
		}
		if to.After(died) {
			r.wait = max(r.wait, to.Sub(from))
		}
	}
}

// covered is how much of the time between two instants lies in at least one of the spans.
func covered(s []span, from, to time.Time) (sum time.Duration) {
	slices.SortFunc(s, func(a, b span) int { return a.from.Compare(b.from) })
	for _, x := range s {
		if x.from.Before(from) {
			x.from = from
		}
		if x.to.After(to) {
			x.to = to
		}
		if x.to.After(x.from) {
			sum += x.to.Sub(x.from)
			from = x.to
		}
	}
	return sum
}

// waited is for how long nothing new could be won.
func (r *failover) waited() string {
	if r.waits {
		return fmt.Sprintf("over %.0f", r.wait.Seconds())
	}
	return fmt.Sprintf("%.1f", r.wait.Seconds())
}
