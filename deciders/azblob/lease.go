package azblob

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/c8e606e4/leaderelection"
)

// NativeLease makes the leader hold Azure's own lease on the record's blob and on
// its companions, so that Azure itself refuses whoever writes or deletes them
// without naming the lease: programs that know nothing of the election, and
// leaders of earlier leaderships. See the package's documentation.
type NativeLease struct {
	// Companions are other blobs of the same container that the leader leases
	// along with the record: what only the leader may change. They must exist;
	// an empty one will do. Each costs a request with every extension.
	Companions []string
	// Duration of the leases, 15 to 60 s in whole seconds. It must not be less
	// than the campaign's TermLength: a lease then never runs out before the
	// leader's view does. With a longer term no leases are taken, and Leased
	// says so. Zero: the TermLength, or 15 s where that is shorter.
	Duration time.Duration
}

// Leased returns the access conditions with which the leader whose view is tv
// reads and writes the blobs under its native lease: give them to each request
// that changes a companion, and Azure refuses it (412) once the lease has passed
// to a later leader, however late it arrives. Ask anew before each act, as for
// tv.ValueInFuture.
//
// It returns an error that wraps leaderelection.ErrExpired where the view is over
// or belongs to no leadership of this Decider's campaign, and another one where the
// leases are not, or no longer, all held: each extension tries again to take
// what is missing. A Decider without Options.NativeLease has none.
func (d *Decider) Leased(tv *leaderelection.TimeView) (*blob.LeaseAccessConditions, error) {
	if d.b.native == nil {
		return nil, fmt.Errorf("leaderelection/azblob: %s: there are no native leases: set Options.NativeLease", d.election.Place)
	}
	if tv == nil || !tv.ValueInFuture() {
		return nil, fmt.Errorf("leaderelection/azblob: the native leases of %s: %w", d.election.Place, leaderelection.ErrExpired)
	}
	id, err := d.b.native.Held(tv.ElectionNumber())
	if err != nil {
		return nil, fmt.Errorf("leaderelection/azblob: the native leases of %s are not held: %w", d.election.Place, err)
	}
	return &blob.LeaseAccessConditions{LeaseID: &id}, nil
}
