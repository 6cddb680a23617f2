//go:build !no_etcd

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_etcd", open.With(etcd.Open)) }
