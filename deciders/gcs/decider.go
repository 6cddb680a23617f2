package gcs

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Options are the settings of a Decider. The zero value is right for most. Each write replaces the
// object, so the settings of the last writer apply: give all candidates the same Options.
type Options struct {
	// KMSKeyName is the Cloud KMS key that encrypts the object:
	// projects/P/locations/L/keyRings/R/cryptoKeys/K. Empty: the bucket's default, or a key of
	// Google's. Each write and each read uses the key once, and Cloud KMS charges for that. If
	// the key is disabled, nobody can lead.
	KMSKeyName string
}

// Decider is one election, kept in one object of a bucket. It is a leaderelection.RaceDecider. Its
// methods may be called by several goroutines at once. Make it by NewDecider or Open.
type Decider struct {
	election store.Election[token]
	owned    *store.Renewed[*storage.Client] // made by Open
}

var _ leaderelection.RaceDecider = (*Decider)(nil)

// backend is the store: one object of a bucket.
type backend struct {
	client     func(context.Context) *storage.Client
	distrusted func() // told of each refusal that other credentials may cure
	in         string // the bucket
	name       string
	opts       Options
	found      atomic.Bool // the bucket: it is known to exist
	there      atomic.Bool // the object: it was, when last looked for
}

// token is a generation of the object; 0 stands for no object at all.
type token struct {
	generation int64
	commit     time.Time
}

// never is a generation that is centuries away.
var never = token{generation: 1 << 62}

// CommitTS is when Cloud Storage says that it wrote this generation. It has milliseconds or better
// if WriteEntry returned the token, and whole seconds if ReadCurrent did.
func (t token) CommitTS() time.Time { return t.commit }

// NewDecider returns the election that is kept in an object of a bucket. It makes no request. If a
// name cannot be right, each call of the Decider says so. Close the client when you no longer use
// the Decider. Others may use it, too. Its own retries do not apply to the Decider's requests. Opts
// may be nil.
func NewDecider(client *storage.Client, bucket, object string, opts *Options) *Decider {
	b := &backend{in: bucket, name: object, client: func(context.Context) *storage.Client { return client }, distrusted: func() {}}
	if opts != nil {
		b.opts = *opts
	}
	d := &Decider{election: store.Election[token]{Store: b, Package: "gcs", Place: "gs://" + bucket + "/" + object, Wrong: checkNames(bucket, object)}}
	if client == nil {
		d.election.Wrong = errors.New("the client is nil")
	}
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		d.election.Never = &never
	}
	return d
}

// bucket is the client's handle of the bucket.
func (b *backend) bucket(ctx context.Context) *storage.BucketHandle {
	return b.client(ctx).Bucket(b.in).Retryer(storage.WithPolicy(storage.RetryNever))
}

// handle is the client's handle of the object.
func (b *backend) handle(ctx context.Context) *storage.ObjectHandle {
	return b.bucket(ctx).Object(b.name)
}

// String names the place of the record: bucket and object.
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider, by one request. The first call makes a second
// request, to learn whether there is an object. If there is none, that request tells an empty
// election from a missing bucket.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, by one request. A refusal does not have the
// current record.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	if b.there.Load() {
		s, err := b.download(ctx)
		if !notFound(err) {
			return s, err
		}
		b.there.Store(false) // or so it seems: the SDK does not say who answered 404
	}
	switch _, err := b.handle(ctx).Attrs(ctx); {
	case isAbsent(err):
		return store.Stored[token]{None: true}, b.findBucket(ctx)
	case err != nil:
		return s, err
	}
	s, err = b.download(ctx)
	if notFound(err) {
		return s, fmt.Errorf("there is an object, but it cannot be downloaded: it was just deleted, or the response is not from the store: %v", err)
	}
	b.there.Store(err == nil)
	return s, err
}

// download reads the object.
func (b *backend) download(ctx context.Context) (s store.Stored[token], err error) {
	r, err := b.handle(ctx).NewReader(ctx)
	if err != nil {
		return s, err
	}
	defer r.Close()
	// One byte more than a record may have: longer ones are refused by their
	// length, and never read whole.
	s.Data, err = io.ReadAll(io.LimitReader(r, store.MaxSize+1))
	switch sum := crc32.Checksum(s.Data, castagnoli); {
	case err != nil:
		return s, err
	case r.Attrs.Generation <= 0:
		return s, fmt.Errorf("the response has generation %d, not the object's own: it is not from the store", r.Attrs.Generation)
	case len(s.Data) <= store.MaxSize && sum != r.Attrs.CRC32C:
		return s, fmt.Errorf("the content has the CRC32C %08x, and the response says %08x: something on the way changed it, or it is not from the store", sum, r.Attrs.CRC32C)
	}
	b.found.Store(true)
	s.At = token{generation: r.Attrs.Generation, commit: r.Attrs.LastModified.UTC()}
	return s, nil
}

