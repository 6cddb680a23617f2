// Package native keeps Azure's own leases on blobs for the leader of an election.
package native

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// Azure's limits of a lease that is not for ever.
const (
	minLease = 15 * time.Second
	maxLease = 60 * time.Second
)

// Leases are the native leases of the campaign that uses a Decider. They never delay the election:
// the record is written first. Held reports what becomes of the leases after that.
type Leases struct {
	c       *container.Client // nil until Bind, as place
	place   string
	length  time.Duration // 0: as the term
	create  bool          // companions that are missing
	changed func(Event)   // may be nil
	wrong   error         // what Azure would not allow, for Bind

	mu      sync.Mutex
	id      string // of the leadership that this Decider wrote the acquisition of
	since   leaderelection.ElectionNumber
	term    time.Duration // of the campaign, by its last write
	blobs   []*target     // the record's first
	leaving []*target     // are not companions any more, and still to be released
	queue   []Event
	telling bool
}

// New returns the leases on the record's blob and on its companions, for Bind. They last for
// length, or for the campaign's term if length is 0. Create makes missing companions. Changed may
// be nil.
func New(companions []string, length time.Duration, create bool, changed func(Event)) *Leases {
	l := &Leases{length: length, create: create, changed: changed, wrong: check(companions, length)}
	l.set(companions)
	return l
}

// check says what Azure would not allow of companions and length.
func check(companions []string, length time.Duration) error {
	if length != 0 && (length < minLease || length > maxLease || length%time.Second != 0) {
		return fmt.Errorf("the leases' Duration is %v, must be 15 to 60 whole seconds: %w", length, leaderelection.ErrPermanent)
	}
	if slices.Contains(companions, "") {
		return fmt.Errorf("one of the Companions has no name: %w", leaderelection.ErrPermanent)
	}
	return nil
}

// duration is how long leases are to last for a campaign with this term.
func (l *Leases) duration(term time.Duration) (time.Duration, error) {
	d := l.length
	if d == 0 {
		d = max(minLease, (min(term, maxLease) + time.Second - 1).Truncate(time.Second))
	}
	if d < term {
		return 0, fmt.Errorf("TermLength is %v, and a native lease of %v would run out within the term: shorten the term, or lengthen the leases' Duration (60 s at most)", term, d)
	}
	return d, nil
}

// Inherit has l take over from the leases of another Decider of the same campaign, whose client is
// given up: those of its leadership are l's to renew and to release. Call it before l is used.
func (l *Leases) Inherit(from *Leases) {
	from.mu.Lock()
	defer from.mu.Unlock()
	l.id, l.since, l.term = from.id, from.since, from.term
}

// At is a version of the record's blob, and the lease that goes with it.
type At struct {
	ETag azcore.ETag // empty: there is no blob
	ID   string      // of the lease of the leadership that the record tells of
}

