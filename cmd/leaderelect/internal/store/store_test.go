package store_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

func TestScratch(t *testing.T) {
	for url, want := range map[string]string{
		"file:///var/lib/a.json?mode=0660":                       "file:///var/lib/a.json-doctor?mode=0660",
		"file:a.json":                                            "file:a.json-doctor",
		"gs://bucket/a/b":                                        "gs://bucket/a/b-doctor",
		"s3://bucket/a%2Fb?region=x":                             "s3://bucket/a%2Fb-doctor?region=x",
		"azblob://account/c/b?native_lease=30s&companion=c/x":    "azblob://account/c/b-doctor",
		"redis://:pw@host/0?key=web":                             "redis://:pw@host/0?key=web-doctor",
		"redis://host/0?key=web&channel=news":                    "redis://host/0?channel=news-doctor&key=web-doctor",
		"postgres://host/db?election=web&sslmode=disable":        "postgres://host/db?election=web-doctor&sslmode=disable",
		"mysql://host/db?election=web&create=true":               "mysql://host/db?create=true&election=web-doctor",
		"zookeeper://a,b:2181/elections/web?create=true":         "zookeeper://a,b:2181/elections/web-doctor?create=true",
		"consul://host/elections/web?datacenter=a":               "consul://host/elections/web-doctor?datacenter=a",
		"sqlite:app.db?election=web":                             "sqlite:app.db?election=web-doctor",
		"mongodb://host/db/collection/election?replicaSet=rs0":   "mongodb://host/db/collection/election-doctor?replicaSet=rs0",
		"nats://host:4222/bucket/key?create=true&storage=memory": "nats://host:4222/bucket/key-doctor?create=true&storage=memory",
	} {
		if got, err := store.Scratch(url); err != nil || got != want {
			t.Errorf("Scratch(%s) = %s, %v, want %s", url, got, err, want)
		}
	}
}

// Every form in the help opens a store, or fails at what the form leaves out: its
// scheme is known.
func TestFormsAreKnown(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, form := range append(append([]string{}, store.Forms...), store.TLS...) {
		// Nothing is reached: what is left to go wrong is the network.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		d, err := store.Open(ctx, form, 50*time.Millisecond)
		cancel()
		if errors.Is(err, store.ErrURL) {
			t.Errorf("%s: %v", form, err)
		}
		if err == nil {
			store.Close(d)
		}
	}
	for _, wrong := range []string{"", "plain", "%zz://", "ftp://host/x"} {
		if _, err := store.Open(t.Context(), wrong, time.Second); !errors.Is(err, store.ErrURL) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := store.Parse("redis://user:hush@host:port:x/"); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a password is told: %v", err)
	}
}

// The documentation of deciders/open lists every scheme.
func TestSchemesAreListed(t *testing.T) {
	source, err := os.ReadFile("../../../../deciders/open/open.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(source)) {
		if row, is := strings.CutPrefix(line, "//\tdeciders/"); is {
			for _, scheme := range strings.FieldsFunc(row, func(r rune) bool { return strings.ContainsRune(", \n", r) })[1:] {
				listed[scheme] = true
			}
		}
	}
	for _, scheme := range store.Schemes() {
		if !listed[scheme] {
			t.Errorf("deciders/open does not list %s", scheme)
		}
		delete(listed, scheme)
	}
	for scheme := range listed {
		t.Errorf("deciders/open lists %s, which no store takes", scheme)
	}
}
