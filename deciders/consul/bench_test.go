package consul_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func BenchmarkDecider(b *testing.B) { decidertest.Bench(b, elections(stores.Consul(b, ""))) }

// The same requests by net/http alone: what the decider adds is the difference.
func BenchmarkClient(b *testing.B) {
	addr := "http://" + stores.Consul(b, "").Address
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	d := consul.NewDecider(&http.Client{Transport: tr}, addr, "e", nil)
	feedtest.Write(b, d, 1, nil)
	data, err := record.Marshal(feedtest.State(1, nil))
	if err != nil {
		b.Fatal(err)
	}
	ask := func(b *testing.B, method, path string, body []byte) []byte {
		r, err := http.NewRequestWithContext(b.Context(), method, addr+path, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		a, err := tr.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		defer a.Body.Close()
		got, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != http.StatusOK {
			b.Fatal(a.Status, err, string(got))
		}
		return got
	}
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ask(b, http.MethodGet, "/v1/kv/e?consistent", nil)
		}
	})
	b.Run("Txn", func(b *testing.B) {
		b.ReportAllocs()
		for flags := 1; b.Loop(); flags++ {
			op, err := json.Marshal([]any{map[string]any{"KV": map[string]any{"Verb": "set", "Key": "e", "Value": data, "Flags": flags}}})
			if err != nil {
				b.Fatal(err)
			}
			if got := ask(b, http.MethodPut, "/v1/txn", op); !bytes.Contains(got, fmt.Append(nil, "ModifyIndex")) {
				b.Fatal(string(got))
			}
		}
	})
}