// ID is the id of the native lease of a leadership. Everybody can compute it from the record, so
// that an operator's request and a successor's claim can name the lease of the leader that they
// write over. It is not a secret: leases keep out programs that do not know of the election, not
// malicious ones.
func ID(number leaderelection.ElectionNumber, incarnation string) string {
	h := sha256.Sum256([]byte(strconv.FormatUint(uint64(number), 10) + " " + incarnation))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // a UUID of version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Claim reports whether entry is written for this Decider's own campaign: to begin a leadership, or
// to extend or release the same one. An operator's request for another's leadership is not.
func (l *Leases) Claim(old At, entry *leaderelection.RaceEntry) bool {
	id := ID(entry.ElectionNumber, entry.Incarnation)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !entry.Vacant() && (old.ETag == "" || old.ID != id) && l.id != id {
		for _, t := range l.blobs {
			l.lost(t, errNotYet, errNotYet)
		}
		l.id, l.since = id, entry.ElectionNumber
	}
	return l.id == id
}

// Follow makes the native leases match entry, which has been written as next. It reports whether
// the record's blob is now under the lease of entry's leadership. It takes at most an eighth of the
// term, half of a campaign's limit for a call, so that the leases never delay the write's response
// beyond it.
func (l *Leases) Follow(ctx context.Context, old At, entry *leaderelection.RaceEntry, next At) bool {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, max(entry.TermLength/8, 50*time.Millisecond))
	defer cancel()

	l.mu.Lock()
	blobs, leaving := slices.Clone(l.blobs), slices.Clone(l.leaving)
	if l.id == next.ID {
		l.term = entry.TermLength
	}
	l.mu.Unlock()
	length, tooLong := l.duration(entry.TermLength)
	errs := make([]error, len(blobs)+len(leaving))
	var wg sync.WaitGroup
	for i, t := range slices.Concat(blobs, leaving) {
		wg.Go(func() {
			switch {
			case entry.Vacant() || i >= len(blobs):
				errs[i] = release(ctx, t.Client, next.ID)
			case tooLong != nil:
				errs[i] = tooLong
			default:
				errs[i] = l.take(ctx, t, i == 0, next, old, length)
			}
			errs[i] = redact.Error(errs[i])
		})
	}
	wg.Wait()

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == next.ID {
		l.noted(blobs, errs, entry.Vacant(), start.Add(length))
		for i, t := range leaving {
			if err := errs[len(blobs)+i]; err == nil || bloberror.HasCode(err, append(noLeaseOfOurs, bloberror.BlobNotFound)...) {
				l.leaving = slices.DeleteFunc(l.leaving, func(o *target) bool { return o == t })
			}
		}
	}
	return errs[0] == nil && !entry.Vacant()
}

// take renews the lease of next's leadership on a blob, or takes it. Record says that it
// is the record's.
func (l *Leases) take(ctx context.Context, t *target, record bool, next, old At, length time.Duration) error {
	b := t.Client
	c, err := leaseClient(b, next.ID)
	if err != nil {
		return err
	}
	if old.ETag != "" && old.ID == next.ID {
		r, err := c.RenewLease(ctx, nil)
		if err == nil || !bloberror.HasCode(err, noLeaseOfOurs...) && !(l.create && bloberror.HasCode(err, bloberror.BlobNotFound)) {
			return l.taken(next, r.LeaseID, err)
		}
	}
	// On the record's blob only while it is still the version just written: a
	// candidate that was stopped here and has been succeeded meanwhile must not
	// take the lease, let alone break its successor's.
	only := &lease.BlobAcquireOptions{}
	if record {
		only.ModifiedAccessConditions = IfMatch(next.ETag)
	}
	r, err := c.AcquireLease(ctx, int32(length/time.Second), only)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound) && l.create && !record:
		err = l.make(ctx, t.name)
	case !bloberror.HasCode(err, bloberror.LeaseAlreadyPresent):
		return l.taken(next, r.LeaseID, err)
	case record:
		err = Break(ctx, b, next.ETag)
	default:
		// If somebody else holds a companion, wait for that, 60 s at most. The
		// predecessor's view is over: its lease can go at once.
		err = release(ctx, b, old.ID)
	}
	if err != nil {
		return err
	}
	r, err = c.AcquireLease(ctx, int32(length/time.Second), only)
	return l.taken(next, r.LeaseID, err)
}

// make makes an empty companion. If another has made it, that is not an error.
func (l *Leases) make(ctx context.Context, name string) error {
	_, err := l.c.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(strings.NewReader("")),
		&blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: IfMatch("")}})
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.LeaseIDMissing) {
		return nil
	}
	return err
}

// taken is err, or one of its own unless the answer names the lease, as Azure's do.
func (l *Leases) taken(next At, id *string, err error) error {
	if err == nil && (id == nil || *id != next.ID) {
		err = errors.New("the response does not name the lease: it is not from the store")
	}
	return err
}

// noLeaseOfOurs is how Azure says that a lease cannot be renewed, but that
// another could perhaps be acquired.
var noLeaseOfOurs = []bloberror.Code{
	bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseNotPresentWithLeaseOperation,
	bloberror.LeaseIsBrokenAndCannotBeRenewed, bloberror.LeaseLost,
}

// release gives up the lease with this id if there is one.
func release(ctx context.Context, b *blob.Client, id string) error {
	c, err := leaseClient(b, id)
	if err == nil {
		_, err = c.ReleaseLease(ctx, nil)
	}
	return err
}

