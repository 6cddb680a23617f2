//go:build !no_postgres

package store

import "github.com/c8e606e4/leaderelection/deciders/postgres"

func init() { has("no_postgres", postgres.Open) }
