package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/c8e606e4/leaderelection/legrpc"
)

// calls is the clients, and what they have seen.
type calls struct {
	firsts chan answer // of each leadership
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	greatest uint64 // the greatest leadership that any answer came from
	answered int
	refused  int
	failed   []error
	stale    []string // answers that must not have come
}

// answer is who answered a call, in which leadership.
type answer struct {
	leadership uint64
	by         string
	at         time.Time
}

func newCalls() *calls { return &calls{firsts: make(chan answer, 100)} }

// startCalls lets four clients call until stop is called.
func startCalls(conn *grpc.ClientConn) *calls {
	c := newCalls()
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for range 4 {
		c.done.Go(func() {
			pause := time.NewTicker(2 * time.Millisecond)
			defer pause.Stop()
			for ctx.Err() == nil {
				c.call(conn)
				<-pause.C
			}
		})
	}
	return c
}

// stop waits until every call has ended.
func (c *calls) stop() {
	c.cancel()
	c.done.Wait()
}

// call makes one. While there is no leader, WaitForReady lets it wait for the next.
func (c *calls) call(conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before := c.before()
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, method, new(emptypb.Empty), out, grpc.WaitForReady(true))
	a := answer{at: time.Now()}
	if err == nil {
		_, err = fmt.Sscan(out.Value, &a.leadership, &a.by)
	}
	c.take(before, a, err)
}

// before is the greatest leadership that has answered anybody yet.
func (c *calls) before() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greatest
}

// take takes in what became of a call. Leadership before had begun when it was made, so
// the views of those earlier had ended: none of them may answer it.
func (c *calls) take(before uint64, a answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, is := legrpc.RefusalOf(err); is || status.Code(err) == codes.Unavailable {
		c.refused++
		return
	}
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	c.answered++
	if a.leadership < before {
		c.stale = append(c.stale, fmt.Sprintf("%s with token %d answered a call made after an answer with token %d", a.by, a.leadership, before))
	}
	if a.leadership > c.greatest {
		c.greatest = a.leadership
		c.firsts <- a
	}
}
