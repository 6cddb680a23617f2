//go:build go1.25

package rules

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// try is TryAcquire by a candidate "b", and how long it took.
func try(t *testing.T, d le.RaceDecider, adjust ...func(*config)) (*le.Campaign, context.CancelFunc, time.Duration, error) {
	t.Helper()
	cfg := config{Config: le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}}
	for _, f := range adjust {
		f(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // should it never return
	t.Cleanup(cancel)
	began := time.Now()
	c, err := cfg.TryAcquire(ctx)
	return c, cancel, time.Since(began), err
}

// TryAcquire leads if nobody does, until its ctx ends.
func TestTryAcquireLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		b, stop, _, err := try(t, d)
		if err != nil || b.Status() != le.Leading || !b.View().ValueInFuture() {
			t.Fatal(err)
		}
		sleep(3 * T)
		if !b.View().ValueInFuture() {
			t.Error("the lease was not extended")
		}
		stop()
		if err := b.Wait(); !errors.Is(err, context.Canceled) || !d.Entry().Vacant() {
			t.Errorf("%v, on record is %+v", err, d.Entry())
		}
	})
}

// While another leads it says so at once, having read once, and nothing of it is left.
func TestTryAcquireWhileAnotherLeads(t *testing.T) {
	for name, reserved := range map[string]bool{"leads": false, "is to lead": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				e := rival(7)
				if reserved {
					e.LeaderID, e.Successor = "", "rival"
				}
				d.Replace(e)
				h := d.Handle()
				var calls []memory.Kind
				h.Inject(func(op memory.Op) memory.Fault { calls = append(calls, op.Kind); return memory.Fault{} })
				b, _, took, err := try(t, h)
				var facts *le.NotElectedError
				if b != nil || !errors.Is(err, le.ErrNotElected) || !errors.As(err, &facts) || facts.Leader.ElectionNumber != 7 {
					t.Errorf("%v, %v", b, err)
				}
				if len(calls) != 1 || calls[0] != memory.Read || took > 0 {
					t.Errorf("it took %v, %v", took, calls)
				}
				synctest.Wait() // a goroutine that was left would keep the bubble
			})
		})
	}
}

// A lost answer to its claim is read back: who has won leads.
func TestTryAcquireReadsBack(t *testing.T) {
	for name, lost := range map[string]error{"lost": memory.ErrLost, "lost race": le.ErrLostRace} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				h := d.Handle()
				h.Inject(memory.Always(memory.Fault{Err: lost, Lands: true}).On(memory.Write).Times(1))
				if b, _, _, err := try(t, h); err != nil || !b.View().ValueInFuture() {
					t.Error(err)
				}
			})
		})
	}
}

// A store that fails ends it with the store's error, after one call for each thing, and
// with nothing held.
func TestTryAcquireWhenTheStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		faults memory.Faults // nil: as hangs says
		hangs  memory.Kind
		want   error
		within time.Duration
	}{
		"reads":          {memory.Fail(memory.ErrLost).On(memory.Read), 0, memory.ErrLost, 0},
		"writes":         {memory.Fail(memory.ErrLost).On(memory.Write), 0, memory.ErrLost, time.Second},
		"all":            {memory.Fail(memory.ErrLost), 0, memory.ErrLost, 0},
		"reads hang":     {nil, memory.Read, context.DeadlineExceeded, T/4 + time.Second},
		"writes hang":    {nil, memory.Write, context.DeadlineExceeded, T},
		"lost for good":  {memory.LoseAnswers().On(memory.Write), 0, nil, time.Second},
		"a refused race": {memory.Fail(le.ErrLostRace).On(memory.Write), 0, le.ErrNotElected, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				h := d.Handle()
				hang := make(chan struct{})
				defer close(hang)
				if c.faults == nil {
					c.faults = memory.Hang(hang).On(c.hangs)
				}
				h.Inject(c.faults)
				b, stop, took, err := try(t, h)
				if !errors.Is(err, c.want) || took > c.within {
					t.Errorf("%v after %v, want %v within %v", err, took, c.want, c.within)
				}
				if b != nil {
					h.Inject(nil)
					stop()
					<-b.Done()
				}
				if e := d.Entry(); !e.Vacant() {
					t.Errorf("on record is %+v", e)
				}
			})
		})
	}
}

