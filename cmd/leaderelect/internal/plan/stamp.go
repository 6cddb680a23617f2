package plan

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// unstamped is a store that does not say when it wrote a record: what is beneath
// goes by the real clock, and would prove every virtual one wrong.
type unstamped struct{ leaderelection.RaceDecider }

// silent is a token without its stamp.
type silent struct{ leaderelection.LeaderToken }

// CommitTS implements leaderelection.LeaderToken.
func (silent) CommitTS() time.Time { return time.Time{} }

func silence(e *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	if e != nil {
		e = e.Clone()
		e.Token = silent{e.Token}
	}
	return e
}

func (u unstamped) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := u.RaceDecider.ReadCurrent(ctx)
	return silence(e), err
}

func (u unstamped) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	entry = entry.Clone()
	if s, ok := entry.Token.(silent); ok {
		entry.Token = s.LeaderToken
	}
	token, err := u.RaceDecider.WriteEntry(ctx, entry)
	var lost *leaderelection.LostRaceError
	if errors.As(err, &lost) {
		return nil, &leaderelection.LostRaceError{Place: lost.Place, Current: silence(lost.Current), Err: lost.Err}
	}
	if err != nil {
		return nil, err
	}
	return silent{token}, nil
}

// unstampedFeed is one that pushes.
type unstampedFeed struct {
	unstamped
	feed leaderelection.ChangeFeed
}

// Changes implements leaderelection.ChangeFeed.
func (u unstampedFeed) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		for e, err := range u.feed.Changes(ctx) {
			if !yield(silence(e), err) {
				return
			}
		}
	}
}
