package plan

import "time"

// PricesAsOf is when the list prices below were looked over last. They are those of
// US regions, in US dollars, without tax, discounts and free tiers. To bring them up
// to date, change this file only. The vendors' own tables are filled in by the reader's
// browser and could not be read for this; Checked says what was.
const PricesAsOf = "2026-11-21"

// Store is what planning needs to know of a kind of store.
type Store struct {
	Name    string        // the scheme of its URLs
	Pushes  bool          // it tells of changes; else standbys poll
	Latency time.Duration // of a request within a region, as a rule of thumb
	// Writes and Reads are dollars for a million of each. Both zero: there is no
	// price by the request, one pays for the server.
	Writes, Reads float64
	Pricing       string        // what they are prices of, and the vendor's page
	Checked       string        // by what they were looked over
	Fastest       time.Duration // between two writes to one record, where the store limits that
	OneMachine    bool          // all candidates share a clock
}

// Stores are those that can be planned for.
var Stores = []Store{
	{Name: "gs", Latency: 60 * time.Millisecond, Writes: 5, Reads: 0.40, Fastest: time.Second,
		Pricing: "Standard storage in a region, class A and B operations: https://cloud.google.com/storage/pricing",
		Checked: "as in the vendor's examples, https://cloud.google.com/storage/pricing-examples"},
	{Name: "s3", Latency: 30 * time.Millisecond, Writes: 5, Reads: 0.40,
		Pricing: "S3 Standard, PUT and GET requests, us-east-1: https://aws.amazon.com/s3/pricing/",
		Checked: "as others quote them, such as https://c3x.dev/blog/s3-request-fees-explained"},
	{Name: "azblob", Latency: 20 * time.Millisecond, Writes: 5, Reads: 0.40,
		Pricing: "Hot, LRS, write and read operations, East US: https://azure.microsoft.com/pricing/details/storage/blobs/",
		Checked: "not confirmed by any other page: look at the vendor's"},
	{Name: "dynamodb", Latency: 8 * time.Millisecond, Writes: 0.625, Reads: 0.125,
		Pricing: "on demand, one write unit, one strongly consistent read unit, us-east-1: https://aws.amazon.com/dynamodb/pricing/on-demand/",
		Checked: "as others quote them since they were halved in November 2024, such as https://airbyte.com/data-engineering-resources/dynamodb-pricing"},
	{Name: "nats", Pushes: true, Latency: 2 * time.Millisecond},
	{Name: "redis", Pushes: true, Latency: time.Millisecond},
	{Name: "etcd", Pushes: true, Latency: 5 * time.Millisecond},
	{Name: "postgres", Pushes: true, Latency: 3 * time.Millisecond},
	{Name: "mongodb", Pushes: true, Latency: 8 * time.Millisecond},
	{Name: "rethinkdb", Pushes: true, Latency: 5 * time.Millisecond},
	{Name: "file", Pushes: true, Latency: 3 * time.Millisecond, OneMachine: true},
}

// Lookup is the store of that name; nil where there is none.
func Lookup(name string) *Store {
	for i := range Stores {
		if Stores[i].Name == name {
			return &Stores[i]
		}
	}
	return nil
}
