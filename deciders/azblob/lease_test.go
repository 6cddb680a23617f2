package azblob_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

const (
	recordBlob = "nightly"
	companion  = "nightly/report"
)

// onBoth runs a test on Azurite and on the fake: what holds on the one must hold
// on the other.
func onBoth(t *testing.T, f func(t *testing.T, c *sdk.Client)) {
	t.Run("Azurite", func(t *testing.T) { f(t, client(t, azurite(t), nil)) })
	t.Run("Fake", func(t *testing.T) { f(t, inProcess(t, newFake(), nil)) })
}

// holder is a Decider and its leases.
type holder struct {
	*azblob.Decider
	*azlease.Leases
}

func withLeases(c *sdk.Client, o *azlease.Options) holder {
	l := azlease.New(o)
	return holder{azblob.NewDecider(c, containerName, recordBlob, &azblob.Options{Leases: l}), l}
}

func native(c *sdk.Client) holder {
	return withLeases(c, &azlease.Options{Companions: []string{companion}})
}

// own is o for one more Decider, which needs leases of its own.
func own(o *azblob.Options) *azblob.Options {
	if o == nil || o.Leases == nil {
		return o
	}
	c := *o
	c.Leases = azlease.New(nil)
	return &c
}

// leading is a campaign that leads.
type leading struct {
	*leaderelection.Campaign
	view *leaderelection.TimeView
	ctx  context.Context
	stop func() // and release
}

// lead returns when a campaign with d leads.
func lead(t *testing.T, d leaderelection.RaceDecider, term time.Duration) *leading {
	t.Helper()
	l := &leading{}
	elected := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	c, err := leaderelection.Config{
		Decider: d, LeaderID: t.Name(), TermLength: term, MaxClockSkew: term / 20,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			if l.view == nil {
				l.view, l.ctx = view, ctx
				close(elected)
			}
		},
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l.Campaign = c
	l.stop = func() {
		cancel()
		if err := c.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("the campaign ended with %v", err)
		}
	}
	t.Cleanup(l.stop)
	select {
	case <-elected:
	case <-time.After(30 * time.Second):
		t.Fatal("not elected")
	}
	return l
}

