package mongodb_test

// What mongod 4.4 did with this package on 2026-11-27, one test for each fault that it showed. The
// imitation does the same.

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// A write that is on the primary, and not yet on a majority, when the feed is opened is not missed: the
// change stream begins after it, so the feed's first read must show it.
func TestFeedBeginsDuringAWrite(t *testing.T) {
	s, d := imitated(t)
	other := web(t, s.uri())
	token := feedtest.Write(t, d, 1, nil)
	s.hold()
	written := make(chan leaderelection.LeaderToken, 1)
	go func() { written <- feedtest.Write(t, d, 2, token) }()
	s.awaitWaiting(1)
	feed := feedtest.Follow(t, other)
	feedtest.Eventually(t, "the feed reads", func() bool { return s.count("aggregate") == 1 && s.count("find") == 1 })
	s.release()
	for {
		e := feedtest.Next(t, feed)
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		if e.ElectionNumber == 2 {
			break
		}
	}
	feedtest.Write(t, d, 3, <-written)
	feedtest.Number(t, feed, 3)
}

// A feed that begins while the primary cannot reach its majority says nothing old.
func TestFeedBeginsWithoutTheMajority(t *testing.T) {
	s, d := imitated(t)
	token := feedtest.Write(t, d, 1, nil)
	s.hold()
	if _, err := d.WriteEntry(storetest.Within(t, 300*time.Millisecond), feedtest.State(2, token)); err == nil {
		t.Fatal("a write without the majority works")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	for e, err := range d.Changes(ctx) {
		t.Errorf("the feed yields %+v, %v", e, err)
	}
	feedtest.Reads(t, d, 1) // no majority has more
}

// The read and write concerns of a client do not matter. MongoDB refuses a change stream with any
// read concern but majority.
func TestClientsOwnConcerns(t *testing.T) {
	for _, level := range []string{"local", "linearizable"} {
		d := web(t, imitate(t).uri()+"&w=1&journal=false&readConcernLevel="+level)
		feed := feedtest.Follow(t, d)
		feedtest.Number(t, feed, 0)
		feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
		feedtest.Number(t, feed, 1)
	}
}

// A collection whose collation ignores case takes two elections for one document. The second fails, with an
// error that says so, and does not touch the first one's record.
func TestCollationFoldsElections(t *testing.T) {
	s := imitate(t)
	s.folds = true
	job := decider(t, s.uri(), "job", nil)
	shout := decider(t, s.uri(), "JOB", nil)
	feedtest.Write(t, shout, 1, feedtest.Read(t, shout).Token) // it is alone
	s.with(func() { delete(s.docs[collection], "JOB") })
	token := feedtest.Write(t, job, 1, nil)
	feedtest.Permanent(t, feedtest.ReadError(t, shout), `"JOB"`, `"job"`, "collation")
	feedtest.Permanent(t, feedtest.Next(t, feedtest.Follow(t, shout)).Err, "collation")
	if feedtest.WriteError(t, shout, 1, nil) == nil {
		t.Error("JOB has made a record")
	}
	if e := feedtest.Read(t, job); e.Token != token {
		t.Errorf("job's record is another: %+v", e)
	}
}

// A unique index of another field refuses all elections but one. That is another error than a lost race.
func TestAnotherUniqueIndex(t *testing.T) {
	s := imitate(t)
	s.unique = "owner"
	first := decider(t, s.uri(), "first", nil)
	feedtest.Write(t, first, 1, nil)
	second := decider(t, s.uri(), "second", nil)
	feedtest.Permanent(t, feedtest.WriteError(t, second, 1, nil), `"second"`, "index", "owner")
	feedtest.Lost(t, feedtest.WriteError(t, first, 1, nil))
}

// A timeout of the client's own (SetTimeout, or timeoutMS in its URI) ends neither a feed that has no
// news, nor a call.
func TestClientsOwnTimeout(t *testing.T) {
	for name, opts := range map[string]*mongodb.Options{"change stream": nil, "announcements": {Announcements: "news"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := imitate(t)
			const timeout = 200 * time.Millisecond
			c, err := mongo.Connect(options.Client().ApplyURI(s.uri()).SetTimeout(timeout))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
			d := mongodb.NewDecider(c, database, collection, "web", opts)
			if opts != nil {
				if err := d.CreateAnnouncements(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			token := feedtest.Write(t, d, 1, feedtest.Read(t, d).Token) // it has connected, too: opening a feed has the client's timeout
			for e, err := range d.Changes(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if e.ElectionNumber == 2 {
					break
				}
				time.AfterFunc(2*timeout, func() { feedtest.Write(t, d, 2, token) })
			}
			s.hold()
			time.AfterFunc(2*timeout, s.release)
			feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
		})
	}
}

// A feed whose ctx ends before FeedWait is over works until then.
func TestFeedWithDeadline(t *testing.T) {
	_, d := imitated(t)
	for e, err := range d.Changes(storetest.Within(t, time.Minute)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.ElectionNumber == 1 {
			break
		}
		feedtest.Write(t, d, 1, e.Token)
	}
}

// With directConnection the driver reads from a secondary, too, whose record may be an old one.
func TestDirectConnectionToASecondary(t *testing.T) {
	s := imitate(t)
	at := store.At(s.Addr, "web") + "&heartbeatFrequencyMS=500"
	feedtest.Write(t, store.Opened(t, at), 1, nil)
	s.with(func() { s.secondary = true })
	d := store.Opened(t, at)
	for _, err := range feedtest.Errors(t, d) {
		feedtest.Passing(t, err)
	}
	feedtest.Passing(t, feedtest.ReadError(t, d), "directConnection", "secondary")
	feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "secondary")
	s.with(func() { s.secondary = false })
	feedtest.Eventually(t, "it is the primary", func() bool { return feedtest.ReadError(t, d) == nil })
}

// A capped collection forgets its oldest documents when others add theirs, and with the record the
// tokens: nothing is written to it. A user who may not list collections is not kept from electing.
func TestCappedCollection(t *testing.T) {
	s, d := imitated(t)
	s.with(func() { s.capped[collection] = []bson.Raw{} })
	feedtest.Read(t, d)
	for range 2 {
		feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "capped", `"web"`)
	}
	if n := s.count("findAndModify"); n != 0 {
		t.Errorf("%d writes", n)
	}
	s.with(func() { delete(s.capped, collection) })
	for _, code := range []int32{13, 8000} {
		s.befall(&fault{code: code, text: "not authorized"}, "listCollections")
		d := decider(t, s.uri(), fmt.Sprint("web", code), nil)
		token := feedtest.Write(t, d, 1, nil)
		lists := s.count("listCollections")
		feedtest.Write(t, d, 2, token)
		if n := s.count("listCollections"); n != lists {
			t.Errorf("asked again: %d times", n)
		}
	}
}

