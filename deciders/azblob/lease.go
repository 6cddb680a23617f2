package azblob

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob/internal/native"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// NativeLease makes the leader hold Azure's own lease on the record's blob and on
// its companions, so that Azure itself refuses whoever writes or deletes them
// without naming the lease: programs that know nothing of the election, and
// leaders of earlier leaderships. See the package's documentation.
type NativeLease struct {
	// Companions are other blobs of the same container that the leader leases
	// along with the record: what only the leader may change. They must exist,
	// or see CreateCompanions. Each costs a request with every extension.
	// Decider.SetCompanions changes them later.
	Companions []string
	// CreateCompanions makes those that are missing, empty.
	CreateCompanions bool
	// Changed is told of each blob whose lease the leader has acquired or lost: also by
	// a release, if somebody breaks it, and if it runs out. It is called for one event after
	// the other, by a goroutine of its own, and may take its time. Nil: nobody.
	Changed func(LeaseEvent)
	// Duration of the leases, 15 to 60 s in whole seconds. It must not be less
	// than the campaign's TermLength: a lease then never runs out before the
	// leader's view does. With a longer term no leases are taken, and Leased
	// says so. Zero: the TermLength, or 15 s where that is shorter.
	Duration time.Duration
}

// LeaseEvent says that the leader holds the native lease on a blob, or does not any more.
type LeaseEvent struct {
	Blob  string    // its name, in the record's container
	Held  bool      // false: it was held before
	ID    string    // the lease's id
	Until time.Time // of one that was acquired: until when it is held if it is not renewed
	Err   error     // why it was lost; nil: it was given up by choice
}

// SetCompanions makes these the companions of this Decider, in place of
// NativeLease.Companions. With its next write, an extension most often, the leader leases
// those that are new, and gives up the leases of those that are none any more. It returns
// an error, and changes nothing, without Options.NativeLease or if a name is empty.
func (d *Decider) SetCompanions(names ...string) error {
	err := errNoLeases
	if d.b.native != nil {
		err = native.Check(names, 0)
	}
	if err != nil {
		return fmt.Errorf("leaderelection/azblob: the companions of %s: %w", d.election.Place, err)
	}
	d.b.native.Set(names)
	return nil
}

// LeaseID returns the id of the native leases of a leadership of this Decider's campaign,
// whether they are held or not; empty if there is none, or without Options.NativeLease.
// It is what a program that writes companions for the leader needs.
func (d *Decider) LeaseID(election leaderelection.ElectionNumber) string {
	if d.b.native == nil {
		return ""
	}
	return d.b.native.Of(election)
}

var errNoLeases = store.Wrong("there are no native leases: set Options.NativeLease")

// Leased returns the access conditions with which the leader whose view is tv
// reads and writes the blobs under its native lease: give them to each request
// that changes a companion, and Azure refuses it (412) once the lease has passed
// to a later leader, however late it arrives. Ask anew before each act, as for
// tv.ValueInFuture.
//
// Name the blobs that it is for, by their names in the container: each is judged by
// itself. Without names all must be held, the record's and every companion's.
//
// It returns an error that wraps leaderelection.ErrExpired where the view is over
// or belongs to no leadership of this Decider's campaign, and another one where the
// leases are not, or no longer, held: each extension tries again to take
// what is missing. A Decider without Options.NativeLease has none.
func (d *Decider) Leased(tv *leaderelection.TimeView, blobs ...string) (*blob.LeaseAccessConditions, error) {
	if err := d.mayLease(tv); err != nil {
		return nil, err
	}
	id, err := d.b.native.Held(tv.ElectionNumber(), blobs...)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/azblob: the native leases of %s are not held: %w", d.election.Place, err)
	}
	return &blob.LeaseAccessConditions{LeaseID: &id}, nil
}

// AcquireLease takes Azure's lease on one blob of the record's container now, for the leadership
// of tv, and has it renewed with each extension: the blob is a companion from now on, and its
// events go to Changed. It returns the conditions for requests that change the blob, as
// Leased does. A blob that is missing is made if NativeLease.CreateCompanions is set.
//
// Whoever holds its lease is not disturbed: the error is then Azure's LeaseAlreadyPresent, and
// BreakLease ends that lease. It returns an error that wraps leaderelection.ErrExpired if the
// view is over, or belongs to no leadership of this Decider's campaign.
func (d *Decider) AcquireLease(ctx context.Context, tv *leaderelection.TimeView, name string) (*blob.LeaseAccessConditions, error) {
	err := d.mayLease(tv)
	if err == nil {
		err = d.oneLease("acquiring the lease on", name, func() error {
			_, err := d.b.native.Acquire(ctx, tv.ElectionNumber(), name)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return d.Leased(tv, name) // the view may be over by now
}

// ReleaseLease gives up the lease on one companion now, for the leadership of tv; it is no
// companion any more. If Azure cannot be asked, the error says so, and the lease is given up with
// the next extension.
func (d *Decider) ReleaseLease(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	if err := d.mayLease(tv); err != nil {
		return err
	}
	return d.oneLease("releasing the lease on", name, func() error { return d.b.native.Release(ctx, tv.ElectionNumber(), name) })
}

// BreakLease ends whatever lease is on a blob of the record's container at once, also one of a
// program that knows nothing of the election, while the leadership of tv lasts. If there is
// none it does nothing. One of this leadership's own is taken again with the next extension.
func (d *Decider) BreakLease(ctx context.Context, tv *leaderelection.TimeView, name string) error {
	if err := d.mayLease(tv); err != nil {
		return err
	}
	return d.oneLease("breaking the lease on", name, func() error { return d.b.native.Break(ctx, tv.ElectionNumber(), name) })
}

// mayLease returns why the leader whose view is tv has no native leases, or nil.
func (d *Decider) mayLease(tv *leaderelection.TimeView) error {
	switch {
	case d.b.native == nil:
		return fmt.Errorf("leaderelection/azblob: %s: %w", d.election.Place, errNoLeases)
	case tv == nil || !tv.ValueInFuture():
		return fmt.Errorf("leaderelection/azblob: the native leases of %s: %w", d.election.Place, leaderelection.ErrExpired)
	}
	return nil
}

// oneLease does something to the lease on one blob, and says what if that fails.
func (d *Decider) oneLease(doing, name string, do func() error) error {
	err := native.Check([]string{name}, 0)
	if err == nil {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("leaderelection/azblob: %s: %s %q: %w", d.election.Place, doing, name, err)
	}
	return nil
}