// overwrite is what a program does that knows nothing of elections, or with a
// lease what the leader does. It must be refused with the code, if there is one.
func overwrite(t testing.TB, what string, c *sdk.Client, name string, only *blob.LeaseAccessConditions, refused bloberror.Code) {
	t.Helper()
	_, err := c.UploadBuffer(context.WithoutCancel(t.Context()), containerName, name, []byte("all is well"), &sdk.UploadBufferOptions{
		AccessConditions: &blob.AccessConditions{LeaseAccessConditions: only},
	})
	if refused != "" {
		wantCode(t, what, err, refused)
	} else if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// companionOf makes the companion.
func companionOf(t testing.TB, c *sdk.Client) {
	overwrite(t, "before anybody leads", c, companion, nil, "")
}

// stranger leases a blob for a minute.
func stranger(t testing.TB, c *sdk.Client, name string) {
	t.Helper()
	l, err := lease.NewBlobClient(c.ServiceClient().NewContainerClient(containerName).NewBlobClient(name), nil)
	if err == nil {
		_, err = l.AcquireLease(t.Context(), 60, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, what string, err error, code bloberror.Code) {
	t.Helper()
	if !bloberror.HasCode(err, code) {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func leased(t testing.TB, d holder, view *leaderelection.TimeView) *blob.LeaseAccessConditions {
	t.Helper()
	only, err := d.Held(view)
	if err != nil {
		t.Fatal(err)
	}
	return only
}

// The leader writes its companions; nobody else does, while it leads.
func TestNativeLeaseFencesOthersOff(t *testing.T) {
	stores.Nightly(t, "leases of a minute by the wall clock")
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		d := withLeases(c, &azlease.Options{Companions: []string{companion}, CreateCompanions: true})
		l := lead(t, d, 2*time.Second)
		only := leased(t, d, l.view)
		for range 2 {
			overwrite(t, "a stranger's write of the companion", c, companion, nil, bloberror.LeaseIDMissing)
			overwrite(t, "a stranger's write of the record", c, recordBlob, nil, bloberror.LeaseIDMissing)
			_, err := c.DeleteBlob(t.Context(), containerName, recordBlob, nil)
			if err == nil {
				t.Fatal("a stranger has deleted the record")
			}
			overwrite(t, "the leader's write", c, companion, only, "")
			end := l.view.Get() // once more when the term has been extended
			for again := time.NewTicker(5 * time.Millisecond); l.view.Get().Equal(end) && l.ctx.Err() == nil; {
				<-again.C
			}
		}
		l.stop()
		if _, err := d.Held(l.view); !errors.Is(err, leaderelection.ErrNotLeading) {
			t.Errorf("after the release Leased says %v", err)
		}
		overwrite(t, "the former leader's write", c, companion, only, bloberror.LeaseNotPresentWithBlobOperation)
		overwrite(t, "after the release a stranger's write", c, companion, nil, "")
		if e, err := d.ReadCurrent(t.Context()); err != nil || !e.Vacant() {
			t.Errorf("after the release: %+v, %v", e, err)
		}
	})
}

// dead is a leader that has won, taken its leases, and died: its term is over.
func dead(t testing.TB, c *sdk.Client) {
	t.Helper()
	e := &leaderelection.RaceEntry{LeaderID: "dead", Incarnation: "its", ElectionNumber: 1, TermLength: 15 * time.Second, TermExpiry: time.Now().Add(-time.Hour)}
	if _, err := native(c).WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{companion, recordBlob} {
		overwrite(t, "before the take-over", c, name, nil, bloberror.LeaseIDMissing)
	}
}

// A successor takes the leases over at once, however long they had to run.
func TestNativeLeaseIsTakenOver(t *testing.T) {
	stores.Nightly(t, "leases of a minute by the wall clock")
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		companionOf(t, c)
		dead(t, c)
		d := native(c)
		l := lead(t, d, 2*time.Second)
		if l.view.ElectionNumber() != 2 {
			t.Fatalf("leadership %d", l.view.ElectionNumber())
		}
		overwrite(t, "the successor's write", c, companion, leased(t, d, l.view), "")
		old := "11111111-2222-3333-4444-555555555555" // any other id: the dead leader's is as good
		overwrite(t, "with another lease", c, companion, &blob.LeaseAccessConditions{LeaseID: &old}, bloberror.LeaseIDMismatchWithBlobOperation)
	})
}

// A candidate without native leases campaigns, and an operator's request is granted,
// while the leader's leases run.
func TestNativeLeaseDoesNotHinderOthersOfUs(t *testing.T) {
	stores.Nightly(t, "leases of a minute by the wall clock")
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		companionOf(t, c)
		dead(t, c)
		plain := azblob.NewDecider(c, containerName, recordBlob, nil)
		l := lead(t, plain, 2*time.Second)
		l.stop()

		d := withLeases(c, nil)
		l = lead(t, d, 2*time.Second)
		leased(t, d, l.view)
		if err := leaderelection.StepDown(t.Context(), plain, false); err != nil {
			t.Fatal(err)
		}
		<-l.ctx.Done()
		if cause := context.Cause(l.ctx); !errors.Is(cause, leaderelection.ErrResigned) {
			t.Errorf("the leader's ctx ended because of %v", cause)
		}
	})
}

// Whoever else has leased the record's blob does not keep a candidate out.
func TestNativeLeaseOfAStrangerOnTheRecordIsBroken(t *testing.T) {
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		d := azblob.NewDecider(c, containerName, recordBlob, nil)
		first := lead(t, d, 2*time.Second)
		first.stop()
		stranger(t, c, recordBlob)
		l := lead(t, d, 2*time.Second)
		if l.view.ElectionNumber() != first.view.ElectionNumber()+1 {
			t.Errorf("leadership %d", l.view.ElectionNumber())
		}
	})
}

// A companion that somebody else has leased is waited for; until then Leased
// refuses, and the leader leads.
func TestNativeLeaseWaitsForACompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inProcess(t, newFake(), nil)
		companionOf(t, c)
		stranger(t, c, companion)
		d := native(c)
		l := lead(t, d, 15*time.Second)
		for range 59 {
			if _, err := d.Held(l.view); err == nil || errors.Is(err, leaderelection.ErrNotLeading) {
				t.Fatalf("Leased says %v", err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second) // an extension later
		overwrite(t, "the leader's write", c, companion, leased(t, d, l.view), "")
		l.stop()
	})
}

// A candidate that is stopped between its victory and taking the leases, and goes
// on when another has taken over, takes nothing from its successor.
func TestNativeLeaseOfASleeperComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake()
		companionOf(t, inProcess(t, server, nil))
		sleeper := native(inProcess(t, server, func(r *http.Request) (f httpfault.Fault) {
			if r.URL.Query().Get("comp") == "lease" {
				f.Request = 20 * time.Second
			}
			return f
		}))
		e := &leaderelection.RaceEntry{LeaderID: "sleeper", Incarnation: "its", ElectionNumber: 1, TermLength: 15 * time.Second, TermExpiry: time.Now().Add(15 * time.Second)}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, err := sleeper.WriteEntry(ctx, e); err != nil || ctx.Err() != nil {
			t.Fatalf("leases must not hold the write up: %v, %v", err, ctx.Err())
		}
		c := inProcess(t, server, nil)
		d := native(c)
		l := lead(t, d, 15*time.Second)
		for range 120 {
			time.Sleep(500 * time.Millisecond)
			overwrite(t, "the leader's write", c, companion, leased(t, d, l.view), "")
		}
		l.stop()
		time.Sleep(time.Hour)
	})
}

