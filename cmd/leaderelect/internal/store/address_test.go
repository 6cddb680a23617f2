package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// Every store that connects does so by an IPv6 address: with a port, and by its own one if the URL has
// none. What listens there says nothing.
func TestIPv6(t *testing.T) {
	withKeys(t)
	endpoint := func(at string) string { return url.QueryEscape("http://" + at) }
	for name, c := range map[string]struct {
		port string // empty: the URL names an endpoint, whose port is HTTP's
		url  func(at string) string
	}{
		"redis":          {"6379", func(at string) string { return "redis://" + at + "/0?key=e" }},
		"redis cluster":  {"6379", func(at string) string { return "redis://" + at + "?key=e&cluster=true" }},
		"redis sentinel": {"6379", func(at string) string { return "redis://" + at + "/0?key=e&master_name=main" }},
		"rediss":         {"6379", func(at string) string { return "rediss://" + at + "/0?key=e" }},
		"postgres":       {"5432", func(at string) string { return "postgres://u@" + at + "/db?election=e&sslmode=disable" }},
		"mysql":          {"3306", func(at string) string { return "mysql://u@" + at + "/db?election=e" }},
		"etcd":           {"2379", func(at string) string { return "etcd://" + at + "/e" }},
		"etcds":          {"2379", func(at string) string { return "etcds://" + at + "/e" }},
		"nats":           {"4222", func(at string) string { return "nats://" + at + "/bucket/key" }},
		"consul":         {"8500", func(at string) string { return "consul://" + at + "/e" }},
		"consul tls":     {"8501", func(at string) string { return "consul://" + at + "/e?tls=true" }},
		"zookeeper":      {"2181", func(at string) string { return "zookeeper://" + at + "/e" }},
		"zookeeper tls":  {"2181", func(at string) string { return "zookeeper://" + at + "/e?tls=true" }},
		"mongodb":        {"27017", func(at string) string { return "mongodb://" + at + "/db/collection/e" }},
		"rethinkdb":      {"28015", func(at string) string { return "rethinkdb://" + at + "/db/table/e" }},
		"rethinkdb tls":  {"28015", func(at string) string { return "rethinkdb://" + at + "/db/table/e?tls=true" }},
		"s3":             {"", func(at string) string { return "s3://bucket/e?region=x&path_style=true&endpoint=" + endpoint(at) }},
		"dynamodb":       {"", func(at string) string { return "dynamodb://table/e?region=x&endpoint=" + endpoint(at) }},
		"gs":             {"", func(at string) string { return "gs://bucket/e?anonymous=true&endpoint=" + endpoint(at) }},
		"azblob":         {"", func(at string) string { return "azblob://account/container/e?endpoint=" + endpoint(at+"/account") }},
		"kubernetes":     {"", func(at string) string { return "kubernetes://namespace/e?kubeconfig=" + kubeconfig(t, at) }},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "[::1]:0")
			if err != nil {
				t.Skip("this machine has no IPv6:", err)
			}
			connects(t, l, c.url(l.Addr().String()))
			if c.port == "" {
				return
			}
			if l, err = net.Listen("tcp", "[::1]:"+c.port); err != nil {
				t.Skip("a server has the store's own port:", err)
			}
			connects(t, l, c.url("[::1]"))
		})
	}
}

// withKeys gives the stores' clients what they would look for on the network, and keeps them quiet.
func withKeys(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AZURE_STORAGE_KEY": "a2V5",
	} {
		t.Setenv(name, value)
	}
	store.LogDrivers(slog.New(slog.DiscardHandler))
}

// kubeconfig is a file that leads to an API server.
func kubeconfig(t *testing.T, at string) string {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://%s"}}],
		contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: x}}]}`, at)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// connects opens and reads the record of a URL until somebody connects to l.
func connects(t *testing.T, l net.Listener, raw string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	came := make(chan bool)
	go func() {
		defer close(came)
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			cancel()
			came <- true
		}
	}()
	d, err := store.ByItself(ctx, raw)
	if err == nil {
		_, err = d.ReadCurrent(ctx)
		store.Close(d)
	}
	_ = l.Close()
	if !<-came {
		t.Errorf("%s does not connect: %v", raw, err)
	}
}
