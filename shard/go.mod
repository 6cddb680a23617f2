module github.com/c8e606e4/leaderelection/shard

go 1.24.0

require github.com/c8e606e4/leaderelection v0.0.0

replace github.com/c8e606e4/leaderelection => ..
