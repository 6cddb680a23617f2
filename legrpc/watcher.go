package legrpc

import (
	"context"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// watcher is the one watch of all channels of a Builder: it runs while there are any.
type watcher struct {
	config leaderelection.WatchConfig

	mu    sync.Mutex
	run   *running // nil while there is no channel
	users map[*following]struct{}
}

// running is a watch from its first channel to its last.
type running struct {
	*route.Follower
	ctx    context.Context
	cancel context.CancelFunc
	reads  sync.WaitGroup

	mu    sync.Mutex
	asked time.Time // when the last read besides the watch began
}

// join begins the watch, if r is its first channel.
func (w *watcher) join(r *following) (*running, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		run := &running{}
		run.ctx, run.cancel = context.WithCancel(context.Background())
		var err error
		if run.Follower, err = route.Follow(run.ctx, w.config, w.failed); err != nil {
			run.cancel()
			return nil, err
		}
		w.run = run
	} else if err := w.run.Failure(); err != nil {
		r.noteFailure(err)
	}
	w.users[r] = struct{}{}
	return w.run, nil
}

// leave ends the watch if r was its last channel. Then nothing of the watch runs any more, except
// for a store call that does not respect its ctx.
func (w *watcher) leave(r *following) {
	w.mu.Lock()
	delete(w.users, r)
	run := w.run
	if len(w.users) > 0 {
		run = nil
	} else {
		w.run = nil
	}
	w.mu.Unlock()
	if run == nil {
		return
	}
	run.cancel()
	<-run.Done()
	read := make(chan struct{})
	go func() { run.reads.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(100 * time.Millisecond):
	}
}

// failed reports a failed read to all channels.
func (w *watcher) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.users {
		r.noteFailure(err)
	}
}

// due returns when a channel that asks now may read: a second after the last such read.
func (run *running) due(now time.Time) time.Time {
	run.mu.Lock()
	defer run.mu.Unlock()
	if next := run.asked.Add(minReadInterval); next.After(now) {
		return next
	}
	return now
}

// readFor reads the record, in addition to the watch, for a channel that asked at the given time.
// It does nothing if a read for another channel has begun since.
func (run *running) readFor(asked time.Time, d leaderelection.RaceDecider) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.asked.After(asked) || run.ctx.Err() != nil {
		return
	}
	run.asked = time.Now()
	run.reads.Go(func() {
		ctx, cancel := context.WithTimeout(run.ctx, readTimeout)
		defer cancel()
		if e, err := d.ReadCurrent(ctx); err == nil && e != nil {
			run.News(*e)
		}
	})
}
