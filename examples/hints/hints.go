// Package hints is how to use deciders/hinted over a network: the record is an object on
// Google Cloud Storage, which cannot push, and candidates tell each other of it on a NATS
// subject. So a release is followed at once, and not at the next poll.
package hints

import (
	"context"
	"time"

	"cloud.google.com/go/storage"
	"github.com/nats-io/nats.go"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
)

// Election is the election that is kept in an object and announced on a subject.
type Election struct {
	Bucket, Object string
	Subject        string
	Poll           time.Duration // how often to read the object without a hint; zero: hinted's default
}

// Decider returns a candidate's decider, over clients that it shares with nobody. It may be
// used until they are closed.
func (e Election) Decider(client *storage.Client, nc *nats.Conn) *hinted.Decider {
	announce := func(ctx context.Context) {
		if err := nc.Publish(e.Subject, nil); err == nil {
			_ = nc.FlushWithContext(ctx) // so that it is sent before a process ends
		}
	}
	listen := func(ctx context.Context, changed func()) error {
		s, err := nc.Subscribe(e.Subject, func(*nats.Msg) { changed() })
		if err != nil {
			return err
		}
		defer func() { _ = s.Unsubscribe() }()
		if err := nc.FlushTimeout(5 * time.Second); err != nil {
			return err
		}
		changed() // it listens
		<-ctx.Done()
		return nil
	}
	return hinted.NewDecider(gcs.NewDecider(client, e.Bucket, e.Object, nil), listen, &hinted.Options{PollInterval: e.Poll, Announce: announce})
}
