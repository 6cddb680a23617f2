//go:build !no_zookeeper

package store

import "github.com/c8e606e4/leaderelection/deciders/zookeeper"

func init() { has("no_zookeeper", zookeeper.Open) }
