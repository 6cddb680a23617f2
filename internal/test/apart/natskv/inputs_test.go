package natskv_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Buckets that cannot keep an election are refused before anything is written.
func TestUnfitBucket(t *testing.T) {
	s := natstest.Start(t)
	js := s.JetStream(t)
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
			c.Bucket = "" // nor are they made
			if c.Bucket = name + "-new"; c.Mirror != nil {
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
	js := natstest.Start(t).JetStream(t)
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
	js := natstest.Start(t).JetStream(t)
	makeBucket(t, js)
	for _, name := range []string{"", ".", "a.b", "a b", "a*", "a>", "é", "a/b"} {
		feedtest.Refuses(t, natskv.NewDecider(js, name, key, nil), name, key, "letters, digits")
	}
	for _, name := range []string{"", ".", "a..b", ".a", "a.", "a b", "*", ">", "a.*", "a.>", "é", "a\n"} {
		feedtest.Refuses(t, natskv.NewDecider(js, bucket, name, nil), bucket, "", "letters, digits")
	}
}

func TestMissingBucket(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	feedtest.Refuses(t, natskv.NewDecider(js, bucket, key, nil), bucket, key, "nats kv add")
}

// A bucket that goes away under a decider is named as missing, once that has been
// seen, and found again when it is there.
func TestBucketDeletedMeanwhile(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteEntry(t.Context(), feedtest.State(2, token)); err == nil || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v", err)
	}
	feedtest.Refuses(t, d, bucket, key, "nats kv add")
	makeBucket(t, js)
	if e := feedtest.Read(t, d); !e.Vacant() || e.ElectionNumber != leaderelection.NoElections {
		t.Errorf("read %+v", e)
	}
}

// What is not a record is left alone.
func TestForeignValue(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	kv := makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
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
	js := natstest.Start(t).JetStream(t)
	makeBucket(t, js, func(c *jetstream.KeyValueConfig) { c.MaxValueSize = 1000 })
	d := natskv.NewDecider(js, bucket, key, nil)
	e := feedtest.State(1, nil)
	e.ConnectionParams = make([]byte, 1000)
	_, err := d.WriteEntry(t.Context(), e)
	feedtest.Permanent(t, err, bucket, key, "ConnectionParams")
	feedtest.Write(t, d, 1, nil)
}

func TestTokenOfAnotherElection(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	kv := makeBucket(t, js)
	other := natskv.NewDecider(js, bucket, "other", nil)
	d := natskv.NewDecider(js, bucket, key, nil)
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, feedtest.Read(t, other).Token))
	feedtest.Permanent(t, err, bucket, key, "not read here")
	if status, err := kv.Status(t.Context()); err != nil || status.Values() > 0 {
		t.Errorf("something was written: %+v, %v", status, err)
	}
}

func TestNoJetStream(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		s := natstest.Start(t, func(o *server.Options) { o.JetStream = false })
		feedtest.Refuses(t, natskv.NewDecider(s.JetStream(t), bucket, key, nil), bucket, key, "enable JetStream")
	})
	t.Run("account", func(t *testing.T) {
		s := natstest.Start(t, configured(t, `accounts {
			with    { jetstream: enabled, users: [{user: w, password: p}] }
			without { users: [{user: o, password: p}] }
		}`))
		makeBucket(t, s.JetStream(t, nats.UserInfo("w", "p")))
		feedtest.Refuses(t, natskv.NewDecider(s.JetStream(t, nats.UserInfo("o", "p")), bucket, key, nil), bucket, key, "enable JetStream")
	})
	t.Run("bucket of another account", func(t *testing.T) {
		s := natstest.Start(t, configured(t, `accounts {
			one { jetstream: enabled, users: [{user: one, password: p}] }
			two { jetstream: enabled, users: [{user: two, password: p}] }
		}`))
		makeBucket(t, s.JetStream(t, nats.UserInfo("one", "p")))
		feedtest.Refuses(t, natskv.NewDecider(s.JetStream(t, nats.UserInfo("two", "p")), bucket, key, nil), bucket, key, "nats kv add")
	})
}

func TestClosedConnection(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	makeBucket(t, js)
	js.Conn().Close()
	feedtest.Refuses(t, natskv.NewDecider(js, bucket, key, nil), bucket, key, "ConnectOptions")
}

// configured reads a server's options from a configuration file's text.
func configured(t testing.TB, text string) func(*server.Options) {
	return func(o *server.Options) {
		if err := o.ProcessConfigString(text); err != nil {
			t.Fatal(err)
		}
	}
}
