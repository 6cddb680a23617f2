//go:build !no_dynamodb

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_dynamodb", open.With(dynamo.Open)) }
