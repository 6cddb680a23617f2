package store_test

import (
	"errors"
	"testing"

	"github.com/c8e606e4/leaderelection"
)

// A first write whose proof was cut short, on a server that may be an imitation, counts no more with a new
// client than with the one that made it.
func TestInherit(t *testing.T) {
	b := &backend{fails: 2, deaf: func(version) bool { return true }}
	first := doubted(b)
	if _, err := first.Write(t.Context(), entry(1, nil)); !errors.Is(err, errBusy) {
		t.Fatal(err)
	}
	second := doubted(b)
	second.Inherit(first)
	if e, err := second.Read(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("a new client takes it as written: %+v, %v", e, err)
	}
}
