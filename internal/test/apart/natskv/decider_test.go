package natskv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// model is a record as it is in the bucket, for a key that is made by hand.
func model(t *testing.T, js jetstream.JetStream, kv jetstream.KeyValue) []byte {
	t.Helper()
	feedtest.Write(t, natskv.NewDecider(js, bucket, "model", nil), 5, nil)
	e, err := kv.Get(t.Context(), "model")
	if err != nil {
		t.Fatal(err)
	}
	return e.Value()
}

func markers(c *jetstream.KeyValueConfig) { c.LimitMarkerTTL = time.Hour }

// A key that is gone, in whatever way, is an empty election, and its next record
// is conditional on the marker that was left.
func TestDeletedKeyIsAnEmptyElection(t *testing.T) {
	_, js, kv := inBucket(t, markers)
	record := model(t, js, kv)
	for name, remove := range map[string]func() error{
		"deleted": func() error { return kv.Delete(t.Context(), "deleted") },
		"purged":  func() error { return kv.Purge(t.Context(), "purged") },
		"expired": func() error { return nil }, // of itself
	} {
		t.Run(name, func(t *testing.T) {
			var ttl []jetstream.KVCreateOpt
			if name == "expired" {
				ttl = append(ttl, jetstream.KeyTTL(time.Second)) // by hand: no decider does that
			}
			if _, err := kv.Create(t.Context(), name, record, ttl...); err != nil {
				t.Fatal(err)
			}
			d := natskv.NewDecider(js, bucket, name, nil)
			feed := feedtest.Follow(t, d)
			held := feedtest.Number(t, feed, 5)
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			pushed, read := feedtest.Number(t, feed, 0), feedtest.Read(t, d)
			for what, e := range map[string]*leaderelection.RaceEntry{"pushed": pushed, "read": read} {
				if !e.Vacant() || !e.Emptied || e.ElectionNumber != leaderelection.NoElections || time.Since(e.Token.CommitTS()).Abs() > time.Minute {
					t.Fatalf("%s: %+v", what, e)
				}
			}
			feedtest.Number(t, feedtest.Follow(t, d), 0)
			loses(t, d, held.Token)
			feedtest.Write(t, d, 1, pushed.Token)
			loses(t, d, read.Token) // it creates once
			loses(t, d, nil)
		})
	}
}

