//go:build !no_nats

package store

import "github.com/c8e606e4/leaderelection/deciders/natskv"

func init() { has("no_nats", natskv.Open) }
