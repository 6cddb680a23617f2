package redis_test

import (
	"testing"

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
