//go:build !no_etcd

package store

import "github.com/c8e606e4/leaderelection/deciders/etcd"

func init() { has("no_etcd", etcd.Open) }
