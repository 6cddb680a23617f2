//go:build go1.25

package leslog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/leslog"
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

// campaign is a Campaign whose parts a test sets.
type campaign struct {
	view  *le.TimeView
	entry le.RaceEntry
}

func (c *campaign) View() *le.TimeView   { return c.view }
func (c *campaign) Status() le.Status    { return le.Following }
func (c *campaign) Leader() le.RaceEntry { return c.entry }

// It keeps slog's own contract of handlers.
func TestSlogContract(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return leslog.NewHandler(slog.NewJSONHandler(&out, nil), &campaign{view: viewtest.New(nil, 0).TimeView})
	}, func(t *testing.T) map[string]any {
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		remove(line)
		return line
	})
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
	c := &campaign{view: viewtest.New(nil, 0).TimeView, entry: le.RaceEntry{LeaderID: "worker-7", ElectionNumber: 12}}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	log.Info("not billed here", leslog.Attr(c)) // c: a *leaderelection.Campaign
	fmt.Println(leslog.Attr(c).Key)
	// Output:
	// level=INFO msg="not billed here" election.status=following election.token=12 election.leader=worker-7
	// election
}
