// Package mongodb keeps an election in MongoDB, as one document. An update on the document's
// version decides who leads. If the deployment has change streams, one tells candidates and
// observers of it.
//
//	client, err := mongo.Connect(options.Client().ApplyURI(uri))
//	...
//	decider := mongodb.NewDecider(client, "ops", "elections", "web", nil)
//
// # What it was tried on
//
//   - MongoDB 4.4, by hand, as one server and as a replica set of three, while servers, links and clocks
//     failed (docs/reliability.md). What was wrong has been repaired since, on the imitation.
//   - An imitation of a replica set that speaks MongoDB's protocol and runs in the tests, with the real
//     driver.
//   - FerretDB 1.24 (SQLite): reading, writing and whole elections. Its updates are not atomic
//     under concurrent clients, so its commands were passed on one at a time. Do not use it for
//     elections.
//
// LEADERELECTION_TEST_MONGODB_URI has go test run the suite on a replica set of yours, too.
//
// # What is written where
//
// There is one document in the collection, whose _id is the election's name:
//
//	{_id: "web", version: ObjectId(...), record: "{...}", written: ISODate(...)}
//
// Record is the JSON that all stores keep. Each write gives the document a new version, which no
// earlier one had, even if the document was deleted and made again. Other fields stay as they are.
// Never delete the document: nothing would show that there was one. A document without a version,
// or with an empty record, is damage, and is left alone.
//
// The first write makes the database and the collection. The collection must not be capped, since such
// a collection forgets its oldest documents. A sharded collection must have _id as its
// shard key. If the collection has a collation, names that it takes for one are errors: with one that
// ignores case, "JOB" next to "job".
//
// # Permissions
//
// Candidates need the actions find, insert and update on the collection, and changeStream for the
// feed: the role readWrite on the database has them all. If they have listCollections, too, as with
// that role, they refuse a capped collection. An observer needs find and changeStream (role read).
// leaderelect doctor can use replSetGetConfig on the cluster (role clusterMonitor).
//
// # What MongoDB promises
//
// A write to one document is atomic, and _id is unique, so of two updates of one version one finds
// the document changed. Writes wait for {w: "majority", j: true}, whatever the client's own write
// concern is: a fail-over does not roll back what a majority of the voting members has in its
// journal. Reads go to the primary with read concern "majority", so they never show what may still be
// rolled back. See
// https://www.mongodb.com/docs/manual/core/write-operations-atomicity/,
// https://www.mongodb.com/docs/manual/reference/write-concern/ and
// https://www.mongodb.com/docs/manual/reference/read-concern-majority/.
//
// These can lose acknowledged writes all the same:
//
//   - a member that is resynchronized from an older copy while it counts for the majority;
//   - a replica set forced into a new configuration without its majority;
//   - storage that lies about fsync;
//   - a restore from a backup.
//
// On a standalone mongod a majority is that one server, whose reads also show what its journal does not
// have yet. So a Decider does not confirm a write of its own by a read before the journal has it. A
// replica set of one member costs as little as a standalone, and has change streams. The command
// leaderelect doctor asks the server whether it belongs to a replica set, how many members have data,
// and whether they keep a journal (Decider.Durability).
//
// If an update's response is a write concern error, the update has happened, but may yet be rolled
// back. It is reported as an error, and the campaign reads it back.
//
// A write that is given up does not count because of that: no read of a replica set shows what a
// majority does not have, even after the call was canceled or its connection cut. Nor does a change
// stream: "change streams only notify on data changes that have persisted to a majority of
// data-bearing members" (https://www.mongodb.com/docs/manual/changeStreams/). Other servers that
// speak the protocol may show what they undo. A campaign never takes a feed for proof.
//
// A response counts as a success only if it shows the document exactly as it was to be written. The
// server's time, in milliseconds, is kept with each write: CommitTS.
//
// # What it costs
//
// A leader writes about 515 times an hour at the default term of 15 s. A standby with a change
// stream waits in a getMore. The server answers it when there is news, or after Options.FeedWait.
// Without a change stream a standby reads 480 times an hour. The client's own monitoring of each
// server (a hello, held for 10 s) comes on top.
//
// The getMore uses a connection alone. So in a client of your own set minPoolSize to 2, as Open
// does: otherwise a standby that is about to lead must first connect, with TLS and log-in. A
// candidate's client has four connections to each server of the set, two of its pool and two that
// monitor. Many elections of one process can share a client by NewDecider. Each adds one connection
// to the primary, its getMore's, and maxPoolSize (100) must be greater than their number.
//
// A document has at most 16 MiB. A record here has at most 256 KiB.
//
// A primary that cannot reach its majority, and stays primary (an arbiter votes for it), does not end a
// write when its client gives it up. Each call has a time limit of 30 s that the server knows
// (maxTimeMS), so no more attempts wait there than candidates make in 30 s. Within that limit the driver
// retries a call about twice a second. So in a client of your own set retryReads and retryWrites to
// false, as Open does: the campaign retries, with a pause that grows.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a client's connections without telling anyone.
// When a call is given up, Open's client closes all connections on which nothing was heard since
// the call began. A client of yours closes that call's connection. It notices the others by its
// monitoring, within the sum of connectTimeoutMS and heartbeatFrequencyMS: 40 s, unless you set
// them to a few seconds.
//
// # How the feed works
//
// It opens the change stream and then reads the document. The stream begins after all that the
// primary has, so the read waits until a majority has that, too: nothing is missed. The feed skips
// what the stream still delivers from before the read. The driver resumes a broken stream where it
// was. In a sharded cluster a change stream waits for the shard with the fewest writes: for about
// 10 s, unless periodicNoopIntervalSecs of the shards' members is less. A campaign restarts a feed that
// is so late, and polls meanwhile.
//
// Change streams need a replica set or a sharded cluster. On a standalone server, and on databases
// that only speak MongoDB's protocol, the feed fails once and says so. Then it stays silent, and
// candidates and observers poll. It asks again each hour.
//
// For such servers there are Options.Announcements. The writer of news (a new leadership, a release
// or a request for another leader) also adds to a small capped collection, which the feed follows
// with a tailable cursor. An announcement may be lost, so the feed also reads the record every half
// term. (Do not use them with FerretDB, whose tailable cursors deliver nothing.)
package mongodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// Options adjusts a Decider. The zero value is right for most.
type Options struct {
	// FeedWait is how long the server may hold the feed's getMore before it answers that there
	// is nothing new. Longer means fewer requests of idle standbys. Keep it shorter than the
	// time after which something in between cuts silent connections. Zero: 10 minutes.
	FeedWait time.Duration
	// Announcements names a capped collection in the same database, for servers without change
	// streams: each write is announced there, and the feed follows it with a tailable cursor.
	// Empty: none; the record is polled. All candidates and observers of an election must have
	// the same. Nothing is written if there is no such collection, or if it is not capped. See
	// CreateAnnouncements.
	Announcements string
}

