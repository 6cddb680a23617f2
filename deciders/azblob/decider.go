package azblob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
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
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/deciders/azblob/internal/native"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Options are the settings of a Decider. The zero value is right for most. Each write replaces the
// blob, so the settings of the last writer apply: give all candidates the same Options.
type Options struct {
	// CreateContainer makes the container, private, if it is missing.
	CreateContainer bool
	// Leases are Azure's own, which the leader then holds on the record's blob and on others:
	// see package azlease. Nil: none.
	Leases *azlease.Leases
	// EncryptionScope is the scope that encrypts the blob. Empty: the container's or the
	// account's default.
	EncryptionScope string
}

// Decider is one election, kept in one blob of a container. It is a leaderelection.RaceDecider. Its
// methods may be called by several goroutines at once. Make it by NewDecider or Open. With
// Options.Leases each campaign needs a Decider of its own.
type Decider struct {
	b        *backend
	election store.Election[token]
	close    func() // closes the idle connections of Open's client; nil: the client is the caller's
}

// backend is the store: one blob of a container.
type backend struct {
	container *container.Client
	blob      *blockblob.Client
	opts      Options
	native    *native.Leases // nil: no native leases
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ store.Versioner[token]     = (*backend)(nil)
)

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

// lease is the version and the id of the native lease that goes with it.
func (t token) lease() native.At {
	return native.At{ETag: t.etag, ID: native.ID(t.number, t.incarnation)}
}

// CommitTS is the response's Last-Modified header: when Azure says that it wrote this version, in
// whole seconds.
func (t token) CommitTS() time.Time { return t.commit }

// newToken is the version that an answer tells of. It lacks what only the record says.
func newToken(etag azcore.ETag, modified *time.Time, leased bool) token {
	strong := strings.TrimPrefix(string(etag), "W/") // which proxies that compress add
	t := token{etag: azcore.ETag(strong), leased: leased}
	if modified != nil {
		t.commit = modified.UTC()
	}
	return t
}

// Of implements store.Versioner.
func (*backend) Of(e *leaderelection.RaceEntry, t token) token {
	t.number, t.incarnation = e.ElectionNumber, e.Incarnation
	return t
}

// proved returns an error, which may pass, unless an answer that has this ETag and this
// MD5 is the store's, and about data. Azure's answers to a write, and to the reading of
// a whole blob, have the MD5 of the content, which no two records share.
func proved(data []byte, etag *azcore.ETag, sum []byte) error {
	own := md5.Sum(data)
	switch {
	case etag == nil || *etag == "" || len(sum) == 0:
		return errors.New("the response lacks an ETag or Content-MD5: it is not from the store, or the blob was written by blocks (then write it again by Put Blob)")
	case !bytes.Equal(own[:], sum):
		return errors.New("the response's Content-MD5 is not that of its content: something on the way changed it, or it is not from the store")
	}
	return nil
}

// NewDecider returns the election that is kept in a blob of a container. It makes no request. If a
// name or an option cannot be right, each call of the Decider says so. Others may use the client,
// too. Its own retries do not apply to the Decider's requests. Opts may be nil.
func NewDecider(client *azblob.Client, containerName, blobName string, opts *Options) *Decider {
	c := client.ServiceClient().NewContainerClient(containerName)
	b := &backend{container: c, blob: c.NewBlockBlobClient(blobName)}
	if opts != nil {
		b.opts = *opts
	}
	wrong := checkNames(containerName, blobName)
	at := place(client.URL(), containerName, blobName)
	if b.native = (*native.Leases)(b.opts.Leases); b.native != nil {
		wrong = cmp.Or(wrong, b.native.Bind(c, blobName, at))
	}
	never := &token{etag: "0x0"}
	if native.OfAzure(client.URL()) {
		never = nil
	}
	return &Decider{b: b, election: store.Election[token]{Store: b, Package: "azblob", Place: at, Wrong: wrong, Never: never}}
}

// Close closes the connections of the client that Open has made. A client given to NewDecider is
// yours to close.
func (d *Decider) Close() error {
	if d.close != nil {
		d.close()
	}
	return nil
}

// Inherit implements open.Heir: a write to a server that is not known to honor conditions stays
// unproved with a new client, too, and the native leases stay the campaign's.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.election.Inherit(&earlier.election)
		if d.b.native != nil && earlier.b.native != nil {
			d.b.native.Inherit(earlier.b.native)
		}
	}
}

// String names the place of the record: container and blob.
func (d *Decider) String() string { return d.election.Place }

// LeaseID returns the id of the native leases of a leadership of this Decider's campaign, even if
// they are not held. Programs that write companions for the leader need it. It is empty if there is
// no such leadership, or without Options.Leases.
func (d *Decider) LeaseID(election leaderelection.ElectionNumber) string {
	if d.b.native == nil {
		return ""
	}
	return d.b.native.Of(election)
}

// ReadCurrent implements leaderelection.RaceDecider, by one request.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, by one request. With Options.Leases it also
// makes those that keep the leases. A refusal does not have the current record.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store. The token lacks what only the record says.
func (b *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	ctx = once(ctx)
	r, err := b.blob.DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.ContainerNotFound) && b.opts.CreateContainer {
		if err := b.create(ctx); err != nil {
			return s, err
		}
		r, err = b.blob.DownloadStream(ctx, nil)
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return store.Stored[token]{None: true}, nil
	}
	if err != nil {
		return s, err
	}
	defer r.Body.Close()
	data, err := io.ReadAll(io.LimitReader(r.Body, store.MaxSize+1))
	if err == nil && len(data) <= store.MaxSize { // of a longer one not all was read
		err = proved(data, r.ETag, r.ContentMD5)
	}
	if err != nil {
		return s, err
	}
	return store.Stored[token]{Data: data, At: newToken(*r.ETag, r.LastModified, isLeased(r.LeaseState))}, nil
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at token, data []byte, e *leaderelection.RaceEntry) (token, error) {
	ctx = once(ctx)
	ours := b.native != nil && b.native.Claim(at.lease(), e)
	next, err := b.put(ctx, data, &at, e)
	if err != nil {
		return token{}, err
	}
	if ours {
		next.leased = b.native.Follow(ctx, at.lease(), e, next.lease())
	}
	return *next, nil
}

