//go:build !no_azblob

package store

import "github.com/c8e606e4/leaderelection/deciders/azblob"

func init() { has("no_azblob", azblob.Open) }