// Decider is an election in MongoDB. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[version]
	close    func() error // the client is the Decider's own
}

// backend is the store: one document of a collection.
type backend struct {
	client *mongo.Client
	coll   *mongo.Collection
	id     string
	opts   Options

	secondary *atomic.Bool  // see own; nil: not known
	doubts    *store.Doubts // own writes that a standalone's journal may not have
	examined  atomic.Bool   // the collections are what they must be

	probeAt atomic.Int64 // when to ask again for change streams, in Unix seconds; 0: now
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// document is what is stored.
type document struct {
	ID      string        `bson:"_id"`
	Version bson.ObjectID `bson:"version"`
	Record  string        `bson:"record"`
	Written time.Time     `bson:"written,omitempty"`
}

// version is a LeaderToken. The zero id is the version of what is not there.
type version struct {
	id      bson.ObjectID
	written time.Time
}

// CommitTS is the server's time of the write, to the millisecond. It is zero for a
// document that an earlier release created.
func (v version) CommitTS() time.Time { return v.written }

// NewDecider returns the election kept in the document with _id election, in the collection of the
// database. Keep the client connected while you use the Decider, and disconnect it yourself. Others
// may use it, too. Its read and write concerns do not matter: the Decider has its own. Its timeout, if it
// has one, counts only for the opening of a feed.
// With SetDirect the driver also reads from a secondary, whose record may be old: use it for
// a primary or a standalone only. Options may be nil. There is nothing to create before.
func NewDecider(client *mongo.Client, database, collection, election string, opts *Options) *Decider {
	journal := true
	b := &backend{client: client, id: election, doubts: new(store.Doubts)}
	if opts != nil {
		b.opts = *opts
	}
	wrong := durations.Fault("FeedWait", b.opts.FeedWait, durations.Least)
	if b.opts.Announcements == collection {
		wrong = errors.New("the collection that Announcements names is the one of the record; give it another name")
	}
	b.opts.FeedWait = cmp.Or(b.opts.FeedWait, 10*time.Minute)
	b.coll = client.Database(database).Collection(collection, options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	d := &Decider{b: b, election: store.Election[version]{Store: b, Package: "mongodb", Ours: true, Place: fmt.Sprintf("MongoDB %s.%s _id %q", database, collection, election)}}
	if d.election.Wrong = wrong; election == "" {
		d.election.Wrong = errors.New("the election has no name; give it one")
	}
	return d
}

// Close disconnects the client that Open has made. For a client given to NewDecider it does
// nothing.
func (d *Decider) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}

// Inherit implements open.Heir: a record that a standalone's journal may not have stays in doubt with a
// new client, too.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.b.doubts = earlier.b.doubts
	}
}

