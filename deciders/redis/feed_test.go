package redis_test

import (
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

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

// subscribers waits until so many connections subscribe.
func subscribers(t *testing.T, server *stores.RedisServer, want int) {
	t.Helper()
	feedtest.Eventually(t, fmt.Sprint(want, " connections subscribe"), func() bool { // the server notices an end when it pleases
		return strings.Count(server.Ask(t, "CLIENT LIST TYPE pubsub"), "id=") == want
	})
}

// The feeds of many elections have one connection, on which they are apart; it
// breaks for all of them, and ends with the last.
func TestFeedsShareAConnection(t *testing.T) {
	server := stores.Redis(t)
	c := client(t, server.Addr)
	shared := new(redis.Feeds)
	const n = 30
	follow := func() (elections []*redis.Decider, feeds []<-chan feedtest.Item) {
		for i := range n {
			d := redis.NewDecider(c, fmt.Sprint("k", i), &redis.Options{Feeds: shared})
			elections, feeds = append(elections, d), append(feeds, feedtest.Follow(t, d))
		}
		for i, feed := range feeds {
			if first := feedtest.Next(t, feed); first.Err != nil {
				t.Fatalf("election %d: %v", i, first.Err)
			}
		}
		return elections, feeds
	}
	elections, feeds := follow()
	subscribers(t, server, 1)
	for i, d := range elections {
		token := feedtest.Write(t, d, uint64(i+1), nil)
		if e := feedtest.Next(t, feeds[i]); e.Err != nil || e.Token != token {
			t.Fatalf("election %d: %+v", i, e)
		}
	}
	for i, feed := range feeds {
		select {
		case e := <-feed:
			t.Errorf("election %d hears of another's: %+v", i, e)
		default:
		}
	}
	server.Ask(t, "CLIENT KILL TYPE pubsub")
	for _, feed := range feeds {
		feedtest.Passing(t, feedtest.Next(t, feed).Err, `"k`)
	}
	subscribers(t, server, 0)
	follow()
	subscribers(t, server, 1)
}

// One that leaves, and comes back, disturbs nobody.
func TestFeedsComeAndGo(t *testing.T) {
	server := stores.Redis(t)
	c := client(t, server.Addr)
	shared := new(redis.Feeds)
	stays := redis.NewDecider(c, "stays", &redis.Options{Feeds: shared})
	goes := redis.NewDecider(c, "goes", &redis.Options{Feeds: shared})
	feed := feedtest.Follow(t, stays)
	feedtest.Next(t, feed)
	var token leaderelection.LeaderToken
	for number := range uint64(50) {
		for _, err := range goes.Changes(t.Context()) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		token = feedtest.Write(t, stays, number+1, token)
		if e := feedtest.Next(t, feed); e.Err != nil || e.Token != token {
			t.Fatalf("%+v", e)
		}
	}
	subscribers(t, server, 1)
}

// A client of a type that cannot be compared has connections of its own.
func TestFeedsOfAnUncommonClient(t *testing.T) {
	type odd struct {
		goredis.UniversalClient
		_ []int
	}
	server := stores.Redis(t)
	d := redis.NewDecider(odd{UniversalClient: client(t, server.Addr)}, "k", &redis.Options{Feeds: new(redis.Feeds)})
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	token := feedtest.Write(t, d, 1, nil)
	if e := feedtest.Next(t, feed); e.Err != nil || e.Token != token {
		t.Errorf("%+v", e)
	}
}