// Announcements are not written to a collection that is not capped: it would grow for ever, and
// could not be followed.
func TestAnnouncementsInAnotherCollection(t *testing.T) {
	s := imitate(t)
	s.docs["plain"] = map[string]bson.Raw{}
	d := decider(t, s.uri(), "web", &mongodb.Options{Announcements: "plain"})
	feedtest.Permanent(t, d.CreateAnnouncements(t.Context()), `"plain"`, "capped")
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), `"plain"`, "capped")
}

// A server without a journal refuses to wait for it, with a code that says nothing else.
func TestNoJournal(t *testing.T) {
	s, d := imitated(t)
	for text, advice := range map[string]string{"cannot use 'j' option when a host does not have journaling enabled": "--nojournal", "another bad value": ""} {
		s.befall(&fault{code: 2, text: text}, "findAndModify")
		if err := feedtest.WriteError(t, d, 1, nil); advice == "" {
			feedtest.Passing(t, err, text)
		} else {
			feedtest.Permanent(t, err, text, advice)
		}
	}
}

// reads and writes are calls that may be given up.
func reads(d *mongodb.Decider) func(ctx context.Context) error {
	return func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err }
}

func writes(d *mongodb.Decider, token leaderelection.LeaderToken) func(ctx context.Context) error {
	return func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(2, token)); return err }
}

