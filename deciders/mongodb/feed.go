package mongodb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/c8e606e4/leaderelection"
)

// askAgain is after how long a server that had no change streams is asked again.
const askAgain = time.Hour

// errNoStreams is what the feed ends with if the server has none.
var errNoStreams = errors.New("this server has no change streams (they need a replica set): the record is polled")

// Changes implements leaderelection.ChangeFeed by a change stream, or by following
// Options.Announcements. It yields every state of the document that the stream shows, and an empty
// election if the document is deleted. It ends with an error if the stream ends.
//
// On a server without change streams it ends with an error the first time. For an hour later calls
// yield nothing and wait for the end of ctx, so that candidates and observers poll and nothing is
// logged repeatedly.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	if d.b.opts.Announcements != "" {
		return d.election.Follow(ctx, d.tail)
	}
	return d.election.Follow(ctx, d.stream)
}

// changeEvent is what is needed of a change event.
type changeEvent struct {
	Type     string         `bson:"operationType"`
	Time     bson.Timestamp `bson:"clusterTime"`
	Document bson.Raw       `bson:"fullDocument"`
	Update   struct {
		Fields bson.Raw `bson:"updatedFields"`
	} `bson:"updateDescription"`
}

// stream follows the document until yield returns false, or with an error.
func (d *Decider) stream(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	if !d.b.awaitProbe(ctx) {
		return ctx.Err()
	}
	s, err := d.b.client.StartSession()
	if err != nil {
		return err
	}
	defer s.EndSession(ctx)
	session := mongo.NewSessionContext(ctx, s)
	changes, err := d.b.coll.Watch(session,
		mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "documentKey._id", Value: d.b.id}}}}},
		options.ChangeStream().SetMaxAwaitTime(d.b.opts.FeedWait))
	if noStreams(err) {
		d.b.probeAt.Store(time.Now().Add(askAgain).Unix())
		return fmt.Errorf("%w: %w", errNoStreams, err)
	}
	if err != nil {
		return err
	}
	defer closing(ctx, changes)

	if err := afterAll(s); err != nil {
		return err
	}
	first, err := d.ReadCurrent(session)
	if err != nil {
		return err
	}
	var read bson.Timestamp
	if t := s.OperationTime(); t != nil {
		read = *t
	}
	was := *first // the caller may change an entry that it gets
	if !yield(first) {
		return nil
	}
	for {
		if !tryNext(ctx, changes, d.b.opts.FeedWait) {
			switch err := changes.Err(); {
			case err != nil:
				return err
			case changes.ID() == 0:
				return errors.New("the change stream ended: was the collection dropped or renamed?")
			}
			continue
		}
		var ev changeEvent
		if err := bson.Unmarshal(changes.Current, &ev); err != nil {
			return fmt.Errorf("the change stream's event: %w", err)
		}
		e, err := d.changed(ctx, &ev)
		if err != nil {
			return err
		}
		if old := !ev.Time.After(read) && e.Compare(&was) <= 0; old {
			continue // it happened between the opening of the stream and the read
		}
		if !yield(e) {
			return nil
		}
	}
}

// tryNext is the cursor's TryNext: one request at most, which the server may hold for as long as wait.
// It has a deadline, since else the driver applies the timeout of the client, if that has one.
func tryNext(ctx context.Context, cursor interface{ TryNext(context.Context) bool }, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait+callTime)
	defer cancel()
	return cursor.TryNext(ctx)
}

// closing closes a cursor, whose ctx has mostly ended.
func closing(ctx context.Context, cursor interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = cursor.Close(ctx)
}

// afterAll makes the session's next read show all that the primary had when it last answered, even
// what no majority had yet: the read waits for it. A change stream begins after that, but the session's
// own operation time is that of the majority.
func afterAll(s *mongo.Session) error {
	t, i, ok := s.ClusterTime().Lookup("$clusterTime", "clusterTime").TimestampOK()
	if !ok {
		return nil // a server without such a clock
	}
	return s.AdvanceOperationTime(&bson.Timestamp{T: t, I: i})
}

// entry is the record in a document.
func (d *Decider) entry(raw bson.Raw) (*leaderelection.RaceEntry, error) {
	s, err := stored(raw)
	if err != nil {
		return nil, err
	}
	return d.election.Entry(s)
}

// changed is the record after a change. An update of ours sets version, record
// and date, so the event holds all there is to know; after another's it reads.
func (d *Decider) changed(ctx context.Context, ev *changeEvent) (*leaderelection.RaceEntry, error) {
	switch ev.Type {
	case "insert", "replace":
		return d.entry(ev.Document)
	case "update":
		if set := ev.Update.Fields; !set.Lookup("record").IsZero() && !set.Lookup("version").IsZero() {
			return d.entry(set)
		}
	case "delete":
		return &leaderelection.RaceEntry{Token: version{}}, nil
	}
	return d.ReadCurrent(ctx)
}

// withoutStreams are the codes by which servers refuse a change stream of any kind.
var withoutStreams = []int{
	40573, // a standalone mongod
	40324, // no such stage
	59,    // no such command
	115,   // not supported (by a database that speaks MongoDB's protocol)
	238,   // not implemented (FerretDB)
}

// noStreams reports whether err says that the server has no change streams at all.
func noStreams(err error) bool {
	if err != nil && strings.Contains(err.Error(), "does not support sessions") { // the driver's words
		return true
	}
	return slices.ContainsFunc(mongo.ErrorCodes(err), func(code int) bool { return slices.Contains(withoutStreams, code) })
}

// awaitProbe waits until it is time to ask for change streams (again), and says
// whether that came before the end of ctx.
func (b *backend) awaitProbe(ctx context.Context) bool {
	at := b.probeAt.Load()
	if at == 0 {
		return true
	}
	timer := time.NewTimer(time.Until(time.Unix(at, 0)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

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
