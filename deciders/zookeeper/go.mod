module github.com/c8e606e4/leaderelection/deciders/zookeeper

go 1.25.0

require (
	github.com/c8e606e4/leaderelection v0.0.0
	github.com/go-zookeeper/zk v1.0.4
	go.uber.org/goleak v1.3.0
)

replace github.com/c8e606e4/leaderelection => ../..
