package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(silent{})
	proctest.Main(redis.Open)
	decidertest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return feedtest.Open(ctx, redis.Open, address)
	})
	goleak.VerifyTestMain(m)
}

// silent keeps the client from logging what the tests provoke.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// client returns a client as the documentation advises, closed at the end of the
// test.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// rd is Redis, for the tests that all stores have: a server that keeps what it confirms.
var rd = storetest.Store[*redis.Decider]{
	Open: redis.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := stores.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
		return s.Addr, s
	},
	Address: "redis://$addr?key=$election",
}

func TestConformance(t *testing.T) {
	addr := stores.Redis(t).Addr
	o := decidertest.Options{Address: func(d leaderelection.RaceDecider) string {
		var key string
		_, _ = fmt.Sscanf(d.(*redis.Decider).String(), "redis key %q", &key)
		return rd.At(addr, key)
	}}
	decidertest.Run(t, rd.Elections(addr), &o)
}

// With an answer from a replica for each write.
func TestConformanceWaitingForAReplica(t *testing.T) {
	server := stores.Redis(t)
	stores.RedisReplica(t, server)
	waiting := rd
	waiting.Address += "&wait_replicas=1&wait_timeout=2s"
	decidertest.Run(t, waiting.Elections(server.Addr), nil)
}

// Each key is on one of three masters, and the clients know of one of them only.
func TestConformanceCluster(t *testing.T) {
	first := stores.RedisCluster(t, 3)[0].Addr
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		key := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{first}, MaxRetries: -1, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = c.Close() })
			return redis.NewDecider(c, key, nil)
		}
	}, nil)
}

