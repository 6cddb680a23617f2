//go:build !no_mongodb

package store

import "github.com/c8e606e4/leaderelection/deciders/mongodb"

func init() { has("no_mongodb", mongodb.Open) }
