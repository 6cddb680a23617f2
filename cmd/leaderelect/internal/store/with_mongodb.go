//go:build !no_mongodb

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_mongodb", open.With(mongodb.Open)) }
