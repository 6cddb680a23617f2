package gcs

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
)

// Options is what may be set of a Decider. The zero value is right for most.
//
// Each write makes the object anew, so what is said here holds for the record as
// the last candidate wrote it: give all candidates the same Options.
type Options struct {
	// PredefinedACL is the name of a ready set of access rules for the object,
	// such as "bucketOwnerFullControl". Empty: the bucket's default. For a
	// bucket with uniform access, where objects have no rules of their own,
	// both this and ACL must be left out.
	PredefinedACL string
	// ACL is the object's access rules one by one, in place of PredefinedACL.
	ACL []storage.ACLRule
	// KMSKeyName is the Cloud KMS key to encrypt the object with:
	// projects/P/locations/L/keyRings/R/cryptoKeys/K. Empty: the bucket's
	// default, else a key of Google's. Each write and each read uses the key
	// once, and Cloud KMS charges for that; a key that is disabled makes the
	// election stand still.
	KMSKeyName string
	// ContentType of the object. Empty: application/json.
	ContentType string
	// CacheControl of the object. Empty: no-store. Anything that allows caching
	// makes a publicly readable object's reads stale: candidates and observers
	// learn of changes later, though who leads is never decided by a read.
	CacheControl string
	// Metadata is custom metadata of the object, for whoever lists the bucket.
	Metadata map[string]string
	// UserProject is billed for the requests, for a bucket whose requester pays.
	UserProject string
}

// Decider is one election, kept in one object of a bucket. It is a
// leaderelection.RaceDecider; all its methods may be called by several
// goroutines at once. Make it by NewDecider or Open.
type Decider struct {
	bucket *storage.BucketHandle
	object *storage.ObjectHandle
	name   string
	place  string
	opts   Options
	wrong  error           // with the names; nothing is asked of the store then
	found  atomic.Bool     // the bucket: it is known to exist
	there  atomic.Bool     // the object: it was, when last looked for
	owned  *storage.Client // made by Open
}

var _ leaderelection.RaceDecider = (*Decider)(nil)

// token is a generation of the object; 0 stands for no object at all.
type token struct {
	generation int64
	commit     time.Time
}

// CommitTS is when Cloud Storage says that it wrote this generation: to the
// millisecond or better where WriteEntry returned the token, in whole seconds
// where ReadCurrent did.
func (t *token) CommitTS() time.Time { return t.commit }

// NewDecider returns the election that is kept in an object of a bucket. It asks
// nothing of the store yet; a name that cannot be is reported by each call of the
// Decider. The client stays the caller's, who closes it when the Decider is no
// longer used, and may be shared; its own retries do not apply to the Decider's
// requests. Opts may be nil.
func NewDecider(client *storage.Client, bucket, object string, opts *Options) *Decider {
	d := &Decider{name: object, place: "gs://" + bucket + "/" + object, wrong: checkNames(bucket, object)}
	if opts != nil {
		d.opts = *opts
		d.opts.ACL = slices.Clone(opts.ACL)
		d.opts.Metadata = maps.Clone(opts.Metadata)
	}
	if d.opts.ContentType == "" {
		d.opts.ContentType = "application/json"
	}
	if d.opts.CacheControl == "" {
		d.opts.CacheControl = "no-store"
	}
	d.bucket = client.Bucket(bucket).Retryer(storage.WithPolicy(storage.RetryNever))
	if d.opts.UserProject != "" {
		d.bucket = d.bucket.UserProject(d.opts.UserProject)
	}
	d.object = d.bucket.Object(object)
	return d
}

// String names the place of the record: bucket and object.
func (d *Decider) String() string { return d.place }

// ReadCurrent implements leaderelection.RaceDecider, by one request. The first call
// makes a second one, to learn whether there is an object, and where there is none, to
// tell an empty election from a bucket that does not exist.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := d.ready(ctx); err != nil {
		return nil, d.failed(ctx, reading, err)
	}
	if d.there.Load() {
		e, err := d.download(ctx)
		if !notFound(err) {
			return e, err
		}
		d.there.Store(false) // or so it seems: the SDK does not say who answered 404
	}
	switch _, err := d.object.Attrs(ctx); {
	case isAbsent(err):
		return d.vacant(ctx)
	case err != nil:
		return nil, d.failed(ctx, reading, err)
	}
	e, err := d.download(ctx)
	if notFound(err) {
		return nil, d.failed(ctx, reading, fmt.Errorf("there is an object, and it cannot be downloaded: it was just deleted, or something else than the store answered: %v", err))
	}
	d.there.Store(err == nil)
	return e, err
}

