//go:build !no_rethinkdb

package store

import "github.com/c8e606e4/leaderelection/deciders/rethinkdb"

func init() { has("no_rethinkdb", rethinkdb.Open) }
