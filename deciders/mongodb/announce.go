package mongodb

import (
	"context"
	"errors"

	"github.com/c8e606e4/leaderelection"
)

func (d *Decider) announce(ctx context.Context) {}

func (d *Decider) tail(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	return errors.New("TODO")
}
