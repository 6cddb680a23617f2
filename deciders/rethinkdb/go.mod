module github.com/c8e606e4/leaderelection/deciders/rethinkdb

go 1.25.0

require (
	github.com/c8e606e4/leaderelection v0.0.0
	github.com/xdg-go/scram v1.2.0
	go.uber.org/goleak v1.3.0
	gopkg.in/rethinkdb/rethinkdb-go.v6 v6.2.1
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/hailocab/go-hostpool v0.0.0-20160125115350-e80d13ce29ed // indirect
	github.com/opentracing/opentracing-go v1.1.0 // indirect
	github.com/sirupsen/logrus v1.0.6 // indirect
	github.com/xdg-go/pbkdf2 v1.0.0 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/term v0.45.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
	gopkg.in/cenkalti/backoff.v2 v2.2.1 // indirect
)

replace github.com/c8e606e4/leaderelection => ../..
