// Package native keeps Azure's own leases on blobs for the leader of an election. It also has what the
// decider and the fence share: IfMatch and OfAzure.
package native

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
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
	l := &Leases{length: length, create: create, changed: changed, wrong: check(companions, length), blobs: []*target{{}}} // the record's, which Bind names
	for _, name := range companions {
		if !slices.ContainsFunc(l.blobs, named(name)) {
			l.blobs = append(l.blobs, l.target(name))
		}
	}
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

// Held returns the id of the leases of the leadership of tv, if those on the blobs of these
// names are held; without any, all of them.
func (l *Leases) Held(tv *leaderelection.TimeView, names ...string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.leads(tv)
	if err == nil {
		err = l.missing(names)
	}
	if err != nil {
		return "", l.failed("the native leases are not held", err)
	}
	return l.id, nil
}

// Acquire takes the lease on one blob now, makes the blob a companion, so that the lease is renewed
// with each extension, and returns the lease's id.
func (l *Leases) Acquire(ctx context.Context, tv *leaderelection.TimeView, name string) (string, error) {
	err := l.one(tv, "acquiring the lease on", name, func() error {
		id := l.id
		length, err := l.duration(l.term)
		if err != nil {
			return err
		}
		t, start := l.target(name), time.Now()
		if err := l.unlocked(func() error { return l.take(ctx, t, false, At{ID: id}, At{}, length) }); err != nil {
			return err
		}
		if l.id != id { // it runs out by itself
			return l.leads(tv)
		}
		l.leaving = slices.DeleteFunc(l.leaving, named(name))
		if i := slices.IndexFunc(l.blobs, named(name)); i >= 0 {
			t = l.blobs[i]
		} else {
			l.blobs = append(l.blobs, t)
		}
		l.won(t, start.Add(length))
		return nil
	})
	if err != nil {
		return "", err
	}
	return l.Held(tv, name) // the view may be over by now
}

// Release gives up the lease on a blob now, which is no longer a companion. If the lease cannot be
// released now, the next write releases it.
func (l *Leases) Release(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return l.one(tv, "releasing the lease on", name, func() error {
		i := slices.IndexFunc(l.blobs, named(name))
		if i <= 0 {
			return errors.New("the blob is not a companion")
		}
		t, id := l.blobs[i], l.id
		l.blobs = slices.Delete(slices.Clone(l.blobs), i, i+1) // a Follow goes on with the others
		l.lost(t, errLeft, nil)
		l.leaving = append(l.leaving, t)
		if err := l.unlocked(func() error { return release(ctx, t.Client, id) }); !gone(err) {
			return err
		}
		l.leaving = slices.DeleteFunc(l.leaving, func(o *target) bool { return o == t })
		return nil
	})
}

// Break ends any lease on a blob, at once.
func (l *Leases) Break(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return l.one(tv, "breaking the lease on", name, func() error {
		return l.unlocked(func() error { return Break(ctx, l.c.NewBlobClient(name), nil) })
	})
}

// one does something to the lease on one blob, and says what if that fails. L.mu is locked while do
// runs.
func (l *Leases) one(tv *leaderelection.TimeView, doing, name string, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.leads(tv)
	if err == nil && name == "" {
		err = errors.New("the blob has no name")
	}
	if err == nil {
		err = redact.Error(do())
	}
	if err != nil {
		return l.failed(fmt.Sprintf("%s %q", doing, name), err)
	}
	return nil
}

// unlocked makes a request. L.mu is locked before and after.
func (l *Leases) unlocked(request func() error) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	return request()
}

// leads returns why tv is not the view of a leadership of this Decider's campaign that lasts, or
// nil. L.mu is locked.
func (l *Leases) leads(tv *leaderelection.TimeView) error {
	switch {
	case tv == nil || !tv.ValueInFuture():
		return leaderelection.ErrNotLeading
	case tv.ElectionNumber() == leaderelection.NoElections || tv.ElectionNumber() != l.since:
		return fmt.Errorf("the leadership with token %d is not of this Decider's campaign: %w", tv.ElectionNumber(), leaderelection.ErrNotLeading)
	}
	return nil
}

// failed adds the place of the record. L.mu is locked.
func (l *Leases) failed(what string, err error) error {
	return fmt.Errorf("leaderelection/azlease: %s: %s: %w", cmp.Or(l.place, "no Decider"), what, err)
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
			if gone(errs[len(blobs)+i]) {
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
			return taken(next, r.LeaseID, err)
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
	case !bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) || !record && old.ETag == "":
		return taken(next, r.LeaseID, err)
	case record:
		err = Break(ctx, b, IfMatch(next.ETag))
	default:
		// If somebody else holds a companion, wait for that, 60 s at most. The
		// predecessor's view is over: its lease can go at once.
		err = release(ctx, b, old.ID)
	}
	if err != nil {
		return err
	}
	r, err = c.AcquireLease(ctx, int32(length/time.Second), only)
	return taken(next, r.LeaseID, err)
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
func taken(next At, id *string, err error) error {
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

// gone reports whether what release returned says that there is no lease of ours any more.
func gone(err error) bool {
	return err == nil || bloberror.HasCode(err, noLeaseOfOurs...) || bloberror.HasCode(err, bloberror.BlobNotFound)
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

// Break ends whatever lease is on a blob, if it is still the version of the condition, which may be nil.
func Break[T blob.Client | blockblob.Client](ctx context.Context, b *T, only *blob.ModifiedAccessConditions) error {
	c, err := lease.NewBlobClient(b, nil)
	if err != nil {
		return err
	}
	_, err = c.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32), ModifiedAccessConditions: only})
	if bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
		return nil // there is none, or it has just ended
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

