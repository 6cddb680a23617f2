package azblob

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
)

// Options is what may be set of a Decider. The zero value is right for most.
//
// Each write makes the blob anew, so what is said here of the blob holds for the
// record as the last candidate wrote it: give all candidates the same Options.
type Options struct {
	// CreateContainer makes the container, private, where there is none.
	CreateContainer bool
	// NativeLease makes the leader hold Azure's own lease on the record's blob
	// and on others, see NativeLease. Nil: no native leases.
	NativeLease *NativeLease
	// ContentType of the blob. Empty: application/json.
	ContentType string
	// Metadata of the blob, for whoever lists the container.
	Metadata map[string]string
	// Tier is the access tier to write the blob to. Empty: the account's
	// default. Hot is the cheapest for a record that is written this often.
	Tier blob.AccessTier
	// EncryptionScope is the scope to encrypt the blob with. Empty: the
	// container's or the account's default.
	EncryptionScope string
}

// Decider is one election, kept in one blob of a container. It is a
// leaderelection.RaceDecider; all its methods may be called by several
// goroutines at once. Make it by NewDecider or Open. With Options.NativeLease
// each campaign needs a Decider of its own.
type Decider struct {
	container *container.Client
	blob      *blockblob.Client
	place     string
	opts      Options
	wrong     error   // with the names or options; nothing is asked of the store then
	native    *leases // nil: no native leases
}

var _ leaderelection.RaceDecider = (*Decider)(nil)

// token is a version of the blob.
type token struct {
	etag   azcore.ETag // empty: there is no blob
	commit time.Time
	// leased says that the blob was under a native lease when this version
	// was last seen: writes must then name it.
	leased bool
	// number and incarnation are those of the record, from which follows the
	// id of its leader's native lease.
	number      leaderelection.ElectionNumber
	incarnation string
}

// CommitTS is the Last-Modified header of the answer: when Azure says that it
// wrote this version, in whole seconds.
func (t *token) CommitTS() time.Time { return t.commit }

func newToken(e *leaderelection.RaceEntry, etag azcore.ETag, modified *time.Time, leased bool) *token {
	strong := strings.TrimPrefix(string(etag), "W/") // which proxies that compress add
	t := &token{etag: azcore.ETag(strong), leased: leased, number: e.ElectionNumber, incarnation: e.Incarnation}
	if modified != nil {
		t.commit = modified.UTC()
	}
	return t
}

// proved returns an error, which may pass, unless an answer that has this ETag and this
// MD5 is the store's, and about data. Azure's answers to a write, and to the reading of
// a whole blob, have the MD5 of the content, which no two records share.
func proved(data []byte, etag *azcore.ETag, sum []byte) error {
	own := md5.Sum(data)
	switch {
	case etag == nil || *etag == "" || len(sum) == 0:
		return errors.New("the answer lacks an ETag or Content-MD5: something else than the store answered (or the blob was written by blocks: write it anew by Put Blob)")
	case !bytes.Equal(own[:], sum):
		return errors.New("the answer's Content-MD5 is not that of the content: something on the way spoilt it, or answered in place of the store")
	}
	return nil
}

// NewDecider returns the election that is kept in a blob of a container. It asks
// nothing of the store yet; a name or an option that cannot be is reported by
// each call of the Decider. The client stays the caller's and may be shared; its
// own retries do not apply to the Decider's requests. Opts may be nil.
func NewDecider(client *azblob.Client, containerName, blobName string, opts *Options) *Decider {
	c := client.ServiceClient().NewContainerClient(containerName)
	d := &Decider{
		container: c,
		blob:      c.NewBlockBlobClient(blobName),
		place:     place(client.URL(), containerName, blobName),
		wrong:     checkNames(containerName, blobName),
	}
	if opts != nil {
		d.opts = *opts
		d.opts.Metadata = maps.Clone(opts.Metadata)
	}
	if d.opts.ContentType == "" {
		d.opts.ContentType = "application/json"
	}
	if d.opts.NativeLease != nil {
		d.native = newLeases(c, blobName, *d.opts.NativeLease)
		if err := d.native.check(); d.wrong == nil {
			d.wrong = err
		}
	}
	return d
}

// String names the place of the record: container and blob.
func (d *Decider) String() string { return d.place }

// ReadCurrent implements leaderelection.RaceDecider, by one request.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := d.ready(ctx); err != nil {
		return nil, d.failed(ctx, reading, err)
	}
	ctx = once(ctx)
	r, err := d.blob.DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.ContainerNotFound) && d.opts.CreateContainer {
		if err := d.create(ctx); err != nil {
			return nil, d.failed(ctx, creating, err)
		}
		r, err = d.blob.DownloadStream(ctx, nil)
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return &leaderelection.RaceEntry{Token: &token{}}, nil
	}
	if err != nil {
		return nil, d.failed(ctx, reading, err)
	}
	defer r.Body.Close()
	data, err := content(&r)
	if err == nil && len(data) <= record.MaxSize { // of a longer one not all was read
		err = proved(data, r.ETag, r.ContentMD5)
	}
	if err != nil {
		return nil, d.failed(ctx, reading, err)
	}
	e, err := record.Unmarshal(d.place, data)
	if err != nil {
		return nil, err
	}
	e.Token = newToken(e, *r.ETag, r.LastModified, isLeased(r.LeaseState))
	return e, nil
}

