//go:build !no_kubernetes

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

func init() { has("no_kubernetes", open.With(kubernetes.Open)) }
