package store

import (
	"context"
	"maps"
	"slices"

	"github.com/c8e606e4/leaderelection"
)

// Schemes are those of all stores, also of such as this build has not.
func Schemes() []string { return append(slices.Sorted(maps.Keys(tags)), "file") }

// ByItself is Open by the store alone, so that what it makes without I/O is there also
// if ctx has ended.
func ByItself(ctx context.Context, raw string) (leaderelection.RaceDecider, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	o := stores()[u.Scheme]
	if o == nil {
		return nil, unknown(u)
	}
	return o(ctx, u)
}
