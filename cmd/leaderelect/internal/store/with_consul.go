//go:build !no_consul

package store

import "github.com/c8e606e4/leaderelection/deciders/consul"

func init() { has("no_consul", consul.Open) }
