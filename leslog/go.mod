module github.com/c8e606e4/leaderelection/leslog

go 1.24.0

require (
	github.com/c8e606e4/leaderelection v0.0.0
	github.com/c8e606e4/leaderelection/shard v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/c8e606e4/leaderelection => ..

replace github.com/c8e606e4/leaderelection/shard => ../shard
