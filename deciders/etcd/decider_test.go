package etcd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestConformance(t *testing.T) {
	decidertest.Run(t, elections(stores.Etcd(t).Endpoint), nil)
}

// A refusal tells who stood in the way, which saves the loser a read.
func TestLostRaceHasTheCurrentRecord(t *testing.T) {
	d := etcd.NewDecider(client(t, stores.Etcd(t).Endpoint), "k", nil)
	first := feedtest.Write(t, d, 1, nil)
	feedtest.Write(t, d, 2, first)
	for _, token := range []leaderelection.LeaderToken{nil, first} {
		_, err := d.WriteEntry(t.Context(), feedtest.State(9, token))
		var lost *leaderelection.LostRaceError
		if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 2 || !strings.Contains(lost.Place, `"k"`) {
			t.Errorf("with token %v: %v", token, err)
		}
	}
}

// What is at the key and no record of ours is reported, and left alone.
func TestForeignValueIsLeftAlone(t *testing.T) {
	c := client(t, stores.Etcd(t).Endpoint)
	for name, value := range feedtest.NoRecords() {
		t.Run(name, func(t *testing.T) {
			key := feedtest.Unique()
			if _, err := c.Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
			feedtest.Foreign(t, etcd.NewDecider(c, key, nil), key)
			if got, err := c.Get(t.Context(), key); err != nil || string(got.Kvs[0].Value) != value {
				t.Errorf("the key holds %v, %v", got, err)
			}
		})
	}
}

// A key that was deleted is an empty election; a token of its former life is void,
// even when there is a record again.
func TestDeletedKey(t *testing.T) {
	c := client(t, stores.Etcd(t).Endpoint)
	d := etcd.NewDecider(c, "k", nil)
	feed := feedtest.Follow(t, d)
	empty := feedtest.Next(t, feed)
	old := feedtest.Write(t, d, 1, empty.Token)
	feedtest.Next(t, feed)
	if _, err := c.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for what, e := range map[string]*leaderelection.RaceEntry{"pushed": feedtest.Next(t, feed).RaceEntry, "read": feedtest.Read(t, d)} {
		if e == nil || !e.Vacant() || e.ElectionNumber != leaderelection.NoElections {
			t.Errorf("%s after the deletion: %+v", what, e)
		}
	}
	var lost *leaderelection.LostRaceError
	if _, err := d.WriteEntry(t.Context(), feedtest.State(9, old)); !errors.As(err, &lost) || lost.Current == nil || !lost.Current.Vacant() {
		t.Errorf("with the deleted version's token: %v", err)
	}
	feedtest.Write(t, d, 1, lost.Current.Token)
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, old))
}

func TestNoName(t *testing.T) {
	feedtest.Refuses(t, etcd.NewDecider(client(t, "127.0.0.1:1"), "", nil), "name")
}

// With the server gone every call returns when its ctx ends, and says what may be
// wrong.
func TestNoServer(t *testing.T) {
	d := etcd.NewDecider(client(t, "127.0.0.1:1"), "k", nil)
	feedtest.TimesOut(t, 200*time.Millisecond, d, nil, `"k"`, "endpoints")
	begin := time.Now()
	n := feedtest.Next(t, feedtest.Follow(t, d))
	if n.Err == nil || errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed yields %+v", n)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the feed failed after %v", took)
	}
}

func TestClosedClient(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	c := client(t, stores.Etcd(t).Endpoint)
	d := etcd.NewDecider(c, "k", nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := feedtest.Next(t, feed); n.Err == nil {
		t.Errorf("the feed yields %+v", n)
	}
	_, err := d.ReadCurrent(t.Context())
	feedtest.Permanent(t, err, "closed")
	if err := d.Close(); err != nil {
		t.Errorf("Close of a decider that owns nothing: %v", err)
	}
}

// A bare number counts nanoseconds: nobody means so few.
func TestBareNumbers(t *testing.T) {
	feedtest.Refuses(t, etcd.NewDecider(client(t, "127.0.0.1:1"), "one", &etcd.Options{FeedGrace: 10}), "nanoseconds")
}