// A read of a standalone shows a write that its journal does not have yet, and that a crash undoes. It
// confirms no write of the Decider's own before the journal has it, nor of the Decider's before, whose client was given up.
func TestReadBackWaitsForTheJournal(t *testing.T) {
	s := alone(t)
	d, other := web(t, s.uri()), web(t, s.uri())
	token := feedtest.Write(t, d, 1, nil)
	for _, back := range []func(){s.crash, s.release} {
		s.hold()
		feedtest.Passing(t, s.givenUp(1, writes(d, token)), "canceled")
		feedtest.Reads(t, other, 2) // it only learns of it
		for i := range 2 {
			feedtest.Passing(t, s.givenUp(2+i, reads(d)), "canceled")
		}
		heir := web(t, s.uri())
		heir.Inherit(d)
		feedtest.Passing(t, s.givenUp(4, reads(heir)), "canceled")
		back()
		for _, d := range []*mongodb.Decider{d, other} { // its connections may have been cut
			feedtest.Eventually(t, "it reads again", func() bool { return feedtest.ReadError(t, d) == nil })
		}
	}
	feedtest.Reads(t, d, 2)
	writes := s.count("findAndModify")
	feedtest.Reads(t, d, 2)
	feedtest.Reads(t, other, 2)
	if n := s.count("findAndModify"); n != writes {
		t.Errorf("%d writes for reads of what is known to be in the journal", n-writes)
	}
	feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
}

// A replica set needs no such thing: its reads show what a majority has.
func TestReadBackOfAReplicaSet(t *testing.T) {
	s, d := imitated(t)
	token := feedtest.Write(t, d, 1, nil)
	s.hold()
	feedtest.Passing(t, s.givenUp(1, writes(d, token)), "canceled")
	feedtest.Reads(t, d, 1)
	s.release()
	writes := s.count("findAndModify")
	feedtest.Reads(t, d, 2)
	if n := s.count("findAndModify"); n != writes {
		t.Errorf("%d writes for a read", n-writes)
	}
}

// A write that a candidate has given up does not stay on the server for as long as the majority is
// away: each would take a thread and a connection. The ctx of a campaign has no deadline, so the call
// has its own, and the server knows it.
func TestCallsEndOnTheServer(t *testing.T) {
	s, d := imitated(t)
	feedtest.Read(t, d)
	token := feedtest.Write(t, d, 1, nil)
	for _, command := range []string{"find", "findAndModify"} {
		if limit := s.limits(command); len(limit) == 0 || slices.Min(limit) <= 0 || slices.Max(limit) > 30*time.Second {
			t.Errorf("the limits of %s are %v", command, limit)
		}
	}
	s.hold()
	feedtest.Passing(t, s.givenUp(1, writes(d, token)), "canceled")
	s.awaitWaiting(1) // the server does not end it when its client has gone

	// A caller's own deadline counts if it is earlier.
	feedtest.Passing(t, writes(d, token)(storetest.Within(t, 200*time.Millisecond)))
	s.awaitWaiting(1)
}

// Open's client leaves retries to the campaign: with a deadline the driver's would last until then.
func TestOpenDoesNotRetry(t *testing.T) {
	s := imitate(t)
	for _, c := range []struct {
		parameters string
		once       bool
	}{{"", true}, {"&retryReads=true&retryWrites=true", false}} {
		d := store.Opened(t, s.at(c.parameters))
		for command, call := range map[string]func(ctx context.Context) error{"find": reads(d), "findAndModify": writes(d, nil)} {
			before := s.count(command)
			s.befall(&fault{cut: true}, command)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() { failed <- call(ctx) }()
			if !c.once {
				feedtest.Eventually(t, command+" is sent again", func() bool { return s.count(command) > before+1 })
				cancel()
			}
			feedtest.Passing(t, <-failed)
			cancel()
			if n := s.count(command) - before; c.once && n != 1 {
				t.Errorf("%d times %s for one call", n, command)
			}
		}
	}
}