func disconnect(client *mongo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("leaderelection/mongodb: disconnecting: %w", err)
	}
	return nil
}

// closeTimeout is how long closing a client or a cursor may take if the server does not answer.
const closeTimeout = 2 * time.Second

// String names the place of the record: database, collection and document, and the servers
// that Open was given (a client does not tell its own).
func (d *Decider) String() string { return d.election.Place }

// callTime is how long a call may take, even on the server: the driver sends the time that is left as
// maxTimeMS. A campaign's ctx has no deadline, and a server does not end a write that waits for
// its majority when the client has gone, so each attempt would stay there until the majority is back.
const callTime = 30 * time.Second

// ReadCurrent implements leaderelection.RaceDecider. It takes 30 s at most.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	e, err := d.election.Read(ctx)
	if err != nil {
		return nil, err
	}
	if at := e.Token.(version).id.Hex(); d.b.doubts.About(e.Incarnation, at) {
		if err := d.b.journaled(ctx); err != nil {
			return nil, d.election.Failed(ctx, store.Reading, fmt.Errorf("making sure that an earlier write, which had no response, is in the journal: %w", err))
		}
		d.b.doubts.Settle(at)
	}
	return e, nil
}

// WriteEntry implements leaderelection.RaceDecider: one findAndModify. It takes 30 s at most.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return d.election.Write(ctx, entry)
}

var errSecondary = errors.New("this server is a secondary, which may show an old record: connect to the replica set, without directConnection")

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[version], error) {
	raw, err := b.coll.FindOne(ctx, bson.D{{Key: "_id", Value: b.id}}).Raw()
	switch {
	case b.secondary != nil && b.secondary.Load():
		return store.Stored[version]{}, errSecondary
	case errors.Is(err, mongo.ErrNoDocuments):
		return store.Stored[version]{None: true}, nil
	case err != nil:
		return store.Stored[version]{}, err
	}
	if id, _ := raw.Lookup("_id").StringValueOK(); id != b.id {
		return store.Stored[version]{}, store.Wrong("the server takes the document with _id %q for it: the collection's collation makes them one. Choose another name, or a collection without a collation", id)
	}
	return stored(raw)
}

// journaled waits until a standalone's journal has all that reads have shown, by a write that changes
// nothing. Elsewhere reads show only what a majority has in its journals.
func (b *backend) journaled(ctx context.Context) error {
	var server hello
	if err := b.ask(ctx, "hello", &server); err != nil || !server.standalone() {
		return err
	}
	var never bson.ObjectID
	err := b.coll.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: b.id}, {Key: "version", Value: never}}, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: never}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	return err
}

// stored is what a document says.
func stored(raw bson.Raw) (s store.Stored[version], err error) {
	var doc document
	err = bson.Unmarshal(raw, &doc)
	if err == nil && doc.Version.IsZero() {
		err = errors.New("it has no version")
	}
	if err != nil {
		return s, store.Wrong("the document cannot be used: %w: repair or remove it", err)
	}
	return store.Stored[version]{Data: []byte(doc.Record), At: version{doc.Version, doc.Written}}, nil
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at version, data []byte, e *leaderelection.RaceEntry) (version, error) {
	if err := b.examine(ctx); err != nil {
		return version{}, err
	}
	number, lost := b.doubts.Begin(e.Incarnation)
	next, err := b.write(ctx, at, string(data))
	switch {
	case err == nil:
		b.doubts.Landed(number, next.id.Hex())
		b.announce(ctx, e)
	case errors.Is(err, leaderelection.ErrLostRace):
		lost()
	}
	return next, err
}

// examine makes sure, once, that the record's collection is not capped, and that the announcements'
// is. A capped collection forgets its oldest documents, so tokens would repeat. Another one would keep
// all announcements. Nothing is known if the user may not list collections.
func (b *backend) examine(ctx context.Context) error {
	if b.examined.Load() {
		return nil
	}
	record, news := b.coll.Name(), b.opts.Announcements
	listed, err := b.coll.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{record, news}}}}})
	refused := slices.ContainsFunc(mongo.ErrorCodes(err), func(code int) bool {
		return slices.Contains([]int{13, 8000, 59, 115, 238}, code) // not allowed, or not known by the server
	})
	if err != nil && !refused {
		return err
	}
	capped := map[string]bool{}
	for _, c := range listed {
		capped[c.Name], _ = c.Options.Lookup("capped").BooleanOK()
	}
	switch {
	case capped[record]:
		return store.Wrong("the collection is capped: it forgets the record when others add documents. Choose another one")
	case news != "" && !capped[news] && !refused:
		return store.Wrong("Announcements: there is no capped collection %q: see CreateAnnouncements", news)
	}
	b.examined.Store(true)
	return nil
}

