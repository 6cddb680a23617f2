package native

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/c8e606e4/leaderelection"
)

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
