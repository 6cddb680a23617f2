//go:build go1.25

package leslog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/leslog"
	"github.com/c8e606e4/leaderelection/shard"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A candidate's life, as its log lines tell it.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := memory.NewDecider()
		store := d.Handle()
		hang := make(chan struct{})
		campaign, err := le.Config{
			Decider: store, LeaderID: "a", MaxClockSkew: time.Second,
			OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done(); <-hang },
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := slog.New(leslog.NewHandler(slog.NewJSONHandler(&out, nil), campaign)).With("service", "orders")
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			out.Reset()
			log.Info("hello", "order", 7)
			var line struct {
				Service  string
				Order    int
				Election json.RawMessage
			}
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if string(line.Election) != want || line.Service != "orders" || line.Order != 7 {
				t.Errorf("%s, want %s", out.String(), want)
			}
		}
		expect(`{"status":"leading","token":946684800,"leader":"a","left":14000000000}`)
		time.Sleep(5 * time.Second)
		expect(`{"status":"leading","token":946684800,"leader":"a","left":9000000000}`)
		if err := le.Transfer(ctx, d, "b"); err != nil {
			t.Fatal(err)
		}
		expect(`{"status":"draining","token":946684800,"leader":"a","left":9000000000}`)
		close(hang)
		expect(`{"status":"following","token":946684800}`)
		d.Replace(&le.RaceEntry{LeaderID: "b", ElectionNumber: 946684801, TermLength: time.Hour, TermExpiry: time.Now().Add(time.Hour)})
		expect(`{"status":"following","token":946684801,"leader":"b"}`)
		cancel()
		<-campaign.Done()
		expect(`{"status":"stopped","token":946684801,"leader":"b"}`)
	})
}

// They keep slog's own contract of handlers.
func TestSlogContract(t *testing.T) {
	for name, handler := range map[string]func(next slog.Handler) slog.Handler{
		"of an election": func(next slog.Handler) slog.Handler { return leslog.NewHandler(next, viewtest.NewCandidate(nil)) },
		"of a shard":     func(next slog.Handler) slog.Handler { return leslog.NewShardHandler(next, &shard.Owned{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			slogtest.Run(t, func(*testing.T) slog.Handler {
				out.Reset()
				return handler(slog.NewJSONHandler(&out, nil))
			}, func(t *testing.T) map[string]any {
				var line map[string]any
				if err := json.Unmarshal(out.Bytes(), &line); err != nil {
					t.Fatal(err)
				}
				remove(line)
				return line
			})
		})
	}
}

// remove takes away what the handler adds, wherever it is, and groups that hold
// nothing else.
func remove(line map[string]any) {
	delete(line, leslog.Key)
	delete(line, leslog.ShardKey)
	for name, v := range line {
		if group, is := v.(map[string]any); is {
			if remove(group); len(group) == 0 {
				delete(line, name)
			}
		}
	}
}

func ExampleAttr() {
	c := viewtest.NewCandidate(nil) // a campaign, in a real program
	c.SetLeader(le.RaceEntry{LeaderID: "worker-7", ElectionNumber: 12})
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	log.Info("not billed here", leslog.Attr(c))
	fmt.Println(leslog.Attr(c).Key)
	// Output:
	// level=INFO msg="not billed here" election.status=following election.token=12 election.leader=worker-7
	// election
}

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