// content reads the blob. Of one that is too long to be a record it reads just as
// much as shows that.
func content(r *blob.DownloadStreamResponse) ([]byte, error) {
	n := r.ContentLength
	if n == nil || *n < 0 {
		return io.ReadAll(io.LimitReader(r.Body, record.MaxSize+1))
	}
	data := make([]byte, min(*n, record.MaxSize+1))
	_, err := io.ReadFull(r.Body, data)
	return data, err
}

func isLeased(s *lease.StateType) bool {
	return s != nil && (*s == lease.StateTypeLeased || *s == lease.StateTypeBreaking)
}

// WriteEntry implements leaderelection.RaceDecider, by one request, plus with
// Options.NativeLease those that keep the leases. Azure does not send the current
// record along with a refusal.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if err := d.ready(ctx); err != nil {
		return nil, d.failed(ctx, writing, err)
	}
	data, err := record.Marshal(entry)
	if err != nil {
		return nil, d.failed(ctx, writing, err)
	}
	old := &token{}
	switch t := entry.Token.(type) {
	case nil:
	case *token:
		old = t
	default:
		return nil, d.failed(ctx, writing, fmt.Errorf("the Token is a %T, of another kind of store: %w", t, leaderelection.ErrPermanent))
	}
	ctx = once(ctx)
	ours := d.native != nil && d.native.claim(old, entry)
	next, err := d.put(ctx, data, old, entry)
	if err != nil {
		return nil, d.failed(ctx, writing, err)
	}
	if ours {
		next.leased = d.native.follow(ctx, old, entry, next)
	}
	return next, nil
}

// put is the conditional write: one request, or where the state of a native
// lease on the blob is not the one that old tells of, a few. Each of them has
// the same condition on the version, so that only one can happen.
func (d *Decider) put(ctx context.Context, data []byte, old *token, entry *leaderelection.RaceEntry) (*token, error) {
	id := ""
	if old.leased {
		id = old.leaseID()
	}
	for try := 0; ; try++ {
		r, err := d.blob.Upload(ctx, streaming.NopCloser(bytes.NewReader(data)), d.upload(old.etag, id))
		if err == nil {
			err = proved(data, r.ETag, r.ContentMD5)
		}
		if err == nil {
			return newToken(entry, *r.ETag, r.LastModified, id != ""), nil
		}
		const tries = 3
		switch {
		case try == tries:
			return nil, err
		case bloberror.HasCode(err, bloberror.ContainerNotFound) && d.opts.CreateContainer && old.etag == "":
			if err := d.create(ctx); err != nil {
				return nil, err
			}
		case old.etag == "":
			return nil, err // there is no blob that could be under a lease
		case bloberror.HasCode(err, bloberror.LeaseIDMissing) && id == "":
			id = old.leaseID() // the leader took it since
		case bloberror.HasCode(err, bloberror.LeaseLost, bloberror.LeaseNotPresentWithBlobOperation):
			id = "" // it has run out since
		case bloberror.HasCode(err, bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseIDMissing):
			// Somebody else's, or of a reign long over.
			if err := breakLease(ctx, d.blob, old.etag); err != nil {
				return nil, err
			}
			id = ""
		default:
			return nil, err
		}
	}
}

// upload is the conditions and what is to be set of the blob.
func (d *Decider) upload(etag azcore.ETag, leaseID string) *blockblob.UploadOptions {
	only := &blob.AccessConditions{ModifiedAccessConditions: ifMatch(etag)}
	if leaseID != "" {
		only.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &leaseID}
	}
	o := &blockblob.UploadOptions{AccessConditions: only, HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &d.opts.ContentType, BlobCacheControl: &noStore}}
	if len(d.opts.Metadata) > 0 {
		o.Metadata = make(map[string]*string, len(d.opts.Metadata))
		for k, v := range d.opts.Metadata {
			o.Metadata[k] = &v
		}
	}
	if d.opts.Tier != "" {
		o.Tier = &d.opts.Tier
	}
	if d.opts.EncryptionScope != "" {
		o.CPKScopeInfo = &blob.CPKScopeInfo{EncryptionScope: &d.opts.EncryptionScope}
	}
	return o
}

// noStore keeps caches on the way from answering for the store.
var noStore = "no-store"

// ifMatch is the condition that the blob is this version, or where etag is empty
// that there is none.
func ifMatch(etag azcore.ETag) *blob.ModifiedAccessConditions {
	if etag == "" {
		any := azcore.ETagAny
		return &blob.ModifiedAccessConditions{IfNoneMatch: &any}
	}
	return &blob.ModifiedAccessConditions{IfMatch: &etag}
}

func (d *Decider) create(ctx context.Context) error {
	_, err := d.container.Create(ctx, nil)
	if bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return nil
	}
	return err
}

// once switches the client's own retries off: by default they take up to a
// minute, and the campaign retries itself.
func once(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
}

// ready says what keeps a request from being made at all.
func (d *Decider) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.wrong
}
