//go:build !no_nats

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_nats", open.With(natskv.Open)) }
