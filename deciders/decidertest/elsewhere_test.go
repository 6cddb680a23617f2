//go:build go1.25

package decidertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

func TestMain(m *testing.M) {
	Main(func(_ context.Context, address string) (leaderelection.RaceDecider, error) {
		if strings.HasPrefix(address, "nowhere:") {
			return nil, errors.New("there is no such place")
		}
		return onFile(address), nil
	})
	os.Exit(m.Run())
}

// trusting is a decider on a file that checks under a lock of the process, and then writes over
// whatever is there.
type trusting struct{ *file.Decider }

var processLock sync.Mutex

func (d trusting) WriteEntry(ctx context.Context, e *entry) (token, error) {
	processLock.Lock()
	defer processLock.Unlock()
	now, err := d.ReadCurrent(ctx)
	if err != nil {
		return nil, err
	}
	if e.Token != nil && e.Token != now.Token || e.Token == nil && now.ElectionNumber > 0 {
		return nil, leaderelection.ErrLostRace
	}
	pause()
	for {
		next, err := d.Decider.WriteEntry(ctx, with(now.Token, e))
		if !errors.Is(err, leaderelection.ErrLostRace) {
			return next, err
		}
		if now, err = d.ReadCurrent(ctx); err != nil {
			return nil, err
		}
	}
}

// onFile is the decider at an address, which says whether it is trusting.
func onFile(address string) leaderelection.RaceDecider {
	kind, path, _ := strings.Cut(address, ":")
	d := file.NewDecider(path, nil)
	if kind == "trusts" {
		return trusting{d}
	}
	return d
}

// A check under a lock of the process holds nobody back in another.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: real processes and disks")
	}
	for kind, says := range map[string]string{"locks": "", "trusts": "older record", "nowhere": "there is no such place"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // one waits for its patience to end
			testProcesses(t, kind, says)
		})
	}
}

func testProcesses(t *testing.T, kind, says string) {
	address := kind + ":" + filepath.Join(t.TempDir(), "election")
	o := Options{Patience: 10 * time.Second, Address: func(leaderelection.RaceDecider) string { return address }}
	if kind == "locks" {
		o.Patience = time.Minute
	}
	got := failuresWith(t, o, "Processes/NoUpdateIsLost", func(testing.TB) func() leaderelection.RaceDecider {
		return func() leaderelection.RaceDecider { return onFile(address) }
	})
	if all := strings.Join(got, "\n"); (len(got) > 0) != (says != "") || !strings.Contains(all, says) {
		t.Errorf("%s: %s; want %q", kind, all, says)
	}
}

// FailuresWith is for the tests outside of this package.
var FailuresWith = failuresWith