// Whatever becomes of the leases, the leader leads; and it has them again when the
// trouble is over.
func TestNativeLeaseTroubleCostsNoLeadership(t *testing.T) {
	for name, trouble := range map[string]httpfault.Fault{
		"Lost":      {LoseRequest: true},
		"Silent":    {LoseRequest: true, Silent: true},
		"Answers":   {LoseAnswer: true},
		"Late":      {Request: 3 * time.Second},
		"Busy":      refusal(http.StatusServiceUnavailable, "ServerBusy"),
		"Forbidden": refusal(http.StatusForbidden, "AuthorizationPermissionMismatch"),
		"Gone":      refusal(http.StatusConflict, "LeaseIdMismatchWithLeaseOperation"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFake()
				var troubled atomic.Bool
				c := inProcess(t, server, func(r *http.Request) (f httpfault.Fault) {
					if troubled.Load() && r.URL.Query().Get("comp") == "lease" {
						f = trouble
					}
					return f
				})
				companionOf(t, c)
				d := native(c)
				l := lead(t, d, 15*time.Second)
				synctest.Wait()
				troubled.Store(true)
				time.Sleep(2 * time.Minute)
				if _, err := d.Held(l.view); err == nil || errors.Is(err, leaderelection.ErrNotLeading) {
					t.Errorf("Leased says %v", err)
				}
				synctest.Wait()
				troubled.Store(false)
				time.Sleep(20 * time.Second)
				overwrite(t, "the leader's write", c, companion, leased(t, d, l.view), "")
				if l.ctx.Err() != nil {
					t.Errorf("leadership %d ended with %v", l.view.ElectionNumber(), context.Cause(l.ctx))
				}
				l.stop()
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestNativeLeaseOptions(t *testing.T) {
	c := inProcess(t, newFake(), nil)
	for name, n := range map[string]azlease.Options{
		"short":     {Duration: 14 * time.Second},
		"long":      {Duration: 61 * time.Second},
		"fraction":  {Duration: 15500 * time.Millisecond},
		"companion": {Companions: []string{""}},
	} {
		d := withLeases(c, &n)
		if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("%s: ReadCurrent says %v", name, err)
		}
	}
	for name, l := range map[string]*azlease.Leases{"unbound": azlease.New(nil), "zero": {}} {
		if _, err := l.Held(nil); !errors.Is(err, leaderelection.ErrNotLeading) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Two campaigns would take each other's leases for their own.
	o := &azblob.Options{Leases: azlease.New(nil)}
	for i := range 2 {
		_, err := azblob.NewDecider(c, containerName, recordBlob, o).ReadCurrent(t.Context())
		if errors.Is(err, leaderelection.ErrPermanent) != (i == 1) {
			t.Errorf("Decider %d with the same leases: %v", i, err)
		}
	}
}

// A term that no native lease can cover is led without one.
func TestNativeLeaseShorterThanTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := native(inProcess(t, newFake(), nil))
		l := lead(t, d, 61*time.Second)
		if _, err := d.Held(l.view); err == nil {
			t.Error("Held returns no error")
		}
		l.stop()
	})
}

// With a companion an extension is three requests, and a look is still one.
func TestNativeLeaseCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake()
		companionOf(t, inProcess(t, server, nil))
		var writes, leases, reads atomic.Int64
		d := native(inProcess(t, server, func(r *http.Request) (f httpfault.Fault) {
			switch {
			case r.Method == http.MethodGet:
				reads.Add(1)
			case r.URL.Query().Get("comp") == "lease":
				leases.Add(1)
			default:
				writes.Add(1)
			}
			return f
		}))
		l := lead(t, d, 15*time.Second)
		time.Sleep(time.Hour)
		l.stop()
		w, l2, r := writes.Load(), leases.Load(), reads.Load()
		w -= 2 // by which the first tries the server: they are refused, and ask for no lease
		if most := int64(time.Hour/(7*time.Second)) + 3; w > most || l2 != 2*w || r != 1 {
			t.Errorf("%d writes, %d requests for leases, %d reads in an hour; want at most %d, twice as many, and 1", w, l2, r, most)
		}
	})
}

