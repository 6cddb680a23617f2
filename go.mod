module github.com/c8e606e4/leaderelection

go 1.24.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.13.0 // indirect