func isLeased(s *lease.StateType) bool {
	return s != nil && (*s == lease.StateTypeLeased || *s == lease.StateTypeBreaking)
}

// put is the conditional write: one request, or where the state of a native
// lease on the blob is not the one that old tells of, a few. Each of them has
// the same condition on the version, so that only one can happen.
func (b *backend) put(ctx context.Context, data []byte, old *token, entry *leaderelection.RaceEntry) (*token, error) {
	id := ""
	if old.leased {
		id = old.lease().ID
	}
	for try := 0; ; try++ {
		r, err := b.blob.Upload(ctx, streaming.NopCloser(bytes.NewReader(data)), b.upload(old.etag, id))
		if err == nil {
			err = proved(data, r.ETag, r.ContentMD5)
		}
		if err == nil {
			next := b.Of(entry, newToken(*r.ETag, r.LastModified, id != ""))
			return &next, nil
		}
		const tries = 3
		switch {
		case try == tries:
			return nil, err
		case bloberror.HasCode(err, bloberror.ContainerNotFound) && b.opts.CreateContainer && old.etag == "":
			if err := b.create(ctx); err != nil {
				return nil, err
			}
		case old.etag == "":
			return nil, err // there is no blob that could be under a lease
		case bloberror.HasCode(err, bloberror.LeaseIDMissing) && id == "":
			id = old.lease().ID // the leader took it since
		case bloberror.HasCode(err, bloberror.LeaseLost, bloberror.LeaseNotPresentWithBlobOperation):
			id = "" // it has run out since
		case bloberror.HasCode(err, bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseIDMissing):
			// Somebody else's, or of a leadership long over.
			if err := native.Break(ctx, b.blob, native.IfMatch(old.etag)); err != nil {
				return nil, err
			}
			id = ""
		default:
			return nil, err
		}
	}
}

// upload is the conditions and what is to be set of the blob.
func (b *backend) upload(etag azcore.ETag, leaseID string) *blockblob.UploadOptions {
	only := &blob.AccessConditions{ModifiedAccessConditions: native.IfMatch(etag)}
	if leaseID != "" {
		only.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &leaseID}
	}
	o := &blockblob.UploadOptions{AccessConditions: only, HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &contentType, BlobCacheControl: &noStore}}
	if b.opts.EncryptionScope != "" {
		o.CPKScopeInfo = &blob.CPKScopeInfo{EncryptionScope: &b.opts.EncryptionScope}
	}
	return o
}

// noStore keeps caches on the way from answering for the store.
var contentType, noStore = "application/json", "no-store"

func (b *backend) create(ctx context.Context) error {
	_, err := b.container.Create(ctx, nil)
	if err == nil || bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return nil
	}
	return fmt.Errorf("creating the container: %w", err)
}

// once switches the client's own retries off: by default they take up to a
// minute, and the campaign retries itself.
func once(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
}

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the record's blob, and looks for what
// prevents replacing it, for an expiry, and for replication. It needs only the permission to read.
// No response shows lifecycle rules or the account's redundancy.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var is blob.GetPropertiesResponse
	err := d.election.Ready(ctx)
	if err == nil {
		is, err = d.b.blob.GetProperties(once(ctx), nil)
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		err = errors.New("leases, holds and policies are not known, since there is no record yet: ask again after somebody has led")
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining", err)
	}
	return examine(&is, d.b.native != nil), nil
}

// examine says what an answer tells of the blob. With native leases of ours a lease is nothing strange.
func examine(is *blob.GetPropertiesResponse, native bool) (warnings []durability.Warning) {
	warn := func(advice, detail string, args ...any) {
		warnings = append(warnings, durability.Warning{Detail: fmt.Sprintf(detail, args...), Advice: advice})
	}
	if isLeased(is.LeaseState) && !native {
		span := "a while"
		if is.LeaseDuration != nil && *is.LeaseDuration == lease.DurationTypeInfinite {
			span = "ever"
		}
		warn("break it (az storage blob lease break), or give all candidates Options.Leases if it is a leader's",
			"somebody else holds a native lease on the record for %s: meanwhile nobody can extend or acquire", span)
	}
	if is.LegalHold != nil && *is.LegalHold {
		warn("use a container without", "the blob is under a legal hold, which keeps it from being replaced: nobody can extend or acquire")
	}
	if until := is.ImmutabilityPolicyExpiresOn; until != nil {
		warn("use a container without", "an immutability policy keeps the blob from being replaced until %v: nobody can extend or acquire", until.UTC())
	}
	if when := is.ExpiresOn; when != nil {
		warn("remove the blob's expiry", "the record, and its count, is deleted at %v", when.UTC())
	}
	switch {
	case is.ObjectReplicationPolicyID != nil:
		warn("have all candidates name one and the same account, and no policy replicate into it",
			"object replication has written this record: it is a copy from another account, whose candidates lead as well, and replication ignores conditions")
	case len(is.ObjectReplicationRules) > 0:
		warn("start no candidate on the copy; after a fail-over to it, reset the record there when all candidates here have been stopped for a term",
			"the record is replicated to another account, and the copy lags behind")
	}
	return warnings
}
