package plan

import "time"

// Store is what planning needs to know of a kind of store.
type Store struct {
	Name       string        // the scheme of its URLs
	Pushes     bool          // it tells of changes; else standbys poll
	Fetches    bool          // what it tells bears no record: each notice is answered by a read
	Asks       bool          // each notice is the answer to a request that waited for it, the leader's own too
	Latency    time.Duration // of a request within a region, as a rule of thumb
	Fastest    time.Duration // between two writes to one record, if the store limits that
	OneMachine bool          // all candidates share a clock
}

// Stores are those that can be planned for.
var Stores = []Store{
	{Name: "gs", Latency: 60 * time.Millisecond, Fastest: time.Second},
	{Name: "s3", Latency: 30 * time.Millisecond},
	{Name: "azblob", Latency: 20 * time.Millisecond},
	{Name: "dynamodb", Latency: 8 * time.Millisecond},
	{Name: "nats", Pushes: true, Latency: 2 * time.Millisecond},
	{Name: "redis", Pushes: true, Latency: time.Millisecond},
	{Name: "etcd", Pushes: true, Latency: 5 * time.Millisecond},
	{Name: "postgres", Pushes: true, Latency: 3 * time.Millisecond},
	{Name: "mysql", Latency: 4 * time.Millisecond},
	{Name: "sqlite", Latency: 3 * time.Millisecond, OneMachine: true},
	{Name: "mongodb", Pushes: true, Latency: 8 * time.Millisecond},
	{Name: "rethinkdb", Pushes: true, Latency: 5 * time.Millisecond},
	{Name: "kubernetes", Pushes: true, Latency: 10 * time.Millisecond},
	{Name: "zookeeper", Pushes: true, Fetches: true, Latency: 5 * time.Millisecond},
	{Name: "consul", Pushes: true, Asks: true, Latency: 5 * time.Millisecond},
	{Name: "file", Pushes: true, Latency: 3 * time.Millisecond, OneMachine: true},
}

// Lookup returns the store of that name, nil if there is none.
func Lookup(name string) *Store {
	for i := range Stores {
		if Stores[i].Name == name {
			return &Stores[i]
		}
	}
	return nil
}
