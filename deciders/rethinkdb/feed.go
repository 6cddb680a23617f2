package rethinkdb

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
)

// stopTimeout is how long the end of a feed waits for the server to have ended its
// side.
const stopTimeout = time.Second

// change is one message of a changefeed.
type change struct {
	New   *row   `rethinkdb:"new_val"`
	Error string `rethinkdb:"error"`
}

// Changes implements leaderelection.ChangeFeed by a changefeed on the row. It yields every state of
// the row that the server shows, and an empty election if the row is deleted. It ends with an error
// if the changefeed does.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

// follow yields what the changefeed tells, until yield returns false, or an error.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	feed, cancel := context.WithCancel(ctx)
	changes, ended := make(chan *row), make(chan error, 1)
	go func() { ended <- d.b.listen(feed, changes) }()
	over := false
	defer func() {
		if cancel(); over {
			return
		}
		select {
		case <-ended:
		case <-time.After(stopTimeout): // the server is silent: the driver ends by its own timeouts
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			over = true
			return brief{err}
		case found := <-changes:
			s, err := d.b.stored(found)
			if err != nil {
				return err
			}
			e, err := d.election.Entry(s)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
		}
	}
}

// listen hands on what the changefeed tells, until it ends, which it does with an
// error.
func (b *backend) listen(ctx context.Context, changes chan<- *row) (ended error) {
	on, err := b.sessions.Use(ctx)
	if err != nil {
		return err
	}
	defer func() { b.sessions.Ended(on, ended) }()
	over := b.turn(ctx)
	cursor, err := r.DB(b.database).Table(b.table).Get(b.id).
		Changes(r.ChangesOpts{IncludeInitial: true}).
		Run(on, r.RunOpts{Context: ctx})
	over()
	if err != nil {
		return err
	}
	defer func() { _ = cursor.Close() }()
	for c := (change{}); cursor.Next(&c); c = (change{}) {
		if c.Error != "" {
			return errors.New(c.Error)
		}
		select {
		case changes <- c.New:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return cmp.Or(cursor.Err(), errors.New("the changefeed ended"))
}
