//go:build !no_mysql

package store

import (
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
)

func init() { has("no_mysql", open.With(mysql.Open)) }
