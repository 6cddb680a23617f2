//go:build go1.25

package azblob_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// leaseEvents are what a decider has told of its leases. That a request took longer than
// the decider allows, as it may on a busy machine, is left out, and so is the lease's return.
type leaseEvents struct {
	told chan azlease.Event
	late map[string]bool
}

// next are the next n, in the order of the lengths of the blobs' names.
func (l leaseEvents) next(t *testing.T, n int) []azlease.Event {
	t.Helper()
	var got []azlease.Event
	for len(got) < n {
		select {
		case e := <-l.told:
			switch {
			case errors.Is(e.Err, context.DeadlineExceeded):
				l.late[e.Blob] = true
			case e.Held && l.late[e.Blob]:
				l.late[e.Blob] = false
			default:
				got = append(got, e)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d events, want %d: %+v", len(got), n, got)
		}
	}
	slices.SortFunc(got, func(a, b azlease.Event) int { return len(a.Blob) - len(b.Blob) })
	return got
}

// Companions are made if they are missing, judged each by itself, and may change; what
// becomes of each lease is told.
func TestNativeLeaseCompanions(t *testing.T) {
	stores.Nightly(t, "leases of a minute by the wall clock")
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		events := leaseEvents{make(chan azlease.Event, 100), map[string]bool{}}
		d := withLeases(c, &azlease.Options{
			Companions: []string{companion}, CreateCompanions: true, Changed: func(e azlease.Event) { events.told <- e },
		})
		l := lead(t, d, 12*time.Second)
		got := events.next(t, 2)
		for i, name := range []string{recordBlob, companion} {
			only, err := d.Held(l.view, name)
			if e := got[i]; err != nil || e.Blob != name || !e.Held || e.ID != *only.LeaseID || e.Err != nil || time.Until(e.Until) > 15*time.Second || time.Until(e.Until) < 10*time.Second {
				t.Fatalf("%s: %+v, %v", name, e, err)
			}
		}
		if err := overwrite(t, c, companion, leased(t, d, l.view)); err != nil {
			t.Error(err)
		}
		if id, other := d.LeaseID(l.view.ElectionNumber()), d.LeaseID(l.view.ElectionNumber()+1); id != got[0].ID || other != "" {
			t.Errorf("the leases have the id %q, and those of another leadership %q", id, other)
		}
		if _, err := d.Held(l.view, "nobody's"); err == nil {
			t.Error("a blob that is no companion is leased")
		}

		// Somebody breaks the companion's lease, and takes it.
		stranger, err := lease.NewBlobClient(c.ServiceClient().NewContainerClient(containerName).NewBlobClient(companion), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stranger.BreakLease(t.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32)}); err != nil {
			t.Fatal(err)
		}
		if _, err := stranger.AcquireLease(t.Context(), 60, nil); err != nil {
			t.Fatal(err)
		}
		if e := events.next(t, 1)[0]; e.Blob != companion || e.Held || e.Err == nil {
			t.Errorf("%+v, want that the lease was lost, and why", e)
		}
		if _, err := d.Held(l.view, recordBlob); err != nil {
			t.Errorf("the other lease is refused as well: %v", err)
		}
		for _, names := range [][]string{{companion}, {recordBlob, companion}, nil} {
			if _, err := d.Held(l.view, names...); err == nil || errors.Is(err, leaderelection.ErrNotLeading) {
				t.Errorf("Leased of %q says %v", names, err)
			}
		}

		// Another set.
		if err := d.SetCompanions("another companion"); err != nil {
			t.Fatal(err)
		}
		if e := events.next(t, 1)[0]; e.Blob != "another companion" || !e.Held {
			t.Errorf("%+v, want that the new companion's lease was acquired", e)
		}
		if _, err := d.Held(l.view); err != nil {
			t.Errorf("with the new set: %v", err)
		}
		wantCode(t, "a stranger's write", overwrite(t, c, "another companion", nil), bloberror.LeaseIDMissing)
		if err := d.SetCompanions(); err != nil {
			t.Fatal(err)
		}
		if e := events.next(t, 1)[0]; e.Blob != "another companion" || e.Held || e.Err != nil {
			t.Errorf("%+v, want that it was given up by choice", e)
		}
		if err := d.SetCompanions("x", ""); err == nil {
			t.Error("an empty name is taken")
		}
		l.stop()
		if e := events.next(t, 1)[0]; e.Blob != recordBlob || e.Held || e.Err != nil {
			t.Errorf("%+v, want that the record's lease was given up by choice", e)
		}
		if err := overwrite(t, c, "another companion", nil); err != nil {
			t.Errorf("a blob that is no companion any more is still leased: %v", err)
		}
	})
}

// Leases that nobody renews are told of when they run out, and not before; those who are
// slow to hear of it hold nobody up.
func TestNativeLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inProcess(t, newFake(), nil)
		begun := time.Now()
		type heard struct {
			azlease.Event
			after time.Duration
		}
		events := make(chan heard, 10)
		d := withLeases(c, &azlease.Options{
			Duration: 30 * time.Second,
			Changed: func(e azlease.Event) {
				events <- heard{e, time.Since(begun)}
				time.Sleep(5 * time.Second)
			},
		})
		e := &leaderelection.RaceEntry{LeaderID: "a", Incarnation: "its", ElectionNumber: 1, TermLength: 15 * time.Second, TermExpiry: begun.Add(15 * time.Second)}
		token, err := d.WriteEntry(t.Context(), e)
		if err != nil || time.Since(begun) > time.Second {
			t.Fatal(err, time.Since(begun))
		}
		time.Sleep(20 * time.Second)
		e.Extension, e.Token = 1, token
		if _, err := d.WriteEntry(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if first := <-events; !first.Held || first.after > time.Second {
			t.Errorf("%+v, want that it was acquired", first)
		}
		if last := <-events; last.Held || last.Err == nil || last.after < 50*time.Second || last.after > 51*time.Second || len(events) > 0 {
			t.Errorf("%+v and %d more, want that it ran out 30 s after it was renewed", last, len(events))
		}
	})
}