// Also nil, which says that there must be no record, creates after a deletion;
// and when the markers are cleared away a token of theirs is void.
func TestCreateAfterDeletion(t *testing.T) {
	d, _, kv := inBucket(t)
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
	d, js, kv := inBucket(t, markers)
	if _, err := kv.Create(t.Context(), key, model(t, js, kv), jetstream.KeyTTL(time.Hour)); err != nil {
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
	feedtest.Write(t, d, 6, feedtest.Read(t, d).Token)
	if v := ttl(); v != "" {
		t.Errorf("it has a TTL still: %s", v)
	}
}

// A feed ends with an error, and soon, when it can bring no more news.
func TestFeedNoticesItsDeath(t *testing.T) {
	stores.Nightly(t, "what clients wait for")
	for name, kill := range map[string]func(t *testing.T, s *inProcess, js jetstream.JetStream){
		"server gone": func(_ *testing.T, s *inProcess, _ jetstream.JetStream) { s.Stop() },
		"consumer deleted": func(t *testing.T, _ *inProcess, js jetstream.JetStream) {
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
		"bucket deleted": func(t *testing.T, _ *inProcess, js jetstream.JetStream) {
			if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
				t.Fatal(err)
			}
		},
		"connection closed": func(_ *testing.T, _ *inProcess, js jetstream.JetStream) { js.Conn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			js := s.client(t)
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
	s := startServer(t)
	js := s.client(t)
	makeBucket(t, js)
	other := natskv.NewDecider(s.client(t), bucket, key, nil)
	for range 5 {
		feed := feedtest.Follow(t, natskv.NewDecider(js, bucket, key, nil))
		begun := feedtest.Next(t, feed)
		if begun.Err != nil {
			t.Fatal(begun.Err)
		}
		token, last := begun.Token, begun.ElectionNumber+20
		if err := js.Conn().ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		for number := begun.ElectionNumber + 1; number <= last; number++ {
			token = feedtest.Write(t, other, uint64(number), token)
		}
		for n := begun; n.Err == nil && n.ElectionNumber < last; n = feedtest.Next(t, feed) {
		}
		feedtest.Eventually(t, "it is connected again", js.Conn().IsConnected)
	}
}

// Buckets that cannot keep an election are refused before anything is written.
func TestUnfitBucket(t *testing.T) {
	s := startServer(t)
	js := s.client(t)
	makeBucket(t, js)
	for name, c := range map[string]jetstream.KeyValueConfig{
		"ttl-of-a-minute": {TTL: time.Minute},
		"ttl-of-a-year":   {TTL: 365 * 24 * time.Hour},
		"mirror":          {Mirror: &jetstream.StreamSource{Name: bucket}},
		"sources":         {Sources: []*jetstream.StreamSource{{Name: bucket}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Bucket = name
			kv, err := js.CreateKeyValue(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			feedtest.Refuses(t, natskv.NewDecider(js, name, key, nil), name, key, "use")
			if status, err := kv.Status(t.Context()); err != nil || status.Values() > 0 {
				t.Errorf("something was written: %+v, %v", status, err)
			}
			if c.Bucket = name + "-new"; c.Mirror != nil { // nor are they made
				c.Mirror.Name = bucket
			}
			feedtest.Refuses(t, natskv.NewDecider(js, c.Bucket, key, &natskv.Options{Create: &c}), c.Bucket, key, "Options.Create")
			if _, err := js.KeyValue(t.Context(), c.Bucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
				t.Errorf("it was made: %v", err)
			}
		})
	}
}

// Streams made by hand under a bucket's name, by which a record could vanish, or
// could not be kept or confirmed.
func TestUnfitStream(t *testing.T) {
	js := startServer(t).client(t)
	for name, c := range map[string]jetstream.StreamConfig{
		"interest":  {Retention: jetstream.InterestPolicy, MaxMsgsPerSubject: 1},
		"discards":  {MaxMsgsPerSubject: 1, MaxMsgs: 3},
		"async":     {MaxMsgsPerSubject: 1, PersistMode: jetstream.AsyncPersistMode},
		"no-bucket": {},
		"no-ack":    {MaxMsgsPerSubject: 1, NoAck: true},
		"new-only":  {MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true},
		"moves":     {MaxMsgsPerSubject: 1, SubjectTransform: &jetstream.SubjectTransformConfig{Source: "$KV.moves.>", Destination: "elsewhere.>"}},
		"counts":    {MaxMsgsPerSubject: 1, AllowMsgCounter: true},
		"sealed":    {MaxMsgsPerSubject: 1, Sealed: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.Name, c.Subjects = "KV_"+name, []string{"$KV." + name + ".>"}
			seal := c.Sealed // which only a stream that is there can be
			c.Sealed = false
			_, err := js.CreateStream(t.Context(), c)
			if c.Sealed = seal; seal && err == nil {
				_, err = js.UpdateStream(t.Context(), c)
			}
			if err != nil {
				t.Fatal(err)
			}
			feedtest.Refuses(t, natskv.NewDecider(js, name, key, nil), name, key, "bucket")
		})
	}
}

func TestWrongNames(t *testing.T) {
	_, js, _ := inBucket(t)
	for _, name := range []string{"", ".", "a.b", "a b", "a*", "a>", "é", "a/b"} {
		feedtest.Refuses(t, natskv.NewDecider(js, name, key, nil), name, key, "letters, digits")
	}
	for _, name := range []string{"", ".", "a..b", ".a", "a.", "a b", "*", ">", "a.*", "a.>", "é", "a\n"} {
		feedtest.Refuses(t, natskv.NewDecider(js, bucket, name, nil), bucket, "", "letters, digits")
	}
}

// A bucket that goes away under a decider is named as missing, once that has been
// seen, and found again when it is there.
func TestBucketDeletedMeanwhile(t *testing.T) {
	d, js, _ := inBucket(t)
	token := feedtest.Write(t, d, 1, nil)
	if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	if err := feedtest.WriteError(t, d, 2, token); err == nil || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v", err)
	}
	feedtest.Refuses(t, d, bucket, key, "nats kv add")
	makeBucket(t, js)
	feedtest.Reads(t, d, 0)
}

// What is not a record is left alone.
func TestForeignValue(t *testing.T) {
	d, _, kv := inBucket(t)
	feedtest.Write(t, d, 1, nil)
	for name, value := range feedtest.NoRecords() {
		t.Run(name, func(t *testing.T) {
			rev, err := kv.PutString(t.Context(), key, value)
			if err != nil {
				t.Fatal(err)
			}
			feedtest.Foreign(t, d, bucket, key, "cannot be used")
			if now, err := kv.Get(t.Context(), key); err != nil || now.Revision() != rev || string(now.Value()) != value {
				t.Errorf("it was overwritten: %v, %v", now, err)
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	d, _, _ := inBucket(t, func(c *jetstream.KeyValueConfig) { c.MaxValueSize = 1000 })
	e := feedtest.State(1, nil)
	e.ConnectionParams = make([]byte, 1000)
	_, err := d.WriteEntry(t.Context(), e)
	feedtest.Permanent(t, err, bucket, key, "ConnectionParams")
	feedtest.Write(t, d, 1, nil)
}

func TestTokenOfAnotherElection(t *testing.T) {
	d, js, kv := inBucket(t)
	other := natskv.NewDecider(js, bucket, "other", nil)
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, feedtest.Read(t, other).Token), bucket, key, "not read here")
	if status, err := kv.Status(t.Context()); err != nil || status.Values() > 0 {
		t.Errorf("something was written: %+v, %v", status, err)
	}
}

func TestNoJetStream(t *testing.T) {
	plain := startServer(t, func(o *server.Options) { o.JetStream = false })
	feedtest.Refuses(t, natskv.NewDecider(plain.client(t), bucket, key, nil), bucket, key, "enable JetStream")
	s := startServer(t, configured(t, `accounts {
		one  { jetstream: enabled, users: [{user: one, password: p}] }
		two  { jetstream: enabled, users: [{user: two, password: p}] }
		none { users: [{user: none, password: p}] }
	}`))
	makeBucket(t, s.client(t, nats.UserInfo("one", "p")))
	for user, says := range map[string]string{"none": "enable JetStream", "two": "nats kv add"} {
		feedtest.Refuses(t, natskv.NewDecider(s.client(t, nats.UserInfo(user, "p")), bucket, key, nil), bucket, key, says)
	}
}

// busy refuses so many writes as a replicated bucket does where the write before is
// still in process. (A real one does so to one in some hundred writes that follow each
// other at once.)
type busy struct {
	jetstream.JetStream
	refuse, asked int
}

func (b *busy) Publish(ctx context.Context, subject string, data []byte, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if b.asked++; b.asked <= b.refuse {
		return nil, fmt.Errorf("nats: %w", &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant, Description: "wrong last sequence"})
	}
	return b.JetStream.Publish(ctx, subject, data, o...)
}

// A bucket that is busy with the write before is asked again, a few times; the race is
// lost only if the record is another.
func TestBusyBucket(t *testing.T) {
	_, js, _ := inBucket(t)
	b := &busy{JetStream: js, refuse: 2}
	d := natskv.NewDecider(b, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	b.asked = 0
	next := feedtest.Write(t, d, 2, token)

	b.asked, b.refuse = 0, 1
	loses(t, d, token)
	if b.asked != 1 {
		t.Errorf("where the record is another, %d writes were tried", b.asked)
	}
	b.asked, b.refuse = 0, 1000
	loses(t, d, next)
	if b.asked < 2 || b.asked > 10 {
		t.Errorf("%d writes were tried on a bucket that stays busy", b.asked)
	}
}

// The settings of a bucket that may lose a confirmed write are warned of.
func TestDurability(t *testing.T) {
	one := startServer(t)
	_, three := cluster(t)
	for name, c := range map[string]struct {
		js     jetstream.JetStream
		config jetstream.KeyValueConfig
		words  []string
	}{
		"one":       {one.client(t), jetstream.KeyValueConfig{Storage: jetstream.FileStorage}, []string{"one replica", "sync_interval"}},
		"two":       {three(t), jetstream.KeyValueConfig{Replicas: 2, Storage: jetstream.FileStorage}, []string{"two replicas"}},
		"three":     {three(t), jetstream.KeyValueConfig{Replicas: 3, Storage: jetstream.FileStorage}, nil},
		"in_memory": {three(t), jetstream.KeyValueConfig{Replicas: 3, Storage: jetstream.MemoryStorage}, []string{"storage is memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := natskv.NewDecider(c.js, "durability-"+name, "e", &natskv.Options{Create: &c.config})
			feedtest.Eventually(t, "the bucket answers", func() bool { return feedtest.ReadError(t, d) == nil }) // a replicated one takes a moment
			feedtest.Examines(t, d, c.words...)
		})
	}
	d := natskv.NewDecider(one.client(t), "none", "e", nil)
	if _, err := d.Durability(t.Context()); err == nil {
		t.Error("a bucket that is not there was examined")
	}
}
