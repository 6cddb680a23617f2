package etcd_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The same as Bench's Read and Write, by the bare client: what the decider adds is the
// difference.
func BenchmarkClient(b *testing.B) {
	c := client(b, stores.Etcd(b, "-fsync").Endpoint)
	data, err := record.Marshal(feedtest.State(1, nil))
	if err != nil {
		b.Fatal(err)
	}
	put, err := c.Put(b.Context(), "k", string(data))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Get(b.Context(), "k"); err != nil {
				b.Fatal(err)
			}
		}
	})
	at := put.Header.Revision
	b.Run("Txn", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			answer, err := c.Txn(b.Context()).If(clientv3.Compare(clientv3.ModRevision("k"), "=", at)).
				Then(clientv3.OpPut("k", string(data))).Else(clientv3.OpGet("k")).Commit()
			if err == nil && !answer.Succeeded {
				err = fmt.Errorf("the race is lost: %v", answer)
			}
			if err != nil {
				b.Fatal(err)
			}
			at = answer.Header.Revision
		}
	})
}

func BenchmarkDecider(b *testing.B) {
	decidertest.Bench(b, elections(stores.Etcd(b, "-fsync").Endpoint))
}
