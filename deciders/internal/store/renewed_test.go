package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// It is made again once for each distrust, and stays as it was while the files cannot be read.
func TestRenewed(t *testing.T) {
	made, unread := 1, error(nil)
	r := store.NewRenewed(made, func(context.Context) (int, error) {
		if unread == nil {
			made++
		}
		return made, unread
	})
	get := func(what string, want int) {
		t.Helper()
		if got := r.Get(t.Context()); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	get("at first", 1)
	r.Distrust()
	r.Distrust()
	get("distrusted", 2)
	get("trusted again", 2)
	unread = errors.New("no such file")
	r.Distrust()
	get("unreadable", 2)
	unread = nil
	get("readable again", 3)
	get("trusted again", 3)
}