// findBucket returns an error if the bucket does not exist. A candidate that
// may not list objects cannot know, and learns it from its first write.
func (b *backend) findBucket(ctx context.Context) error {
	if b.found.Load() {
		return nil
	}
	it := b.bucket(ctx).Objects(ctx, &storage.Query{Prefix: b.name, Projection: storage.ProjectionNoACL})
	it.PageInfo().MaxSize = 1
	if _, err := it.Next(); err != nil && !errors.Is(err, iterator.Done) && judge(err) != refused {
		return fmt.Errorf("looking for the bucket: %w", err)
	}
	b.found.Store(true)
	return nil
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at token, data []byte, _ *leaderelection.RaceEntry) (next token, err error) {
	only := storage.Conditions{GenerationMatch: at.generation}
	if at.generation == 0 {
		only = storage.Conditions{DoesNotExist: true}
	}
	w := b.handle(ctx).If(only).NewWriter(ctx)
	b.prepare(w, data)
	_, err = w.Write(data)
	if closed := w.Close(); closed != nil {
		err = closed // says more: Write only knows that its pipe has broken
	}
	if err != nil {
		return next, err
	}
	attrs := w.Attrs()
	if attrs.Generation <= 0 || attrs.Name != b.name || attrs.CRC32C != w.CRC32C || attrs.Size != int64(len(data)) {
		return next, fmt.Errorf("the response describes %q with generation %d, %d bytes and CRC32C %08x, not what was sent, %d bytes with %08x: it is not from the store",
			attrs.Name, attrs.Generation, attrs.Size, attrs.CRC32C, len(data), w.CRC32C)
	}
	b.found.Store(true)
	b.there.Store(true)
	return token{generation: attrs.Generation, commit: attrs.Updated.UTC()}, nil
}

// prepare sets what the SDK is to know of the object before the first byte.
func (b *backend) prepare(w *storage.Writer, data []byte) {
	w.ContentType, w.CacheControl, w.KMSKeyName = "application/json", "no-store", b.opts.KMSKeyName
	// Google refuses the write if the bytes do not add up to this. The
	// SDK's own check compares only afterwards, when the record is written.
	w.CRC32C, w.SendCRC32C = crc32.Checksum(data, castagnoli), true
	// A buffer lets the HTTP client send the request on another connection
	// if an idle one had been closed meanwhile; the default of 16 MiB is
	// allocated for each write. What fills the buffer is sent in two requests.
	const unit = 256 << 10
	w.ChunkSize = unit
	if len(data) >= unit {
		w.ChunkSize = 2 * unit
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Inherit implements open.Heir: a write to a server that is not known to honor conditions stays
// unproved with a new client, too.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.election.Inherit(&earlier.election)
	}
}

// Close closes the client that Open made. After NewDecider it does nothing: the
// client is the caller's.
func (d *Decider) Close() error {
	if d.owned == nil {
		return nil
	}
	return d.owned.Get(context.Background()).Close()
}

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the bucket's settings: rules that delete the
// record, retention and holds that prevent replacing it, and regions that lag behind. This needs
// storage.buckets.get, which candidates need not have.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	err := d.election.Ready(ctx)
	var bucket *storage.BucketAttrs
	b := d.election.Store.(*backend)
	if err == nil {
		bucket, err = b.bucket(ctx).Attrs(ctx)
	}
	var answer *googleapi.Error
	if errors.As(err, &answer) && answer.Code == http.StatusForbidden {
		err = errors.New("reading the bucket's settings needs storage.buckets.get, as in the role Storage Legacy Bucket Reader (roles/storage.legacyBucketReader)")
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining", err)
	}
	return examine(bucket, b.name), nil
}

// examine says what of a bucket's settings may harm the record name.
func examine(bucket *storage.BucketAttrs, name string) (warnings []durability.Warning) {
	warn := func(advice, detail string, args ...any) {
		warnings = append(warnings, durability.Warning{Detail: fmt.Sprintf(detail, args...), Advice: advice})
	}
	for _, r := range bucket.Lifecycle.Rules {
		if r.Action.Type == storage.DeleteAction && concerns(&r.Condition, name) {
			warn("limit the rule to other prefixes, or to noncurrent versions", "a lifecycle rule deletes the record, and its count, if nobody leads %s", when(&r.Condition))
		}
	}
	if p := bucket.RetentionPolicy; p != nil && p.RetentionPeriod > 0 {
		warn("use a bucket without a retention policy", "a retention policy keeps the record from being replaced for %v: after the first write nobody can extend or acquire", p.RetentionPeriod)
	}
	if bucket.DefaultEventBasedHold {
		warn("use a bucket without it", "each new object is put on an event-based hold, which keeps the record from being replaced: after the first write nobody can extend or acquire")
	}
	switch bucket.LocationType {
	case "dual-region", "multi-region":
		warn("use a bucket of one region, which keeps the record in two zones, if something is fenced by its numbers",
			"the bucket is in several regions (%s %s), and a write is acknowledged before the others have it: if one is lost, so may be the last writes", bucket.LocationType, bucket.Location)
	case "zone":
		warn("use a bucket of a region if something is fenced by its numbers", "the bucket keeps the record in one zone (%s): if it is lost, the count is, too", bucket.Location)
	}
	return warnings
}

// when says after what time a rule deletes.
func when(c *storage.LifecycleCondition) string {
	if !c.CreatedBefore.IsZero() {
		return "after " + c.CreatedBefore.Format(time.DateOnly)
	}
	return fmt.Sprintf("for %d days", c.AgeInDays)
}

// concerns reports whether a rule with this condition may apply to the live object name.
func concerns(c *storage.LifecycleCondition, name string) bool {
	any := func(of []string, is func(s, part string) bool) bool {
		for _, part := range of {
			if is(name, part) {
				return true
			}
		}
		return len(of) == 0
	}
	return c.Liveness != storage.Archived && c.NumNewerVersions == 0 && c.DaysSinceNoncurrentTime == 0 && c.NoncurrentTimeBefore.IsZero() &&
		c.DaysSinceCustomTime == 0 && c.CustomTimeBefore.IsZero() && // the record has no custom time
		any(c.MatchesPrefix, strings.HasPrefix) && any(c.MatchesSuffix, strings.HasSuffix)
}
