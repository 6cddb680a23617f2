package shard

import (
	"context"
	"errors"
	"time"
)

// list asks for the names of the shards once a term, if a function lists them. Nobody waits for
// it, since the function may hang.
func (c *coordinator) list() {
	for c.ctx.Err() == nil {
		select {
		case c.m.listing <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		begun := time.Now()
		names, err := c.m.names(c.ctx)
		<-c.m.listing
		shards := Named(names...)
		if err == nil {
			err = shards.check()
		}
		if err == nil && len(names) == 0 {
			err = errors.New("it lists none, which is taken for an error")
		}
		if err == nil {
			c.m.lists.Worked(c.m.elapsed(), "")
			c.post(seatEvent{listed: &shards})
		} else if c.ctx.Err() == nil {
			c.m.lists.Failed(c.m.elapsed(), "", "the shards cannot be listed, and stay as they are", "err", err)
		}
		every := c.m.cfg.TermLength
		if err != nil {
			every /= 4
		}
		sleep(c.ctx, every-time.Since(begun))
	}
}

// names calls the function.
func (m *Member) names(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.TermLength)
	defer cancel()
	return m.cfg.Shards.list(ctx)
}
