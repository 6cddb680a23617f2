//go:build !no_consul

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_consul", open.With(consul.Open)) }
