//go:build !no_kubernetes

package store

import "github.com/c8e606e4/leaderelection/deciders/kubernetes"

func init() { has("no_kubernetes", kubernetes.Open) }