// Companions are made if they are missing, judged each by itself, and may change; what
// becomes of each lease is told.
func TestNativeLeaseCompanions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begun := inProcess(t, newFake(), nil), time.Now()
		events := make(chan azlease.Event, 100)
		d := withLeases(c, &azlease.Options{
			Companions: []string{companion}, CreateCompanions: true, Changed: func(e azlease.Event) { events <- e },
		})
		l := lead(t, d, 12*time.Second)
		// told returns the n events until after the next extension, in the order of the lengths of the blobs' names.
		told := func(n int) []azlease.Event {
			t.Helper()
			time.Sleep(10 * time.Second)
			if len(events) != n {
				t.Fatalf("%d events, want %d", len(events), n)
			}
			got := make([]azlease.Event, n)
			for i := range got {
				got[i] = <-events
			}
			slices.SortFunc(got, func(a, b azlease.Event) int { return len(a.Blob) - len(b.Blob) })
			return got
		}
		got := told(2)
		for i, name := range []string{recordBlob, companion} {
			only, err := d.Held(l.view, name)
			if e := got[i]; err != nil || e.Blob != name || !e.Held || e.ID != *only.LeaseID || e.Err != nil || e.Until.Sub(begun).Round(time.Second) != 15*time.Second {
				t.Fatalf("%s: %+v, %v", name, e, err)
			}
		}
		overwrite(t, "the leader's write", c, companion, leased(t, d, l.view), "")
		if id, other := d.LeaseID(l.view.ElectionNumber()), d.LeaseID(l.view.ElectionNumber()+1); id != got[0].ID || other != "" {
			t.Errorf("the leases have the id %q, and those of another leadership %q", id, other)
		}
		if _, err := d.Held(l.view, "nobody's"); err == nil {
			t.Error("a blob that is no companion is leased")
		}

		// Somebody breaks the companion's lease, and takes it.
		b, err := lease.NewBlobClient(c.ServiceClient().NewContainerClient(containerName).NewBlobClient(companion), nil)
		if err == nil {
			_, err = b.BreakLease(t.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32)})
		}
		if err != nil {
			t.Fatal(err)
		}
		stranger(t, c, companion)
		if e := told(1)[0]; e.Blob != companion || e.Held || e.Err == nil {
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

		if _, err := d.Acquire(t.Context(), l.view, "another"); err != nil {
			t.Fatal(err)
		}
		if e := told(1)[0]; e.Blob != "another" || !e.Held {
			t.Errorf("%+v, want that the new companion's lease was acquired", e)
		}
		overwrite(t, "a stranger's write", c, "another", nil, bloberror.LeaseIDMissing)
		if err := d.Release(t.Context(), l.view, "another"); err != nil {
			t.Fatal(err)
		}
		if e := told(1)[0]; e.Blob != "another" || e.Held || e.Err != nil {
			t.Errorf("%+v, want that it was given up by choice", e)
		}
		l.stop()
		if e := told(1)[0]; e.Blob != recordBlob || e.Held || e.Err != nil {
			t.Errorf("%+v, want that the record's lease was given up by choice", e)
		}
		overwrite(t, "a blob that is no companion any more is still leased", c, "another", nil, "")
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

// A leader locks one blob after another as people who lock blobs do: acquire, write, release; and
// break what a stranger has left.
func TestLeasesOfSingleBlobs(t *testing.T) {
	stores.Nightly(t, "leases of a minute by the wall clock")
	onBoth(t, func(t *testing.T, c *sdk.Client) {
		for _, name := range []string{companion, "a", "b"} {
			overwrite(t, "a write", c, name, nil, "")
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
		overwrite(t, "a stranger's write", c, "a", nil, bloberror.LeaseIDMissing)
		overwrite(t, "the leader's write", c, "a", only, "")
		if _, err := d.Held(l.view); err != nil { // a companion like the others
			t.Error(err)
		}
		if err := d.Release(t.Context(), l.view, "a"); err != nil {
			t.Error(err)
		}
		overwrite(t, "after the release", c, "a", nil, "")
		if _, err := d.Held(l.view, "a"); err == nil {
			t.Error("it is leased after the release")
		}
		if err := d.Release(t.Context(), l.view, "a"); err == nil {
			t.Error("it is released twice")
		}
		if err := d.Release(t.Context(), l.view, recordBlob); err == nil {
			t.Error("the record's lease is released")
		}

		stranger(t, c, "b")
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
		overwrite(t, "the leader's write", c, "b", only, "")
		_, err = d.Acquire(t.Context(), l.view, "missing")
		wantCode(t, "what is not there", err, bloberror.BlobNotFound)
		if _, err = d.Acquire(t.Context(), l.view, ""); err == nil {
			t.Error("a blob without a name is leased")
		}
		l.stop() // releases all of them
		overwrite(t, "after the leadership", c, "b", nil, "")
		for what, err := range map[string]error{"release": d.Release(t.Context(), l.view, "b"), "break": d.Break(t.Context(), l.view, "b")} {
			if !errors.Is(err, leaderelection.ErrNotLeading) {
				t.Errorf("%s after the leadership: %v", what, err)
			}
		}
	})
}
