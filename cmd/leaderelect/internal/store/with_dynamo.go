//go:build !no_dynamodb

package store

import "github.com/c8e606e4/leaderelection/deciders/dynamo"

func init() { has("no_dynamodb", dynamo.Open) }