// What an operator sees.
func TestWhatIsWritten(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	d := redis.NewDecider(c, "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	all, err := c.HGetAll(t.Context(), "k").Result()
	if err != nil || len(all) != 2 || !strings.HasPrefix(all["record"], `{"leaderelection":1,"leader_id":"a",`) {
		t.Errorf("HGETALL: %v, %v", all, err)
	}
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if age := now.Sub(token.CommitTS()); age < 0 || age > 10*time.Second {
		t.Errorf("CommitTS is %v before the server's time", age)
	}
	if read := feedtest.Read(t, d).Token.CommitTS(); !read.Equal(token.CommitTS()) {
		t.Errorf("CommitTS is %v when written and %v when read", token.CommitTS(), read)
	}
}

// A write takes away an expiry that somebody has set.
func TestKeyNeverExpires(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	d := redis.NewDecider(c, "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	if err := c.Expire(t.Context(), "k", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	feedtest.Write(t, d, 2, token)
	if left, err := c.TTL(t.Context(), "k").Result(); err != nil || left != -1 {
		t.Errorf("TTL: %v, %v; want none", left, err)
	}
}

// Whatever becomes of the key, a version that is gone does not come back.
func TestOldVersionsStayVoid(t *testing.T) {
	for name, hook := range map[string]goredis.Hook{"as it is": nil, "with a clock that stands": standing{}} {
		t.Run(name, func(t *testing.T) {
			c := client(t, stores.Redis(t).Addr)
			if hook != nil {
				c.AddHook(hook)
			}
			d := redis.NewDecider(c, "k", nil)
			var old []leaderelection.LeaderToken
			for i, remove := range []func() error{
				func() error { return nil },
				func() error { return c.Del(t.Context(), "k").Err() },
				func() error { return c.FlushAll(t.Context()).Err() },
				func() error { return c.Rename(t.Context(), "k", "elsewhere").Err() },
			} {
				number := uint64(i + 1)
				old = append(old, feedtest.Write(t, d, number, feedtest.Read(t, d).Token))
				if err := remove(); err != nil {
					t.Fatal(err)
				}
				e := feedtest.Read(t, d)
				if i > 0 && (!e.Vacant() || e.ElectionNumber != leaderelection.NoElections) {
					t.Errorf("after the removal: %+v", e)
				}
				now := feedtest.Write(t, d, number, e.Token)
				for _, token := range old {
					if err := feedtest.WriteError(t, d, 99, token); !errors.Is(err, leaderelection.ErrLostRace) {
						t.Errorf("with the token %v, where %v is stored: %v", token, now, err)
					}
				}
				old = append(old, now)
			}
		})
	}
}

// standing makes the server's time stand still for the scripts that pass.
type standing struct{}

func (standing) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (standing) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (standing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if a := cmd.Args(); a[0] == "eval" {
			a[1] = strings.ReplaceAll(a[1].(string), "redis.call('TIME')", "{'1700000000', '0'}")
		}
		return next(ctx, cmd)
	}
}

// A refusal tells who stood in the way, which saves the loser a read.
func TestLostRaceHasTheCurrentRecord(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	d := redis.NewDecider(c, "k", nil)
	first := feedtest.Write(t, d, 1, nil)
	second := feedtest.Write(t, d, 2, first)
	var lost *leaderelection.LostRaceError
	for _, token := range []leaderelection.LeaderToken{nil, first} {
		_, err := d.WriteEntry(t.Context(), feedtest.State(9, token))
		if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 2 || !strings.Contains(lost.Place, `"k"`) {
			t.Errorf("with token %v: %v", token, err)
		}
	}
	if err := c.Del(t.Context(), "k").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := d.WriteEntry(t.Context(), feedtest.State(9, second))
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 0 || lost.Current.Token == nil {
		t.Errorf("after DEL: %v", err)
	}
	feedtest.Write(t, d, 3, lost.Current.Token)
}

// One request for a look, one for a write, whatever the server remembers of
// scripts.
func TestOneRequestEach(t *testing.T) {
	server := stores.Redis(t)
	c := client(t, server.Addr)
	d := redis.NewDecider(c, "k", nil)
	if err := c.Ping(t.Context()).Err(); err != nil { // connect
		t.Fatal(err)
	}
	before := requests(t, server)
	var token leaderelection.LeaderToken
	for number := range uint64(10) {
		token = feedtest.Write(t, d, number+1, token)
		feedtest.Read(t, d)
		if number == 5 {
			server.Ask(t, "SCRIPT FLUSH")
		}
	}
	if n := requests(t, server) - before; n != 20+1 {
		t.Errorf("10 writes, 10 reads and a SCRIPT FLUSH were %d requests", n)
	}
}

// The client obeys ctx at once, whatever it is doing, even if its own options
// would have it wait.
func TestCtxIsObeyed(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	server := stores.Redis(t)
	proxy := stores.NewRelay(t, server.Addr)
	c := goredis.NewClient(&goredis.Options{Addr: proxy.Addr, ReadTimeout: 2 * time.Second}) // as most have it
	defer c.Close()
	d := redis.NewDecider(c, "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	proxy.Cut()
	feedtest.TimesOut(t, 50*time.Millisecond, d, token, `"k"`)
	proxy.Heal()
}

func TestProcesses(t *testing.T)           { rd.Processes(t) }
func TestFaults(t *testing.T)              { rd.Faults(t) }
func TestAbandonedConnection(t *testing.T) { rd.Abandons(t, "") }

// However long writes hang, few connections of a candidate are open at the server.
func TestSessionsAreBounded(t *testing.T) {
	server := stores.Redis(t)
	storetest.Bounded(t, rd.Opened(t, rd.At(server.Addr, "k")), 4, func() func() {
		server.Ask(t, "CLIENT PAUSE 600000 WRITE")
		return func() { server.Ask(t, "CLIENT UNPAUSE") }
	}, func() int {
		return strings.Count(server.Ask(t, "CLIENT LIST"), "addr=127.") - 1 // less the one that asks
	})
}

// inner are the commands that scripts call, and the one by which this is asked:
// the server counts them, and they are no requests.
const inner = " hmget hget exists time hset persist publish info "

// requests is how many requests the server has had.
func requests(t testing.TB, server *stores.RedisServer) (n int) {
	t.Helper()
	for line := range strings.Lines(server.Ask(t, "INFO commandstats")) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		var calls int
		if _, err := fmt.Sscanf(rest, "calls=%d", &calls); err == nil && !strings.Contains(inner, " "+name+" ") {
			n += calls
		}
	}
	return n
}

// Of all processes that run this, one at a time does the job.
func Example() {
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true}) // of a server with appendfsync always
	defer client.Close()
	config := leaderelection.Config{Decider: redis.NewDecider(client, "election:nightly", nil), LeaderID: "web-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

func TestHandover(t *testing.T) {
	feedtest.Handover(t, rd.Elections(stores.Redis(t).Addr))
}

func TestIdle(t *testing.T) {
	server := stores.Redis(t)
	feedtest.Idle(t, rd.Elections(server.Addr), func() int { return requests(t, server) })
}

func TestNews(t *testing.T) {
	rd.News(t, func(addr string) {
		if _, err := stores.AskRedis(t.Context(), addr, "CLIENT KILL TYPE pubsub"); err != nil {
			t.Error(err)
		}
	})
}

func TestOutage(t *testing.T) { rd.Outage(t) }

func TestSilence(t *testing.T) { rd.Silence(t, "PING") }

// What others publish on the channel is at most a reason to look.
func TestForeignMessages(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	d := redis.NewDecider(c, "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	for _, text := range []string{"", "hello", "17-x-1", "17-x-1\n", "17-x-1\n{}", "\n\n\n", "17-x-1\n" + "{\"leaderelection\":1}"} {
		if err := c.Publish(t.Context(), "leaderelection:k", text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	feedtest.Write(t, d, 2, token)
	feedtest.Number(t, feed, 2)
}

// Two elections with one key in two databases share a channel, unless they are
// told not to; what comes from the other one does no harm.
func TestDatabasesShareChannels(t *testing.T) {
	server := stores.Redis(t)
	zero := rd.Opened(t, "redis://"+server.Addr+"/0?key=k")
	one := rd.Opened(t, "redis://"+server.Addr+"/1?key=k&channel=one")
	feeds := []<-chan feedtest.Item{feedtest.Follow(t, zero), feedtest.Follow(t, one)}
	for _, feed := range feeds {
		feedtest.Next(t, feed)
	}
	feedtest.Write(t, one, 5, nil)
	feedtest.Write(t, zero, 3, nil)
	for i, want := range []leaderelection.ElectionNumber{3, 5} {
		if n := feedtest.Next(t, feeds[i]); n.Err != nil || n.ElectionNumber != want {
			t.Errorf("database %d: %+v", i, n)
		}
	}
}