// download reads the object. Its error is a bare notFound, or ready for the caller.
func (d *Decider) download(ctx context.Context) (*leaderelection.RaceEntry, error) {
	r, err := d.object.NewReader(ctx)
	if notFound(err) {
		return nil, err
	}
	if err != nil {
		return nil, d.failed(ctx, reading, err)
	}
	defer r.Close()
	// One byte more than a record may have: longer ones are refused by their
	// length, and never read whole.
	data, err := io.ReadAll(io.LimitReader(r, record.MaxSize+1))
	switch sum := crc32.Checksum(data, castagnoli); {
	case err != nil:
	case r.Attrs.Generation <= 0:
		err = fmt.Errorf("the answer has generation %d, want the object's own: something else than the store answered", r.Attrs.Generation)
	case len(data) <= record.MaxSize && sum != r.Attrs.CRC32C:
		err = fmt.Errorf("the content has the CRC32C %08x, and the answer says %08x: something on the way spoilt it, or answered in place of the store", sum, r.Attrs.CRC32C)
	}
	if err != nil {
		return nil, d.failed(ctx, reading, err)
	}
	d.found.Store(true)
	e, err := record.Unmarshal(d.place, data)
	if err != nil {
		return nil, err
	}
	e.Token = &token{generation: r.Attrs.Generation, commit: r.Attrs.LastModified.UTC()}
	return e, nil
}

// vacant is the entry of an election that has no object.
func (d *Decider) vacant(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if !d.found.Load() {
		if err := d.findBucket(ctx); err != nil {
			return nil, d.failed(ctx, looking, err)
		}
		d.found.Store(true)
	}
	return &leaderelection.RaceEntry{Token: &token{}}, nil
}

// WriteEntry implements leaderelection.RaceDecider, by one request. Cloud Storage
// does not send the current record along with a refusal.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if err := d.ready(ctx); err != nil {
		return nil, d.failed(ctx, writing, err)
	}
	data, err := record.Marshal(entry)
	if err != nil {
		return nil, d.failed(ctx, writing, err)
	}
	only := storage.Conditions{DoesNotExist: true}
	switch t := entry.Token.(type) {
	case nil:
	case *token:
		if t.generation != 0 {
			only = storage.Conditions{GenerationMatch: t.generation}
		}
	default:
		return nil, d.failed(ctx, writing, fmt.Errorf("the Token is a %T, of another kind of store: %w", t, leaderelection.ErrPermanent))
	}
	w := d.object.If(only).NewWriter(ctx)
	d.prepare(w, data)
	_, err = w.Write(data)
	if closed := w.Close(); closed != nil {
		err = closed // says more: Write only knows that its pipe has broken
	}
	if err != nil {
		return nil, d.failed(ctx, writing, err)
	}
	attrs := w.Attrs()
	if attrs.Generation <= 0 || attrs.Name != d.name || attrs.CRC32C != w.CRC32C || attrs.Size != int64(len(data)) {
		return nil, d.failed(ctx, writing, fmt.Errorf("the answer describes %q with generation %d, %d bytes and CRC32C %08x, want what was sent, %d bytes with %08x: something else than the store answered",
			attrs.Name, attrs.Generation, attrs.Size, attrs.CRC32C, len(data), w.CRC32C))
	}
	d.found.Store(true)
	d.there.Store(true)
	return &token{generation: attrs.Generation, commit: attrs.Updated.UTC()}, nil
}

// prepare sets what the SDK is to know of the object before the first byte.
func (d *Decider) prepare(w *storage.Writer, data []byte) {
	w.ContentType, w.CacheControl, w.Metadata = d.opts.ContentType, d.opts.CacheControl, d.opts.Metadata
	w.ACL, w.PredefinedACL, w.KMSKeyName = d.opts.ACL, d.opts.PredefinedACL, d.opts.KMSKeyName
	// Google refuses the write where the bytes do not add up to this. The
	// SDK's own check compares only afterwards, when the record is written.
	w.CRC32C, w.SendCRC32C = crc32.Checksum(data, castagnoli), true
	// A buffer lets the HTTP client send the request on another connection
	// where an idle one had been closed meanwhile; the default of 16 MiB is
	// allocated for each write. What fills the buffer is sent in two requests.
	const unit = 256 << 10
	w.ChunkSize = unit
	if len(data) >= unit {
		w.ChunkSize = 2 * unit
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ready says what keeps a request from being made at all.
func (d *Decider) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.wrong
}

// Close closes the client that Open made. After NewDecider it does nothing: the
// client is the caller's.
func (d *Decider) Close() error {
	if d.owned == nil {
		return nil
	}
	return d.owned.Close()
}
