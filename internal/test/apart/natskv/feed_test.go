package natskv_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A key that is gone, in whatever way, is an empty election, and its next record
// is conditional on the marker that was left.
func TestDeletedKeyIsAnEmptyElection(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	kv := makeBucket(t, js, func(c *jetstream.KeyValueConfig) { c.LimitMarkerTTL = time.Hour })
	feedtest.Write(t, natskv.NewDecider(js, bucket, "model", nil), 5, nil)
	model, err := kv.Get(t.Context(), "model")
	if err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(t *testing.T) error{
		"deleted": func(t *testing.T) error { return kv.Delete(t.Context(), "deleted") },
		"purged":  func(t *testing.T) error { return kv.Purge(t.Context(), "purged") },
		"expired": func(t *testing.T) error { // of itself
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ttl []jetstream.KVCreateOpt
			if name == "expired" {
				ttl = append(ttl, jetstream.KeyTTL(time.Second)) // by hand: no decider does that
			}
			if _, err := kv.Create(t.Context(), name, model.Value(), ttl...); err != nil {
				t.Fatal(err)
			}
			d := natskv.NewDecider(js, bucket, name, nil)
			feed := feedtest.Follow(t, d)
			held := feedtest.Next(t, feed)
			if held.Err != nil || held.Vacant() {
				t.Fatalf("the feed begins with %+v", held)
			}
			if err := remove(t); err != nil {
				t.Fatal(err)
			}
			pushed := feedtest.Next(t, feed)
			if pushed.Err != nil || !pushed.Vacant() || !pushed.Emptied || pushed.ElectionNumber != leaderelection.NoElections {
				t.Fatalf("pushed: %+v", pushed)
			}
			e := feedtest.Read(t, d)
			if !e.Vacant() || !e.Emptied || e.ElectionNumber != leaderelection.NoElections {
				t.Fatalf("read: %+v", e)
			}
			for _, token := range []leaderelection.LeaderToken{e.Token, pushed.Token} {
				if age := time.Since(token.CommitTS()); age.Abs() > time.Minute {
					t.Errorf("CommitTS of the marker is %v ago", age)
				}
			}
			again := feedtest.Follow(t, d)
			if n := feedtest.Next(t, again); n.Err != nil || !n.Vacant() {
				t.Errorf("a new feed begins with %+v", n)
			}
			loses(t, d, held.Token)
			feedtest.Write(t, d, 1, pushed.Token)
			loses(t, d, e.Token) // it creates once
			loses(t, d, nil)
		})
	}
}

// Also nil, which says that there must be no record, creates after a deletion;
// and when the markers are cleared away a token of theirs is void.
func TestCreateAfterDeletion(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	kv := makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	for range 2 {
		feedtest.Write(t, d, 1, nil)
		if err := kv.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	marker := feedtest.Read(t, d).Token
	if err := kv.PurgeDeletes(t.Context(), jetstream.DeleteMarkersOlderThan(-1)); err != nil {
		t.Fatal(err)
	}
	loses(t, d, marker)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
}

// A TTL that somebody has given the key by hand goes with the next write.
func TestWriteDropsTheKeysTTL(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	kv := makeBucket(t, js, func(c *jetstream.KeyValueConfig) { c.LimitMarkerTTL = time.Hour })
	feedtest.Write(t, natskv.NewDecider(js, bucket, "model", nil), 1, nil)
	model, err := kv.Get(t.Context(), "model")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), key, model.Value(), jetstream.KeyTTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ttl := func() string {
		s, err := js.Stream(t.Context(), "KV_"+bucket)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.GetLastMsgForSubject(t.Context(), "$KV."+bucket+"."+key)
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get(jetstream.MsgTTLHeader)
	}
	if ttl() == "" {
		t.Fatal("the key was to have a TTL")
	}
	d := natskv.NewDecider(js, bucket, key, nil)
	feedtest.Write(t, d, 2, feedtest.Read(t, d).Token)
	if v := ttl(); v != "" {
		t.Errorf("it has a TTL still: %s", v)
	}
}

// A feed ends with an error, and soon, when it can bring no more news.
func TestFeedNoticesItsDeath(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	for name, kill := range map[string]func(t *testing.T, s *natstest.Server, js jetstream.JetStream){
		"server gone": func(_ *testing.T, s *natstest.Server, _ jetstream.JetStream) { s.Stop() },
		"consumer deleted": func(t *testing.T, _ *natstest.Server, js jetstream.JetStream) {
			s, err := js.Stream(t.Context(), "KV_"+bucket)
			if err != nil {
				t.Fatal(err)
			}
			for name := range s.ConsumerNames(t.Context()).Name() {
				if err := s.DeleteConsumer(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		},
		"bucket deleted": func(t *testing.T, _ *natstest.Server, js jetstream.JetStream) {
			if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
				t.Fatal(err)
			}
		},
		"connection closed": func(_ *testing.T, _ *natstest.Server, js jetstream.JetStream) { js.Conn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			js := s.JetStream(t)
			makeBucket(t, js)
			feed := feedtest.Follow(t, natskv.NewDecider(js, bucket, key, nil))
			feedtest.Next(t, feed)
			begin := time.Now()
			kill(t, s, js)
			n := feedtest.Next(t, feed)
			if n.Err == nil || n.RaceEntry != nil || !strings.Contains(n.Err.Error(), bucket) {
				t.Errorf("the feed yields %+v", n)
			}
			t.Logf("noticed after %v: %v", time.Since(begin).Round(time.Millisecond), n.Err)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

// A connection that is lost and soon restored need not end a feed: what was
// written meanwhile comes, or the feed ends.
func TestFeedOverReconnect(t *testing.T) {
	s := natstest.Start(t)
	js := s.JetStream(t)
	makeBucket(t, js)
	other := natskv.NewDecider(s.JetStream(t), bucket, key, nil)
	var ended int
	for range 5 {
		t.Run("reconnect", func(t *testing.T) {
			feed := feedtest.Follow(t, natskv.NewDecider(js, bucket, key, nil))
			begun := feedtest.Next(t, feed)
			if begun.Err != nil {
				t.Fatal(begun.Err)
			}
			token := begun.Token
			if err := js.Conn().ForceReconnect(); err != nil {
				t.Fatal(err)
			}
			last := begun.ElectionNumber + 20
			for number := begun.ElectionNumber + 1; number <= last; number++ {
				token = feedtest.Write(t, other, uint64(number), token)
			}
			for n := feedtest.Next(t, feed); n.Err != nil || n.ElectionNumber < last; n = feedtest.Next(t, feed) {
				if n.Err != nil {
					t.Logf("it ended: %v", n.Err)
					ended++
					break
				}
			}
			for !js.Conn().IsConnected() {
				if err := js.Conn().FlushTimeout(time.Second); err != nil {
					t.Logf("flush: %v", err)
				}
			}
		})
	}
	t.Logf("%d of 5 feeds ended", ended)
}
