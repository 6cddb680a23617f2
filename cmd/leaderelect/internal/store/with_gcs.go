//go:build !no_gcs

package store

import "github.com/c8e606e4/leaderelection/deciders/gcs"

func init() { has("no_gcs", gcs.Open) }
