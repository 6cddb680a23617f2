//go:build !no_mysql

package store

import "github.com/c8e606e4/leaderelection/deciders/sql/mysql"

func init() { has("no_mysql", mysql.Open) }
