//go:build !no_gcs

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_gcs", open.With(gcs.Open)) }
