package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A URL names a group's records by the part that is the election's, and nothing else of it. (TestEveryStoreTakesAGroup
// has each store's.)
func TestInGroup(t *testing.T) {
	for raw, want := range map[string]string{
		"file:///var/lib/app/orders":                                    "file:///var/lib/app/orders-seat-0",
		"s3://bucket/orders/{name}.json?region=x":                       "s3://bucket/orders/seat-0.json?region=x",
		"dynamodb:///orders?table=arn:aws:dynamodb:x:1:table/t":         "dynamodb:///orders-seat-0?table=arn%3Aaws%3Adynamodb%3Ax%3A1%3Atable%2Ft",
		"nats://host:4222/bucket/{name}?tls=true":                       "nats://host:4222/bucket/seat-0?tls=true",
		"etcds://a:2379,b:2379/orders?tls_ca=ca.pem":                    "etcds://a:2379,b:2379/orders-seat-0?tls_ca=ca.pem",
		"redis://host:6379/0?key={name}:orders":                         "redis://host:6379/0?key=seat-0:orders",
		"postgres://user:hush@host/database?election=orders&sslmode=no": "postgres://user:hush@host/database?election=orders-seat-0&sslmode=no",
		"gs://bucket/a%2Fb":                                             "gs://bucket/a%2Fb-seat-0",
		"REDIS://host/0?key=orders":                                     "redis://host/0?key=orders-seat-0",
		"redis://host/0?key=orders&channel=told":                        "redis://host/0?channel=told-seat-0&key=orders-seat-0",
		"redis://host/0?key={name}&channel=c-{name}":                    "redis://host/0?key=seat-0&channel=c-seat-0",
		"s3://bucket/orders/%7Bname%7d":                                 "s3://bucket/orders/seat-0",
		"dynamodb://table/orders?sort_key=s&sort_value={name}":          "dynamodb://table/orders?sort_key=s&sort_value=seat-0",
		"kubernetes://{name}/orders":                                    "kubernetes://seat-0/orders",
		"gs://bucket/orders/{name}":                                     "gs://bucket/orders/seat-0",
	} {
		if got, err := InGroup(raw, "seat-0"); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"redis://host/0", "rediss://host/0?channel=x", "postgres://host/database", "mysql://host/database?table=x", "sqlite:app.db", "etcd://host", "gs://bucket/", "s3://bucket",
		"azblob://account/container/blob?native_lease=30s", "azblob://account/container/{name}?companion=x", "orders", "http://[", "redis://host/{name}",
		// All records would be one, or told of on one channel, or called by nothing; and what cannot be read.
		"s3://bucket/orders?metadata=app={name}", "etcd://host-{name}/orders", "etcd://user:{name}@host/orders", "etcd://user:{name}@host/{name}",
		"etcd://host-{name}/{name}", "{name}:{name}", "redis://host/0?key=orders&channel={name}",
		"redis://host/0?key={name}&channel=all", "gs://bucket/orders/", "file:///var/lib/orders/", "s3://bucket/orders?a=1;b=2",
	} {
		if got, err := InGroup(raw, "seat-0"); !errors.Is(err, ErrURL) {
			t.Errorf("%s: %s, %v, want ErrURL", raw, got, err)
		}
	}
	for _, form := range append(Forms, TLS...) {
		if got, err := InGroup(form, "x"); err != nil || got == form {
			t.Errorf("%s: %s, %v", form, got, err)
		}
	}
}

// opened counts what is open of a store in memory.
type opened struct {
	mu      sync.Mutex
	records map[string]*memory.Decider // by URL
	open    int
	fail    error
	polled  bool
}

// closed is called when a record is closed.
type closed func()

func (c closed) Close() error { c(); return nil }

func (o *opened) opener(_ context.Context, raw string, _ time.Duration) (leaderelection.RaceDecider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return nil, o.fail
	}
	if o.records[raw] == nil {
		o.records[raw] = memory.NewDecider()
	}
	count := func(n int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open += n
	}
	o.open++
	d, done := o.records[raw].Handle(), closed(func() { count(-1) })
	if o.polled {
		return struct {
			leaderelection.RaceDecider
			closed
		}{d.Polled(), done}, nil
	}
	return struct {
		*memory.Decider
		closed
	}{d, done}, nil
}

func (o *opened) now() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

// Records are opened when they are used, closed when they are not, and opened again; what
// follows changes keeps its record open.
func TestGroupOpensWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &opened{records: map[string]*memory.Decider{}}
		g, err := openGroup(t.Context(), "etcd://host/orders", "coordinator", time.Second, o.opener)
		if err != nil {
			t.Fatal(err)
		}
		d, err := g.Store("seat-3")
		if err != nil || o.now() != 1 {
			t.Fatalf("%v; %d are open, want the first alone", err, o.now())
		}
		if is := fmt.Sprint(d); !strings.HasPrefix(is, "etcd://host/orders") || !strings.HasSuffix(is, "seat-3") {
			t.Errorf("its place is %s", is)
		}
		e, err := d.ReadCurrent(t.Context())
		if err != nil || o.now() != 2 {
			t.Fatalf("%v; %d are open", err, o.now())
		}
		time.Sleep(idle + time.Second)
		if o.now() != 0 {
			t.Errorf("%d are open, though nobody has used any for %v", o.now(), idle)
		}
		// A token of the one that was closed is worth as much with the next one.
		if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i", TermExpiry: time.Now(), Token: e.Token}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan *leaderelection.RaceEntry, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e := range d.(leaderelection.ChangeFeed).Changes(ctx) {
				if e != nil {
					told <- e
				}
			}
		}()
		if e := <-told; e.LeaderID != "a" {
			t.Errorf("told of %+v", e)
		}
		time.Sleep(3 * idle)
		if o.now() != 1 {
			t.Errorf("%d are open, want the one that is followed", o.now())
		}
		cancel()
		<-done
		g.Close()
		if o.now() != 0 {
			t.Errorf("%d are open after Close", o.now())
		}
		if _, err := d.ReadCurrent(t.Context()); err == nil {
			t.Error("a closed group was read")
		}
		time.Sleep(3 * idle)
	})
}

// A store that cannot be opened now can be later, and one that does not push is polled.
func TestGroupFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &opened{records: map[string]*memory.Decider{}, fail: errors.New("not now"), polled: true}
		if _, err := openGroup(t.Context(), "s3://bucket/orders", "coordinator", time.Second, o.opener); !errors.Is(err, o.fail) {
			t.Errorf("%v, want %v", err, o.fail)
		}
		o.fail = nil
		g, err := openGroup(t.Context(), "s3://bucket/orders", "coordinator", time.Second, o.opener)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		d, err := g.Store("assignment")
		if _, pushes := d.(leaderelection.ChangeFeed); pushes || err != nil {
			t.Errorf("%v, it pushes %v", err, pushes)
		}
		o.fail = errors.New("not now")
		if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, o.fail) {
			t.Errorf("%v, want %v", err, o.fail)
		}
		o.fail = nil
		if _, err := d.ReadCurrent(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Kinds are all stores, also such as this build has not.
var Kinds = kinds

// Schemes are those of all stores.
func Schemes() (all []string) {
	for _, k := range kinds {
		all = append(all, k.Schemes...)
	}
	return all
}

// ByItself is Open by the store alone, so that what it makes without I/O is there even
// if ctx has ended.
func ByItself(ctx context.Context, raw string) (leaderelection.RaceDecider, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	o := stores()[u.Scheme]
	if o == nil {
		return nil, unknown(u)
	}
	return o(ctx, u)
}
