//go:build linux && !newer

package main

import (
	"cmp"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/upgradetest/newer"
)

// generation is how often a newer version of the library has written the record: a field
// that this version does not know, and hands on.
func generation(e leaderelection.RaceEntry) string { return cmp.Or(e.Extra[newer.Field], "0") }
