/*
Package azlease makes the leader of an election in Azure hold Azure's own leases, on the
record's blob and on others.

For 15 to 60 s only requests that name a lease's id may write or delete its blob
(https://learn.microsoft.com/rest/api/storageservices/lease-blob). Leases do not
decide the election, for they know neither a fencing token nor when it is safe
to act. But Azure enforces them against everybody, even against programs that
know nothing of elections. The leader leases the record's blob and the companions, the
blobs that only the leader may change, renews the leases with each extension, and gives
them up with its release.

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

The lease's id follows from the leadership: a request that a deposed leader sent, and
that arrives when its successor has taken over, names another id, and Azure
refuses it. A successor that has won the record breaks or releases the old
leader's leases and takes them itself; a companion that somebody else has leased
is waited for, and [Leases.Held] returns an error for that blob until then. A lease that
somebody breaks is noticed by the next extension, and taken again when Azure allows it; until
then Azure itself refuses what names it. [Options.Changed] hears of each lease that was
acquired or lost. Every writer of the record
works out the leader's id from the record and names it, so operators can ask for
a hand-over while a lease is held, even with a Decider that has no leases.
That the record's own blob is leased keeps it from being deleted by mistake. The
leases come after the record, and trouble with them never costs the leader its
leadership.

Single blobs are locked by [Leases.Acquire], which takes the lease at once and has it renewed,
[Leases.Release], and [Leases.Break], for what somebody else has left leased.

One renewal per blob is added to each extension: with two companions an extension
is four requests. A lease of another that is found on the record's blob is broken.
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
	// Companions are other blobs of the same container that the leader leases
	// along with the record: what only the leader may change. They must exist,
	// or see CreateCompanions. Each costs a request with every extension.
	// SetCompanions changes them later.
	Companions []string
	// CreateCompanions makes those that are missing, empty.
	CreateCompanions bool
	// Changed is told of each blob whose lease the leader has acquired or lost: also by
	// a release, if somebody breaks it, and if it runs out. It is called for one event after
	// the other, by a goroutine of its own, and may take its time. Nil: nobody.
	Changed func(Event)
	// Duration of the leases, 15 to 60 s in whole seconds. It must not be less
	// than the campaign's TermLength: a lease then never runs out before the
	// leader's view does. With a longer term no leases are taken, and Held
	// says so. Zero: the TermLength, or 15 s if that is shorter.
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

// Leases are those of one campaign. Give them to its Decider by azblob.Options, and to no
// other's. Make them by New. All methods may be called by several goroutines at once.
type Leases native.Leases

// New returns leases that nobody holds yet. Options may be nil. The Decider's first
// call tells what is wrong with them.
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

// SetCompanions makes these the companions, in place of Options.Companions. With its next
// write, an extension most often, the leader leases those that are new, and gives up the
// leases of those that are none any more. If a name is empty it returns an error, and
// changes nothing.
func (l *Leases) SetCompanions(names ...string) error { return (*native.Leases)(l).Replace(names) }

// Held returns the access conditions with which the leader whose view is tv
// reads and writes the blobs under its lease: give them to each request
// that changes a companion, and Azure refuses it (412) once the lease has passed
// to a later leader, however late it arrives. Ask again before each act, as for
// tv.ValueInFuture.
//
// Name the blobs that it is for, by their names in the container: each is judged by
// itself. Without names all must be held, the record's and every companion's.
//
// It returns an error that wraps leaderelection.ErrNotLeading if the view is over
// or belongs to no leadership of this campaign, and another one if the
// leases are not, or no longer, held: each extension tries again to take
// what is missing.
func (l *Leases) Held(tv *leaderelection.TimeView, blobs ...string) (*blob.LeaseAccessConditions, error) {
	return conditions((*native.Leases)(l).Held(tv, blobs...))
}

// Acquire takes Azure's lease on one blob of the record's container now, for the leadership
// of tv, and has it renewed with each extension: the blob is a companion from now on, and its
// events go to Changed. It returns the conditions for requests that change the blob, as
// Held does. A blob that is missing is made if Options.CreateCompanions is set.
//
// If another holds the blob's lease, Acquire leaves that lease alone: the error is then Azure's
// LeaseAlreadyPresent, and Break ends that lease. It returns an error that wraps
// leaderelection.ErrNotLeading if the view is over, or belongs to no leadership of this campaign.
func (l *Leases) Acquire(ctx context.Context, tv *leaderelection.TimeView, name string) (*blob.LeaseAccessConditions, error) {
	return conditions((*native.Leases)(l).Acquire(ctx, tv, name))
}

// Release gives up the lease on one companion now, for the leadership of tv. The blob is no
// longer a companion. If Azure cannot be asked, the error says so, and the next extension gives
// up the lease.
func (l *Leases) Release(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return (*native.Leases)(l).Release(ctx, tv, name)
}

// Break ends whatever lease is on a blob of the record's container at once, also one of a
// program that knows nothing of the election, while the leadership of tv lasts. If there is
// none it does nothing. One of this leadership's own is taken again with the next extension.
func (l *Leases) Break(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	return (*native.Leases)(l).Break(ctx, tv, name)
}

func conditions(id string, err error) (*blob.LeaseAccessConditions, error) {
	if err != nil {
		return nil, err
	}
	return &blob.LeaseAccessConditions{LeaseID: &id}, nil
}
