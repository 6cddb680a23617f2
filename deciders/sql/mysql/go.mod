module github.com/c8e606e4/leaderelection/deciders/sql/mysql

go 1.25.0

require (
	github.com/c8e606e4/leaderelection v0.0.0
	github.com/go-sql-driver/mysql v1.10.1
	go.uber.org/goleak v1.3.0
)

require filippo.io/edwards25519 v1.2.0 // indirect

replace github.com/c8e606e4/leaderelection => ../../..
