/*
Package azlease lets the leader of an election in Azure hold Azure's own leases, on the record's
blob and on others.

A lease lasts 15 to 60 s. During that time Azure lets only requests that name the lease's id write
or delete the blob (https://learn.microsoft.com/rest/api/storageservices/lease-blob). Azure enforces
this against everybody, even against programs that know nothing of elections. Leases do not decide
the election: they have no fencing token, and do not say when it is safe to act.

The leader leases the record's blob and the companions, the blobs that only the leader may change.
It renews the leases with each extension, and gives them up with its release.

	leases := azlease.New(&azlease.Options{Companions: []string{"nightly/report"}})
	d := azblob.NewDecider(client, "elections", "nightly", &azblob.Options{Leases: leases})
	...
	OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
		only, err := leases.Held(view, "nightly/report")
		...
		client.UploadBuffer(ctx, "elections", "nightly/report", report, &azblob.UploadBufferOptions{
			AccessConditions: &blob.AccessConditions{LeaseAccessConditions: only},
		})
	}

The lease's id follows from the leadership. If a deposed leader's request arrives after its
successor has taken over, it names another id, and Azure refuses it.

A successor that has won the record breaks or releases the old leader's leases, and takes them
itself. It also breaks another's lease on the record's blob. If somebody else has leased a
companion, it waits, and [Leases.Held] returns an error for that blob until then. If somebody breaks
a lease, the next extension notices it, and takes the lease again when Azure allows it. Until then
Azure refuses requests that name it. [Options.Changed] is called for each lease that was acquired or
lost.

The leases come after the record: trouble with them never costs the leader its leadership. The lease
on the record's own blob protects it from being deleted by mistake. Every writer of the record
computes the leader's id from the record and names it. So operators can ask for a hand-over while a
lease is held, even with a Decider that has no leases.

For single blobs use [Leases.Acquire], which takes a lease at once and keeps it renewed,
[Leases.Release], and [Leases.Break], which ends a lease that somebody else left.

Each extension makes one more request per leased blob: with two companions it makes four.
*/
package azlease

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob/internal/native"
)

// Options says which leases the leader holds, and for how long. The zero value leases the
// record's blob.
type Options struct {
	// Companions are other blobs of the same container that the leader leases with the record:
	// blobs that only the leader may change. They must exist, unless CreateCompanions is set.
	// Each costs a request with every extension. Acquire and Release change them later.
	Companions []string
	// CreateCompanions makes missing companions, as empty blobs.
	CreateCompanions bool
	// Changed is called for each blob whose lease the leader has acquired or lost, even if by a
	// release, because somebody broke it, or because it ran out. Its calls follow one another
	// in a goroutine of their own, and may take their time. Nil: nothing is called.
	Changed func(Event)
	// Duration is that of the leases, 15 to 60 s in whole seconds. It must not be less than the
	// campaign's TermLength: then a lease never runs out before the leader's view ends. With a
	// longer term no leases are taken, and Held says so. Zero: the TermLength, or 15 s if that
	// is shorter.
	Duration time.Duration
}

// Event says that the leader holds the lease on a blob, or does not any more.
type Event struct {
	Blob  string    // its name, in the record's container
	Held  bool      // false: it was held before
	ID    string    // the lease's id
	Until time.Time // of one that was acquired: until when it is held if it is not renewed
	Err   error     // why it was lost; nil: it was given up by choice
}

// Leases are those of one campaign. Give them to its Decider by azblob.Options, and to no other.
// Make them by New. All methods may be called by several goroutines at once.
type Leases native.Leases

// New returns leases that nobody holds yet. Options may be nil. The Decider's first call reports
// what is wrong with them.
func New(o *Options) *Leases {
	if o == nil {
		o = &Options{}
	}
	var changed func(native.Event)
	if told := o.Changed; told != nil {
		changed = func(e native.Event) { told(Event(e)) }
	}
	return (*Leases)(native.New(o.Companions, o.Duration, o.CreateCompanions, changed))
}

// Held returns the access conditions with which the leader whose view is tv reads and writes the
// leased blobs. Give them to each request that changes a companion. Once the lease has passed to a
// later leader, Azure refuses the request (412), however late it arrives. Ask again before each
// act, as for tv.ValueInFuture.
//
// Pass the blobs' names in the container: each is judged separately. Without names all must be
// held, the record's and every companion's.
//
// If the view has ended, or belongs to no leadership of this campaign, the error wraps
// leaderelection.ErrNotLeading. If the leases are not held, it is another error, and each extension
// tries again to take what is missing.
func (l *Leases) Held(tv *leaderelection.TimeView, blobs ...string) (*blob.LeaseAccessConditions, error) {
	return conditions((*native.Leases)(l).Held(tv, blobs...))
}

// Acquire takes Azure's lease on one blob of the record's container now, for the leadership of tv.
// The blob becomes a companion: each extension renews the lease, and Changed is called for it.
// Acquire returns the conditions for requests that change the blob, as Held does. If the blob is
// missing and Options.CreateCompanions is set, it makes the blob.
//
// If another holds the blob's lease, the error is Azure's LeaseAlreadyPresent, and the lease stays.
// Break ends it. If the view has ended, or belongs to no leadership of this campaign, the error
// wraps leaderelection.ErrNotLeading.
func (l *Leases) Acquire(ctx context.Context, tv *leaderelection.TimeView, name string) (*blob.LeaseAccessConditions, error) {
	return conditions((*native.Leases)(l).Acquire(ctx, tv, name))
}

// Release gives up the lease on one companion now, for the leadership of tv. The blob is no longer
// a companion. If Azure does not answer, Release returns an error, and the next extension gives up
// the lease.
func (l *Leases) Release(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return (*native.Leases)(l).Release(ctx, tv, name)
}

// Break ends any lease on a blob of the record's container at once, while the leadership of tv
// lasts. The lease may even be of a program that knows nothing of the election. If there is none
// Break does nothing. A lease of this leadership is taken again with the next extension.
func (l *Leases) Break(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return (*native.Leases)(l).Break(ctx, tv, name)
}

func conditions(id string, err error) (*blob.LeaseAccessConditions, error) {
	if err != nil {
		return nil, err
	}
	return &blob.LeaseAccessConditions{LeaseID: &id}, nil
}
