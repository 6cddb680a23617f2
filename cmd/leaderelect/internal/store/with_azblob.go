//go:build !no_azblob

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_azblob", open.With(azblob.Open)) }
