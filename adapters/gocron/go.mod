module github.com/c8e606e4/leaderelection/adapters/gocron

go 1.24.0

require (
	github.com/c8e606e4/leaderelection v0.0.0
	github.com/go-co-op/gocron/v2 v2.21.2
	go.uber.org/goleak v1.3.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
)

replace github.com/c8e606e4/leaderelection => ../..
