//go:build go1.25

package leslog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/logtest"
	"github.com/c8e606e4/leaderelection/internal/memgroup"
	"github.com/c8e606e4/leaderelection/leslog"
	"github.com/c8e606e4/leaderelection/shard"
)

// lines are log lines without their time.
type lines struct{ logtest.Log }

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// take returns the lines since it was called last; shards that are let go at once are in no
// order, and so are sorted.
func (l *lines) take() []string {
	all := strings.Split(strings.TrimSuffix(l.Take(), "\n"), "\n")
	if !slices.ContainsFunc(all, func(line string) bool { return !strings.Contains(line, `"shard let go"`) }) {
		slices.Sort(all)
	}
	return all
}

// unlessCut are the faults of one whose requests are lost while it is cut.
func unlessCut(cut *atomic.Bool) memory.Faults {
	lose := memory.LoseRequests()
	return func(op memory.Op) memory.Fault {
		if cut.Load() {
			return lose(op)
		}
		return memory.Fault{}
	}
}

// sinceBirth has the numbers that begin with the time begin with 0, at the begin of virtual time.
func sinceBirth(lines []string) []string {
	number := regexp.MustCompile(`9466848\d\d`)
	for i, line := range lines {
		lines[i] = number.ReplaceAllStringFunc(line, func(n string) string { return strconv.Itoa(int(n[7]-'0')*10 + int(n[8]-'0')) })
	}
	return lines
}

// Every line of ShardTrace: a member comes to own, gives away, loses its session, and leaves.
func TestShardTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g memgroup.Records
		var l lines
		var cut, never atomic.Bool
		told := map[string]int{}
		start := func(id string, cut *atomic.Bool, trace *shard.Trace) *shard.Member {
			m, err := shard.Config{
				Store: g.With(unlessCut(cut)), MemberID: id, Shards: shard.Numbered(2), ShardTrace: trace,
				OnOwned: func(ctx context.Context, _ *shard.Owned) error {
					<-ctx.Done()
					time.Sleep(1500 * time.Millisecond)
					return nil
				},
			}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := sinceBirth(l.take()); !slices.Equal(got, want) {
				t.Errorf("it says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		a := start("a", &cut, shard.JoinTraces(leslog.ShardTrace(l.logger()), &shard.Trace{
			Owns:       func(shard.Owns) { told["owns"]++ },
			LetGo:      func(shard.LetGo) { told["let go"]++ },
			Assignment: func(*shard.Assignment) { told["assignment"]++ },
		}))
		expect(5*time.Second,
			`{"level":"INFO","msg":"shard owned","shard":{"name":"0","token":2},"session":"seat 0, session 0"}`,
			`{"level":"INFO","msg":"shard owned","shard":{"name":"1","token":2},"session":"seat 0, session 0"}`,
			`{"level":"INFO","msg":"assignment","version":1,"shards":2,"unowned":0,"moving":0,"members":1}`)
		b := start("b", &never, nil)
		expect(5*time.Second,
			`{"level":"DEBUG","msg":"assignment","version":6,"shards":2,"unowned":0,"moving":1,"members":2}`,
			`{"level":"INFO","msg":"shard let go","shard":{"name":"1","token":2},"session":"seat 0, session 0","cause":"moved","drained":1500000000}`,
			`{"level":"DEBUG","msg":"assignment","version":8,"shards":2,"unowned":0,"moving":0,"members":2}`)
		cut.Store(true)
		expect(20*time.Second, `{"level":"WARN","msg":"shard let go","shard":{"name":"0","token":2},"session":"seat 0, session 0","cause":"expired","drained":0}`)
		_ = b.Leave(t.Context())
		cut.Store(false)
		time.Sleep(time.Minute)
		l.take()
		_ = a.Leave(t.Context())
		expect(0,
			`{"level":"INFO","msg":"shard let go","shard":{"name":"0","token":4},"session":"seat 0, session 2","cause":"shutdown","drained":1500000000}`,
			`{"level":"INFO","msg":"shard let go","shard":{"name":"1","token":4},"session":"seat 0, session 2","cause":"shutdown","drained":1500000000}`)
		if told["owns"] != 4 || told["let go"] != 4 || told["assignment"] < 4 {
			t.Errorf("the next hooks were told %v", told)
		}
	})
}

// While shards have no owner, that is told at the level Info, once for each number of them.
func TestShardTraceOfUnowned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g memgroup.Records
		var l lines
		m, err := shard.Config{
			Store: g.Store, MemberID: "a", Shards: shard.Numbered(3), Capacity: 2, OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
			ShardTrace: leslog.ShardTrace(l.logger()),
		}.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := (shard.Operator{Store: g.Store}).Cordon(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		got := sinceBirth(l.take())
		for _, want := range []string{
			`{"level":"INFO","msg":"assignment","version":1,"shards":3,"unowned":1,"moving":0,"members":1}`,
			`{"level":"DEBUG","msg":"assignment","version":2,"shards":3,"unowned":1,"moving":0,"members":1}`,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("it says\n%s\nand not\n%s", strings.Join(got, "\n"), want)
			}
		}
		_ = m.Leave(t.Context())
	})
}

// owned is an Owned whose time a test sets.
type owned struct{ until time.Time }

func (*owned) Name() string             { return "7" }
func (*owned) Token() le.ElectionNumber { return 12 }
func (o *owned) Get() time.Time         { return o.until }
func (*owned) Clock() clocks.Clock      { return clocks.System() }

// A shard's lines have its name, its token, and how long it may be acted on.
func TestShardHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := &owned{time.Now().Add(8200 * time.Millisecond)}
		log := slog.New(leslog.NewShardHandler(slog.NewJSONHandler(&out, nil), o)).With("service", "orders")
		for _, c := range []struct {
			after time.Duration
			want  string
		}{
			{0, `"msg":"billed","service":"orders","order":7,"shard":{"name":"7","token":12,"left":8200000000}}`},
			{time.Second, `"msg":"billed","service":"orders","order":7,"shard":{"name":"7","token":12,"left":7200000000}}`},
		} {
			time.Sleep(c.after)
			if log.Info("billed", "order", 7); !strings.Contains(out.String(), c.want) {
				t.Errorf("%s, want %s", out.String(), c.want)
			}
			out.Reset()
		}
		o.until = time.Time{}
		if log.Info("late"); !strings.Contains(out.String(), `"shard":{"name":"7","token":12}}`) {
			t.Errorf("it may not be acted on: %s", out.String())
		}
	})
}

// It keeps slog's own contract of handlers.
func TestSlogContractOfShards(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return leslog.NewShardHandler(slog.NewJSONHandler(&out, nil), &owned{})
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		remove(line)
		return line
	})
}

func ExampleShardTrace() {
	log := slog.Default()
	cfg := shard.Config{
		MemberID: "worker-7", Shards: shard.Numbered(64),
		ShardTrace: leslog.ShardTrace(log),
		OnOwned: func(ctx context.Context, o *shard.Owned) error {
			log := slog.New(leslog.NewShardHandler(log.Handler(), o))
			log.Info("billed", "order", 7) // with the shard's name and token
			<-ctx.Done()
			return nil
		},
		// Store: of the group's records
	}
	_, err := cfg.Start(context.Background())
	fmt.Println(errors.Unwrap(err))
	// Output: Store is nil: it returns the decider of each record
}
