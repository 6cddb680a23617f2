//go:build !no_s3

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/deciders/s3"
)

func init() { has("no_s3", open.With(s3.Open)) }
