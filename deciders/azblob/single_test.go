package azblob_test

import (
	"errors"
	"testing"
	"time"

	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// A leader locks one blob after another as people who lock blobs do: acquire, write, release; and
// break what a stranger has left.
func TestLeasesOfSingleBlobs(t *testing.T) {
	stores.Nightly(t, "leases of a minute by the wall clock")
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		for _, name := range []string{companion, "a", "b"} {
			if err := overwrite(t, c, name, nil); err != nil {
				t.Fatal(err)
			}
		}
		d := native(c)
		if _, err := d.Acquire(t.Context(), &leaderelection.TimeView{}, "a"); !errors.Is(err, leaderelection.ErrNotLeading) {
			t.Errorf("by a view that is over: %v", err)
		}
		l := lead(t, d, 15*time.Second)
		only, err := d.Acquire(t.Context(), l.view, "a")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := d.Acquire(t.Context(), l.view, "a"); err != nil || *again.LeaseID != *only.LeaseID {
			t.Errorf("once more: %v", err)
		}
		wantCode(t, "a stranger's write", overwrite(t, c, "a", nil), bloberror.LeaseIDMissing)
		if err := overwrite(t, c, "a", only); err != nil {
			t.Error(err)
		}
		if _, err := d.Held(l.view); err != nil { // a companion like the others
			t.Error(err)
		}
		if err := d.Release(t.Context(), l.view, "a"); err != nil {
			t.Error(err)
		}
		if err := overwrite(t, c, "a", nil); err != nil {
			t.Errorf("after the release: %v", err)
		}
		if _, err := d.Held(l.view, "a"); err == nil {
			t.Error("it is leased after the release")
		}
		if err := d.Release(t.Context(), l.view, "a"); err == nil {
			t.Error("it is released twice")
		}
		if err := d.Release(t.Context(), l.view, recordBlob); err == nil {
			t.Error("the record's lease is released")
		}

		strangers, err := lease.NewBlobClient(c.ServiceClient().NewContainerClient(containerName).NewBlobClient("b"), nil)
		if err == nil {
			_, err = strangers.AcquireLease(t.Context(), 60, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Acquire(t.Context(), l.view, "b")
		wantCode(t, "what a stranger has leased", err, bloberror.LeaseAlreadyPresent)
		if _, err := d.Held(l.view); err != nil {
			t.Errorf("what could not be acquired is a companion: %v", err)
		}
		for range 2 { // the second finds none
			if err := d.Break(t.Context(), l.view, "b"); err != nil {
				t.Error(err)
			}
		}
		if only, err = d.Acquire(t.Context(), l.view, "b"); err != nil {
			t.Fatal(err)
		}
		if err := overwrite(t, c, "b", only); err != nil {
			t.Error(err)
		}
		_, err = d.Acquire(t.Context(), l.view, "missing")
		wantCode(t, "what is not there", err, bloberror.BlobNotFound)
		if _, err = d.Acquire(t.Context(), l.view, ""); err == nil {
			t.Error("a blob without a name is leased")
		}
		l.stop() // releases all of them
		if err := overwrite(t, c, "b", nil); err != nil {
			t.Errorf("after the leadership: %v", err)
		}
		for what, err := range map[string]error{"release": d.Release(t.Context(), l.view, "b"), "break": d.Break(t.Context(), l.view, "b")} {
			if !errors.Is(err, leaderelection.ErrNotLeading) {
				t.Errorf("%s after the leadership: %v", what, err)
			}
		}
	})
}
