package fence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/fence"
)

// owned is a shard that is owned until over.
type owned struct{ over bool }

func (o *owned) Name() string                         { return "7" }
func (o *owned) Token() leaderelection.ElectionNumber { return 12 }
func (o *owned) ValueInFuture() bool                  { return !o.over }
func (o *owned) Get() time.Time                       { return time.Now().Add(time.Hour) }
func (o *owned) Clock() clocks.Clock                  { return clocks.System() }

// A shard's gate has the shard's token, under the shard's own name, and closes with the
// shard's view.
func TestForShard(t *testing.T) {
	o := &owned{}
	gate := fence.ForShard("orders", o)
	token, err := gate.Token()
	if err != nil || token.String() != "orders%2F7:12" {
		t.Errorf("%v, %v", token, err)
	}
	if back, err := fence.ParseToken(token.String()); err != nil || back != token {
		t.Errorf("read back: %v, %v", back, err)
	}
	o.over = true
	if _, err := gate.Token(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("after the shard was let go: %v", err)
	}
	if _, err := fence.ForShard("orders", &zero{}).Token(); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("a shard without a token: %v", err)
	}
}

type zero struct{ owned }

func (*zero) Token() leaderelection.ElectionNumber { return 0 }
