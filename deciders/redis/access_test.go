package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// documented are the words of the ACL command in the package's documentation, with
// two keys in place of the example's.
func documented(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "ACL SETUSER candidate ")
	command, _, ended := strings.Cut(rest, "\n//\n")
	if !found || !ended {
		t.Fatal("doc.go has no ACL command")
	}
	return strings.Fields(strings.NewReplacer(
		"\\\n//", "", "~election:web", "~k ~k2", "&leaderelection:election:web", "&leaderelection:k &leaderelection:k2",
	).Replace(command))
}

// grant makes a user of these rights.
func grant(t *testing.T, server *stores.RedisServer, rights []string) {
	t.Helper()
	server.Ask(t, "ACL SETUSER candidate reset "+strings.Join(rights, " "))
}

// work does all that a candidate or an observer does, and returns what is refused.
func work(t *testing.T, server *stores.RedisServer, candidate bool, opts redis.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	admin, c := client(t, server.Addr), goredis.NewClient(&goredis.Options{
		Addr: server.Addr, Username: "candidate", Password: "secret", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer c.Close()
	if err := admin.Del(ctx, "k", "k2").Err(); err != nil {
		return err
	}
	opts.Feeds, opts.FeedSilence = new(redis.Feeds), 50*time.Millisecond
	second := redis.NewDecider(c, "k2", &opts)
	ended := make(chan error, 1)
	stop, leave := context.WithCancel(ctx)
	defer leave()
	begun := make(chan struct{})
	go func() { // which shares the connection, and leaves it
		var failure error
		for _, err := range second.Changes(stop) {
			failure = err
			if err == nil {
				close(begun)
			}
		}
		ended <- failure
	}()
	select {
	case <-begun:
	case err := <-ended:
		leave()
		return err
	}
	d, writer := redis.NewDecider(c, "k", &opts), redis.NewDecider(admin, "k", nil)
	if candidate {
		writer = redis.NewDecider(c, "k", &opts)
	}
	quiet := time.NewTimer(4 * opts.FeedSilence)
	defer quiet.Stop()
	number := uint64(0)
	for e, err := range d.Changes(ctx) {
		if err != nil {
			return err
		}
		switch number++; number {
		case 1:
			leave()
			if err := <-ended; err != nil {
				return err
			}
			<-quiet.C // it asks whether the server is there
		case 3:
			return ctx.Err()
		}
		if _, err := writer.WriteEntry(ctx, feedtest.State(number, e.Token)); err != nil {
			return err
		}
	}
	return errors.New("the feed ended")
}

// The permissions that the documentation names are enough, and each of them is
// needed.
func TestDocumentedPermissions(t *testing.T) {
	server := stores.Redis(t)
	stores.RedisReplica(t, server)
	server.Ask(t, "CONFIG SET acllog-max-len 0")
	all := documented(t)
	onlyWrites := []string{"+time", "+hset", "+persist", "+publish"} // the last four, says the documentation
	if !slices.Equal(all[len(all)-4:], onlyWrites) {
		t.Errorf("the documentation's last four are %v", all[len(all)-4:])
	}
	for name, c := range map[string]struct {
		rights    []string
		candidate bool
		opts      redis.Options
	}{
		"candidate":              {all, true, redis.Options{}},
		"candidate with replica": {append(slices.Clone(all), "+wait"), true, redis.Options{WaitReplicas: 1, WaitTimeout: 2 * time.Second}},
		"observer":               {all[:len(all)-4], false, redis.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			grant(t, server, c.rights)
			if err := work(t, server, c.candidate, c.opts); err != nil {
				t.Fatalf("with all that is documented: %v", err)
			}
			for i, word := range c.rights {
				if !strings.HasPrefix(word, "+") {
					continue
				}
				grant(t, server, slices.Delete(slices.Clone(c.rights), i, i+1))
				err := work(t, server, c.candidate, c.opts)
				feedtest.Permanent(t, err)
			}
		})
	}
}

// In a database of another number, and in a Cluster, they need what is documented
// besides.
func TestDocumentedPermissionsElsewhere(t *testing.T) {
	server := stores.Redis(t)
	for _, more := range []string{"", "+select"} {
		grant(t, server, append(documented(t), more))
		d := opened(t, "redis://candidate:secret@"+server.Addr+"/3?key=k")
		_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
		if more == "" {
			feedtest.Denied(t, err, `"k"`, "ACL")
		} else if err != nil {
			t.Error(err)
		}
	}
	nodes := stores.RedisCluster(t, 2)
	for _, more := range []string{"", "+cluster"} {
		for _, n := range nodes {
			grant(t, n, append(documented(t), more))
		}
		d := opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k&cluster=true", nodes[0].Addr))
		_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
		if more == "" {
			feedtest.Denied(t, err, `"k"`, "ACL")
		} else if err != nil {
			t.Error(err)
		}
	}
}