// OfAzure reports whether the URL of a service, or of a blob, is of one of Azure's own clouds. Of a custom domain
// it is not known.
func OfAzure(service string) bool {
	u, err := url.Parse(service)
	if err != nil {
		return false
	}
	for _, cloud := range []string{".core.windows.net", ".storage.azure.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net"} {
		if strings.HasSuffix(u.Hostname(), cloud) {
			return true
		}
	}
	return false
}

// Event says that the leader holds the lease on a blob, or no longer does.
type Event struct {
	Blob  string
	Held  bool
	ID    string
	Until time.Time
	Err   error
}

// target is a blob, and what is known of the lease on it with the id of the current
// leadership.
type target struct {
	*blob.Client
	name  string
	until time.Time // it is held until then, if err is nil
	err   error
	held  bool        // as the last Event has it
	out   *time.Timer // until it runs out
}

var (
	errNotYet   = errors.New("it has not been taken yet")
	errRanOut   = errors.New("it has run out")
	errReleased = errors.New("it was released")
	errLeft     = errors.New("it is not a companion any more")
)

// named is for the blob of this name.
func named(name string) func(*target) bool { return func(t *target) bool { return t.name == name } }

func (l *Leases) target(name string) *target {
	t := &target{name: name, err: errNotYet}
	if l.c != nil { // else Bind does it
		t.Client = l.c.NewBlobClient(name)
	}
	return t
}

// noted takes in what has become of the leases. L.mu is locked.
func (l *Leases) noted(blobs []*target, errs []error, released bool, until time.Time) {
	for i, t := range blobs {
		switch {
		case !slices.Contains(l.blobs, t): // left meanwhile
		case released:
			l.lost(t, errReleased, nil)
		case errs[i] != nil:
			l.lost(t, errs[i], errs[i])
		default:
			l.won(t, until)
		}
	}
}

// won notes that a lease is held. L.mu is locked.
func (l *Leases) won(t *target, until time.Time) {
	t.stop()
	t.until, t.err = until, nil
	t.out = time.AfterFunc(time.Until(until), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.err == nil && t.until.Equal(until) {
			l.lost(t, errRanOut, errRanOut)
		}
	})
	if !t.held {
		t.held = true
		l.tell(Event{Blob: t.name, Held: true, ID: l.id, Until: until})
	}
}

// lost notes that a lease is not held, and tells so for this reason. L.mu is locked.
func (l *Leases) lost(t *target, why, told error) {
	t.stop()
	t.err = why
	if t.held {
		t.held = false
		l.tell(Event{Blob: t.name, ID: l.id, Err: told})
	}
}

func (t *target) stop() {
	if t.out != nil {
		t.out.Stop()
	}
}

// tell has the caller told, one event after the other, by a goroutine that nobody waits
// for. L.mu is locked.
func (l *Leases) tell(e Event) {
	if l.changed == nil {
		return
	}
	l.queue = append(l.queue, e)
	if l.telling {
		return
	}
	l.telling = true
	go func() {
		for {
			l.mu.Lock()
			if l.telling = len(l.queue) > 0; !l.telling {
				l.mu.Unlock()
				return
			}
			next := l.queue[0]
			l.queue = l.queue[1:]
			l.mu.Unlock()
			l.changed(next)
		}
	}()
}

// missing returns why the leases on the blobs of these names are not held, or without any those on all
// of them; or nil. L.mu is locked.
func (l *Leases) missing(names []string) error {
	var errs []error
	for _, t := range l.blobs {
		switch {
		case len(names) > 0 && !slices.Contains(names, t.name):
		case t.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", t.name, t.err))
		case !time.Now().Before(t.until): // and the timer is late
			errs = append(errs, fmt.Errorf("%s: %w", t.name, errRanOut))
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(l.blobs, named(name)) {
			errs = append(errs, fmt.Errorf("%s is not a companion: see Companions", name))
		}
	}
	return errors.Join(errs...)
}

// Of returns the id of the leases of a leadership of this Decider's campaign; else empty.
func (l *Leases) Of(number leaderelection.ElectionNumber) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number == leaderelection.NoElections || number != l.since {
		return ""
	}
	return l.id
}