// otherIndex reports whether a duplicate key is not that of _id.
func otherIndex(err error) bool {
	var said mongo.CommandError
	if !errors.As(err, &said) {
		return false
	}
	index, ok := said.Raw.Lookup("keyPattern").DocumentOK()
	return ok && index.Lookup("_id").IsZero()
}

// write replaces the document of that version. If there is to be none it inserts one,
// since no document has the zero version; that there is one with this _id is a duplicate.
func (b *backend) write(ctx context.Context, at version, data string) (next version, err error) {
	next.id = bson.NewObjectID()
	raw, err := b.coll.FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: b.id}, {Key: "version", Value: at.id}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "version", Value: next.id}, {Key: "record", Value: data}}},
			{Key: "$currentDate", Value: bson.D{{Key: "written", Value: true}}},
		},
		options.FindOneAndUpdate().SetUpsert(at.id.IsZero()).SetReturnDocument(options.After),
	).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments) && !at.id.IsZero():
		return version{}, &leaderelection.LostRaceError{}
	case mongo.IsDuplicateKeyError(err) && at.id.IsZero() && !otherIndex(err):
		return version{}, &leaderelection.LostRaceError{Err: err}
	case err != nil:
		return version{}, err
	}
	var doc document
	if err := bson.Unmarshal(raw, &doc); err != nil {
		return version{}, fmt.Errorf("the server's answer: %w", err)
	}
	if doc.ID != b.id || doc.Version != next.id || doc.Record != data {
		return version{}, fmt.Errorf("the server's answer is a document that was not written (_id %q, version %v, want %v)", doc.ID, doc.Version, next.id)
	}
	next.written = doc.Written
	return next, nil
}

// remediesByCode says, by the server's error code, what to do about errors that no
// retry can cure.
var remediesByCode = map[int]string{
	13:    "grant the user find, insert, update and changeStream on the collection (role readWrite)",                    // Unauthorized
	18:    "user, password or authSource are wrong",                                                                     // AuthenticationFailed
	20:    "the server does not allow this operation",                                                                   // IllegalOperation
	72:    "the server does not take these options",                                                                     // InvalidOptions
	73:    "choose another name for database or collection",                                                             // InvalidNamespace
	121:   "the collection's validator refuses the document: exempt it",                                                 // DocumentValidationFailure
	148:   "the server must allow majority reads: remove enableMajorityReadConcern: false",                              // ReadConcernMajorityNotEnabled
	166:   "it is a view, or of another kind that cannot be written: choose another collection",                         // CommandNotSupportedOnView
	8000:  "user or password are wrong, the user may not do this, or the cluster is over its quota of space",            // AtlasError
	10003: "the collection is capped: choose another one",                                                               // CannotGrowDocumentInCappedNamespace
	10334: "keep ConnectionParams and HostPort short",                                                                   // BSONObjectTooLarge
	11000: "another unique index of the collection refuses the document: drop that index, or choose another collection", // DuplicateKey
	61:    "shard the collection by _id",                                                                                // ShardKeyNotFound
}

// remedies says the same of what the driver tells in words only: why it has found no
// server, or why it has just closed the connections that others wait for.
var remedies = store.Remedies{
	{Err: mongo.ErrClientDisconnected, Advice: "keep the client connected as long as the Decider is in use"},
	{Part: "failed to verify certificate", Advice: "trust the authority of the server's certificate (tls_ca in a URL), and connect by a name that it has"},
	{Part: "remote error: tls:", Advice: "show the server a certificate that it accepts (tls_cert and tls_key in a URL)"},
	{Part: "does not have journaling enabled", Advice: "the server must keep a journal: remove --nojournal, or use another storage engine"},
	{Part: "(AuthenticationFailed)", Advice: remediesByCode[18], Denied: true},
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	for _, code := range mongo.ErrorCodes(err) {
		if what := remediesByCode[code]; what != "" {
			if code == 13 || code == 18 || code == 8000 {
				return store.Denied(what)
			}
			return store.Permanent(what)
		}
	}
	return remedies.Judge(err)
}
