//go:build !no_s3

package store

import "github.com/c8e606e4/leaderelection/deciders/s3"

func init() { has("no_s3", s3.Open) }
