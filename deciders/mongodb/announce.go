package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/c8e606e4/leaderelection"
)

// announcementsSize is how large the capped collection is, in bytes: about a thousand
// announcements. A feed that opens reads them all.
const announcementsSize = 64 << 10

// announceTimeout is how long an announcement may hold up the write that it follows.
const announceTimeout = 500 * time.Millisecond

// CreateAnnouncements makes the capped collection that Options.Announcements names, with a first
// announcement, since MongoDB does not follow an empty collection. Every candidate may call it at
// its start: if the collection exists it does nothing, but a collection that is not capped is an
// error. It needs the action createCollection (role readWrite has it).
func (d *Decider) CreateAnnouncements(ctx context.Context) error {
	if d.b.opts.Announcements == "" {
		return errors.New("leaderelection/mongodb: Options.Announcements is empty: it names the collection to create")
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	const exists = 48
	err := d.b.coll.Database().CreateCollection(ctx, d.b.opts.Announcements, options.CreateCollection().SetCapped(true).SetSizeInBytes(announcementsSize))
	switch {
	case slices.Contains(mongo.ErrorCodes(err), exists):
		err = d.b.examine(ctx)
	case err == nil:
		_, err = d.b.announcements().InsertOne(ctx, bson.D{{Key: "election", Value: ""}})
	}
	if err != nil {
		return d.election.Failed(ctx, fmt.Sprintf("creating the capped collection %q for", d.b.opts.Announcements), err)
	}
	return nil
}

// announcements is the capped collection. An announcement that is lost costs time only.
func (b *backend) announcements() *mongo.Collection {
	return b.coll.Database().Collection(b.opts.Announcements, options.Collection().
		SetWriteConcern(writeconcern.W1()).SetReadPreference(readpref.Primary()))
}

// announce says that entry has been written, if that may call somebody to act: a new
// leadership, a release, a request for another leader. Extensions are no news to those who read
// every half term. That it fails is nobody's concern: the write has happened.
func (b *backend) announce(ctx context.Context, entry *leaderelection.RaceEntry) {
	if b.opts.Announcements == "" || entry.Extension != 0 && !entry.Vacant() && entry.Successor == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	_, _ = b.announcements().InsertOne(ctx, bson.D{{Key: "election", Value: b.id}})
}

// tail reads after each announcement, and every half term in case one was lost.
func (d *Decider) tail(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	cursor, err := d.b.announcements().Find(ctx, bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Millisecond))
	if err != nil {
		return err
	}
	defer closing(ctx, cursor)
	for tryNext(ctx, cursor, 0) { // of the time before
	}
	var last leaderelection.LeaderToken
	for {
		e, err := d.ReadCurrent(ctx)
		if err != nil {
			return err
		}
		if last == nil || e.Token != last {
			last = e.Token
			if !yield(e) {
				return nil
			}
		}
		term := e.TermLength
		if term <= 0 {
			term = leaderelection.DefaultTermLength
		}
		wait := max(term/2, time.Millisecond)
		cursor.SetMaxAwaitTime(wait)
		if err := d.announced(ctx, cursor, wait); err != nil {
			return err
		}
	}
}

// announced returns when this election was announced, or after wait.
func (d *Decider) announced(ctx context.Context, cursor *mongo.Cursor, wait time.Duration) error {
	ours := false
	for {
		if ours && cursor.RemainingBatchLength() == 0 {
			return nil // one read is enough for all that came at once
		}
		var a struct {
			Election string `bson:"election"`
		}
		if !tryNext(ctx, cursor, wait) {
			switch {
			case cursor.Err() != nil:
				return cursor.Err()
			case cursor.ID() == 0:
				return fmt.Errorf("nothing can be followed in %q: the collection is missing, empty or not capped; see CreateAnnouncements", d.b.opts.Announcements)
			}
			return nil
		}
		ours = ours || bson.Unmarshal(cursor.Current, &a) == nil && a.Election == d.b.id
	}
}