// A candidate that may not lead says why, and has written nothing.
func TestTryAcquireWhenUnfit(t *testing.T) {
	sick := errors.New("sick")
	for name, c := range map[string]struct {
		adjust func(*config)
		want   error
	}{
		"sick":                     {func(c *config) { c.Healthy = func(context.Context) error { return sick } }, le.ErrUnhealthy},
		"clock":                    {func(c *config) { c.Clock = clocks.NewOffset(clocks.System(), 3*S) }, le.ErrClockSkew},
		"clock, as the read shows": {func(c *config) { c.Clock = clocks.NewOffset(clocks.System(), -3*S) }, le.ErrClockSkew},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				d.Replace(&le.RaceEntry{ElectionNumber: 7, TermExpiry: time.Now(), TermLength: T, Incarnation: "x"})
				b, _, _, err := try(t, d, c.adjust)
				if b != nil || !errors.Is(err, c.want) || errors.Is(err, le.ErrNotElected) {
					t.Errorf("%v, %v, want %v", b, err, c.want)
				}
				if e := d.Entry(); !e.Vacant() {
					t.Errorf("on record is %+v", e)
				}
			})
		})
	}
}

// It leads once: when that leadership has ended, the campaign has.
func TestTryAcquireLeadsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*testing.T, *memory.Decider, *le.Campaign)
		want error
	}{
		"ousted":   {func(_ *testing.T, d *memory.Decider, _ *le.Campaign) { d.Replace(rival(first + 1)) }, le.ErrOusted},
		"resigned": {func(t *testing.T, _ *memory.Decider, b *le.Campaign) { _ = b.Resign(t.Context()) }, le.ErrResigned},
		"expired":  {func(_ *testing.T, d *memory.Decider, _ *le.Campaign) { d.Inject(memory.LoseRequests()) }, le.ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				b, _, _, err := try(t, d)
				if err != nil {
					t.Fatal(err)
				}
				c.end(t, d, b)
				if err := b.Wait(); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if n := d.Entry().ElectionNumber; n > first+1 {
					t.Errorf("it has led again: %d", n)
				}
			})
		})
	}
}

// It awaits the answer to its claim, whatever wakes it meanwhile.
func TestTryAcquireAwaitsItsClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := memory.NewDecider()
		h.Inject(memory.Slow(time.Second))
		b, stop, took, err := try(t, h, func(c *config) { c.Trace = &le.Trace{StoreOp: func(le.StoreOp) {}} }) // told of the read, the loop looks again
		if err != nil || b.Status() != le.Leading || took != 2*time.Second {
			t.Fatalf("%v after %v", err, took)
		}
		stop()
		_ = b.Wait() // it was cancelled
	})
}

// When it leads it follows the record as any leader: a feed tells it of a request.
func TestTryAcquireHearsOfRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		b, _, _, err := try(t, d)
		if err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if err := le.StepDown(t.Context(), d, false); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		if err := b.Wait(); !errors.Is(err, le.ErrResigned) {
			t.Error(err)
		}
		near(t, "stepping down", time.Since(asked), 0, 100*time.Millisecond)
	})
}

// When its ctx ends while the claim is out, it returns when that was released again.
func TestTryAcquireLeavesNothingWhenToldToStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(memory.Slow(2 * time.Second).On(memory.Write))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b, err := le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}.TryAcquire(ctx)
		if e := d.Entry(); b != nil || !errors.Is(err, context.DeadlineExceeded) || !e.Vacant() || e.ElectionNumber != first {
			t.Errorf("%v, on record is %+v", err, e)
		}
	})
}

// Once that gives up before the store has answered at all says that, and not that another leads.
func TestOnceWhoseStoreDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		hang := make(chan struct{})
		defer close(hang)
		d.Inject(memory.Hang(hang))
		began := time.Now()
		err := le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}.Once(t.Context(), le.OnceOptions{Hold: time.Minute, Wait: time.Second},
			func(context.Context, *le.TimeView) error { return nil })
		if err == nil || errors.Is(err, le.ErrNotElected) || !strings.Contains(err.Error(), "has not answered within 1s") || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
