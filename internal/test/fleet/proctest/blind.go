package proctest

import (
	"context"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Blind overwrites whatever is there: every candidate wins. It is for tests of these tests.
type Blind struct{ leaderelection.RaceDecider }

// WriteEntry writes, and loses no race.
func (b Blind) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if !clocks.System().SleepFor(ctx, 300*time.Millisecond) { // others read meanwhile
		return nil, ctx.Err()
	}
	now, err := b.ReadCurrent(ctx)
	if err != nil {
		return nil, err
	}
	e := entry.Clone()
	e.Token = now.Token
	return b.RaceDecider.WriteEntry(ctx, e)
}
