module github.com/c8e606e4/leaderelection

go 1.26.0
