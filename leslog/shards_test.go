//go:build go1.25

package leslog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/leslog"
	"github.com/c8e606e4/leaderelection/shard"
)

// A shard's lines have its name, its token, and how long it may be acted on.
func TestShardHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g memgroup.Records
		owned := make(chan *shard.Owned, 1)
		m, err := shard.Config{
			Store: g.Store, MemberID: "a", Shards: shard.Numbered(1),
			OnOwned: func(ctx context.Context, o *shard.Owned) error {
				owned <- o
				<-ctx.Done()
				return nil
			},
		}.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o := <-owned
		var out bytes.Buffer
		log := slog.New(leslog.NewShardHandler(slog.NewJSONHandler(&out, nil), o)).With("service", "orders")
		expect := func(left string) {
			t.Helper()
			out.Reset()
			log.Info("billed", "order", 7)
			if want := fmt.Sprintf(`"msg":"billed","service":"orders","order":7,"shard":{"name":"0","token":%d%s}}`, o.ElectionNumber(), left); !strings.Contains(out.String(), want) {
				t.Errorf("%s, want %s", out.String(), want)
			}
		}
		expect(`,"left":13000000000`)
		time.Sleep(time.Second)
		expect(`,"left":12000000000`)
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		expect("") // it may not be acted on
	})
}

// It keeps slog's own contract of handlers.
func TestSlogContractOfShards(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return leslog.NewShardHandler(slog.NewJSONHandler(&out, nil), &shard.Owned{})
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		remove(line)
		return line
	})
}

func ExampleNewShardHandler() {
	log := slog.Default()
	cfg := shard.Config{
		MemberID: "worker-7", Shards: shard.Numbered(64),
		OnOwned: func(ctx context.Context, o *shard.Owned) error {
			log := slog.New(leslog.NewShardHandler(log.Handler(), o))
			log.Info("billed", "order", 7) // with the shard's name and token
			<-ctx.Done()
			return nil
		},
		// Store: of the group's records
	}
	_, err := cfg.Start(context.Background())
	fmt.Println(err)
	// Output: shard: leaderelection: the configuration is wrong: Store is nil: it returns the decider of each record
}