func leaseClient(b *blob.Client, id string) (*lease.BlobClient, error) {
	return lease.NewBlobClient(b, &lease.BlobClientOptions{LeaseID: &id})
}

// Break ends whatever lease is on a blob that is still the version etag.
func Break[T blob.Client | blockblob.Client](ctx context.Context, b *T, etag azcore.ETag) error {
	c, err := lease.NewBlobClient(b, nil)
	if err != nil {
		return err
	}
	_, err = c.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32), ModifiedAccessConditions: IfMatch(etag)})
	if bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
		return nil // it has just ended
	}
	return err
}

// IfMatch is the condition that the blob is this version, or that there is none if etag is empty.
func IfMatch(etag azcore.ETag) *blob.ModifiedAccessConditions {
	if etag == "" {
		any := azcore.ETagAny
		return &blob.ModifiedAccessConditions{IfNoneMatch: &any}
	}
	return &blob.ModifiedAccessConditions{IfMatch: &etag}
}

// Bind gives these leases to the Decider whose record is the blob of this name in c. It returns an
// error if Azure would not allow them, or if they have a Decider already.
func (l *Leases) Bind(c *container.Client, name, place string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		return fmt.Errorf("the leases are those of %s already: each Decider needs its own: %w", l.place, leaderelection.ErrPermanent)
	}
	l.c, l.place = c, place
	if len(l.blobs) == 0 {
		l.blobs = []*target{nil}
	}
	l.blobs[0] = l.target(name)
	for _, t := range l.blobs[1:] {
		t.Client = c.NewBlobClient(t.name)
	}
	return l.wrong
}

// Replace makes these the companions, unless one has no name.
func (l *Leases) Replace(names []string) error {
	if err := check(names, 0); err != nil {
		return fmt.Errorf("leaderelection/azlease: the companions of %s: %w", l.at(), err)
	}
	l.set(names)
	return nil
}

// Held returns the id of the leases of the leadership of tv, if those on the blobs of these
// names are held; without any, all of them.
func (l *Leases) Held(tv *leaderelection.TimeView, blobs ...string) (string, error) {
	if err := l.may(tv); err != nil {
		return "", err
	}
	id, err := l.held(tv.ElectionNumber(), blobs...)
	if err != nil {
		return "", fmt.Errorf("leaderelection/azlease: the native leases of %s are not held: %w", l.at(), err)
	}
	return id, nil
}

// Acquire takes the lease on one blob now, makes the blob a companion and returns the lease's id.
func (l *Leases) Acquire(ctx context.Context, tv *leaderelection.TimeView, name string) (string, error) {
	err := l.one(tv, "acquiring the lease on", name, func() error {
		_, err := l.acquireFor(ctx, tv.ElectionNumber(), name)
		return err
	})
	if err != nil {
		return "", err
	}
	return l.Held(tv, name) // the view may be over by now
}

// Release gives up the lease on a blob now, which is no longer a companion.
func (l *Leases) Release(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return l.one(tv, "releasing the lease on", name, func() error { return l.releaseFor(ctx, tv.ElectionNumber(), name) })
}

// Break ends any lease on a blob, at once.
func (l *Leases) Break(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return l.one(tv, "breaking the lease on", name, func() error { return l.breakFor(ctx, tv.ElectionNumber(), name) })
}

// may returns why the leader whose view is tv has no leases, or nil.
func (l *Leases) may(tv *leaderelection.TimeView) error {
	if tv == nil || !tv.ValueInFuture() {
		return fmt.Errorf("leaderelection/azlease: the native leases of %s: %w", l.at(), leaderelection.ErrNotLeading)
	}
	return nil
}

// one does something to the lease on one blob, and says what if that fails.
func (l *Leases) one(tv *leaderelection.TimeView, doing, name string, do func() error) error {
	if err := l.may(tv); err != nil {
		return err
	}
	err := errors.New("the blob has no name")
	if name != "" {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("leaderelection/azlease: %s: %s %q: %w", l.at(), doing, name, err)
	}
	return nil
}

// at names the place of the record.
func (l *Leases) at() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.place == "" {
		return "no Decider"
	}
	return l.place
}
