package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// A replica that hangs for longer than a term ends the leadership of a candidate
// that waits for it. When it goes on, the candidate leads again.
func TestReplicaHangs(t *testing.T) {
	for name, user := range map[string]string{"a user who may do anything": "", "a user with the permissions documented": "candidate:secret@"} {
		t.Run(name, func(t *testing.T) {
			server := stores.Redis(t)
			replica := stores.RedisReplica(t, server, "--enable-debug-command", "yes")
			grant(t, server, append(documented(t), "+wait"))
			d := opened(t, fmt.Sprintf("redis://%s%s?key=k&wait_replicas=1", user, server.Addr))
			elected, ousted := make(chan struct{}, 10), make(chan struct{}, 10)
			ctx, cancel := context.WithCancel(t.Context())
			c, err := leaderelection.Config{
				Decider: d, LeaderID: "a", TermLength: time.Second, MaxClockSkew: 50 * time.Millisecond,
				OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
					elected <- struct{}{}
					<-ctx.Done()
					ousted <- struct{}{}
				},
			}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cancel(); _ = c.Wait() })
			await := func(what string, ch <-chan struct{}) {
				t.Helper()
				select {
				case <-ch:
				case <-time.After(15 * time.Second):
					t.Fatalf("not %s; %+v", what, c.Leader())
				}
			}
			await("elected", elected)
			go func() { _, _ = stores.AskRedis(ctx, replica.Addr, "DEBUG SLEEP 2") }()
			await("ousted", ousted)
			begun := time.Now()
			await("elected again", elected)
			t.Logf("leads again after %v", time.Since(begun))
		})
	}
}
