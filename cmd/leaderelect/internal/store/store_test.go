package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
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

// Each store says of a parameter that it does not know, or that has no value, that the URL is wrong.
func TestWrongParameter(t *testing.T) {
	for _, form := range store.Forms {
		for _, wrong := range []string{"nonsense=1", "nonsense="} {
			separator := "?"
			if strings.Contains(form, "?") {
				separator = "&"
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			d, err := store.ByItself(ctx, form+separator+wrong)
			cancel()
			if !errors.Is(err, open.ErrURL) || !errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("%s with %s: %v", form, wrong, err)
			}
			if err == nil {
				store.Close(d)
			}
		}
	}
}

// A store that the command opens is listed wherever a reader, or another part of the command,
// looks for it. Each error names the place.
func TestEveryStoreIsListed(t *testing.T) {
	const root = "../../../../"
	read := func(name string) string {
		text, err := os.ReadFile(root + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	packages := map[string]string{} // by scheme
	for line := range strings.Lines(read("deciders/open/open.go")) {
		if row, is := strings.CutPrefix(line, "//\tdeciders/"); is {
			words := strings.FieldsFunc(row, func(r rune) bool { return strings.ContainsRune(", \n", r) })
			for _, scheme := range words[1:] {
				packages[scheme] = "deciders/" + words[0]
			}
		}
	}
	has := func(place, text, what string) {
		if !strings.Contains(text, what) {
			t.Errorf("%s lacks %s", place, what)
		}
	}
	has("README.md", read("README.md"), fmt.Sprintf("one of %d stores", len(store.Kinds)))
	choosing, building, shards := read("docs/choosing.md"), read("docs/building.md"), read("cmd/leaderelect/docs/shards.md")
	for _, k := range store.Kinds {
		name := k.Schemes[0]
		for _, scheme := range k.Schemes {
			if packages[scheme] == "" {
				t.Errorf("the list of schemes in deciders/open/open.go lacks %s", scheme)
			} else {
				has("the table of stores in docs/choosing.md", choosing, "`"+packages[scheme]+"` |")
			}
			delete(packages, scheme)
			if !strings.HasPrefix(redact.URL(scheme+":x"), scheme+":") {
				t.Errorf("known in internal/log/redact/redact.go lacks %s", scheme)
			}
		}
		if k.Tag != "" {
			has("the list of build tags in docs/building.md", building, "`"+k.Tag+"`")
		}
		if !regexp.MustCompile(`(?m)^\| [a-z0-9, ]*\b` + name + `\b[a-z0-9, ]* \|`).MatchString(shards) {
			t.Errorf("the table of stores in cmd/leaderelect/docs/shards.md lacks %s", name)
		}
		if plan.Lookup(name) == nil {
			t.Errorf("Stores in cmd/leaderelect/internal/plan/stores.go lacks %s", name)
		}
		if !slices.ContainsFunc(places, func(p string) bool { return strings.HasPrefix(p, name+"://") }) {
			t.Errorf("places in secrets_test.go lacks %s", name)
		}
	}
	for scheme := range packages {
		t.Errorf("deciders/open/open.go lists %s, which kinds.go lacks", scheme)
	}
	for _, s := range plan.Stores {
		if store.Kind(s.Name) != s.Name || !slices.Contains(store.Schemes(), s.Name) {
			t.Errorf("plan.Stores has %s, which is no store's name in kinds.go", s.Name)
		}
	}
}

// What an operator's command opens is what is there.
func TestExisting(t *testing.T) {
	for from, want := range map[string]string{
		"postgres://u@h/d?election=a&create=true":              "postgres://u@h/d?election=a",
		"sqlite:///x?create=true":                              "sqlite:///x",
		"nats://h/b/k?create=true&replicas=3&storage=memory&x": "nats://h/b/k?x",
		"azblob://a/c/b?native_lease=true&create_companions=1": "azblob://a/c/b?native_lease=true",
		"redis://h/0?key=create=true":                          "redis://h/0?key=create=true",
		"file:///create=true":                                  "file:///create=true",
		"mysql://h/d?election=a&cr%65ate=true":                 "mysql://h/d?election=a",
	} {
		if got := store.Existing(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}
