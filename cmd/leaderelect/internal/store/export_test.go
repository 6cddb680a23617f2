package store

import (
	"context"

	"github.com/c8e606e4/leaderelection"
)

// Kinds are all stores, also such as this build has not.
var Kinds = kinds

// Schemes are those of all stores.
func Schemes() (all []string) {
	for _, k := range kinds {
		all = append(all, k.Schemes...)
	}
	return all
}

// ByItself is Open by the store alone, so that what it makes without I/O is there even
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
