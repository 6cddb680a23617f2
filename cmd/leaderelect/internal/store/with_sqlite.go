//go:build !no_sqlite

package store

import "github.com/c8e606e4/leaderelection/deciders/sql/sqlite"

func init() { has("no_sqlite", sqlite.Open) }
