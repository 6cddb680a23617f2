package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// opener opens the election of a seat on one kind of store, with a client of its
// own.
type opener func(s seat) (leaderelection.RaceDecider, io.Closer, error)

// ours contests with this library; adjust, which may be nil, changes the settings.
func ours(open opener, adjust func(*leaderelection.Config, seat)) func(context.Context, seat, func(belief)) error {
	return func(ctx context.Context, s seat, lead func(belief)) error {
		c := leaderelection.Config{LeaderID: s.ID, TermLength: s.Term, MaxClockSkew: s.Term / 15}
		if adjust != nil {
			adjust(&c, s)
		}
		return campaign(ctx, s, open, c, lead)
	}
}

// slowClock is an adjust: the clock of whoever leads first is a third of a term slow.
func slowClock(c *leaderelection.Config, s seat) {
	if s.ID == firstID {
		c.Clock = clocks.NewOffset(clocks.System(), -s.Term/3)
	}
}

func campaign(ctx context.Context, s seat, open opener, c leaderelection.Config, lead func(belief)) error {
	d, client, err := open(s)
	if err != nil {
		return err
	}
	defer client.Close()
	c.Decider = d
	c.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		lead(belief{
			told:  func() bool { return ctx.Err() == nil },
			asked: view.ValueInFuture,
		})
		<-ctx.Done()
	}
	if err := c.Acquire(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func etcdDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client, err := etcdClient(s)
	if err != nil {
		return nil, nil, err
	}
	return etcd.NewDecider(client, s.Key, nil), client, nil
}

func redisDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client := redisClient(s, goredis.Options{MaxRetries: -1, ContextTimeoutEnabled: true}) // as the package's example
	return redis.NewDecider(client, s.Key, nil), client, nil
}

// leases keeps an election in an annotation of a Lease, by the object's
// resourceVersion: a whole decider.
type leases struct {
	client coordinationclient.LeaseInterface
	name   string
}

const annotation = "leaderelection/record"

// resourceVersion is the version that a record was read at; empty: there was none.
type resourceVersion string

func (resourceVersion) CommitTS() time.Time { return time.Time{} } // it does not say

func leaseDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client, err := leaseClient(s)
	if err != nil {
		return nil, nil, err
	}
	return leases{client.Leases(namespace), s.Key}, io.NopCloser(strings.NewReader("")), nil
}

func (d leases) place() string { return "Lease " + namespace + "/" + d.name }

func (d leases) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	l, err := d.client.Get(ctx, d.name, meta.GetOptions{})
	if errors.IsNotFound(err) {
		return &leaderelection.RaceEntry{Token: resourceVersion("")}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.place(), err)
	}
	e := new(leaderelection.RaceEntry)
	if err := json.Unmarshal([]byte(l.Annotations[annotation]), e); err != nil {
		return nil, fmt.Errorf("%s holds no record: %w (%w)", d.place(), err, leaderelection.ErrPermanent)
	}
	e.Token = resourceVersion(l.ResourceVersion)
	return e, nil
}

func (d leases) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	record, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	read, ok := e.Token.(resourceVersion)
	if e.Token != nil && !ok {
		return nil, fmt.Errorf("writing %s: a token of another store, %T (%w)", d.place(), e.Token, leaderelection.ErrPermanent)
	}
	l := &coordination.Lease{ObjectMeta: meta.ObjectMeta{
		Name: d.name, ResourceVersion: string(read), Annotations: map[string]string{annotation: string(record)},
	}}
	if read == "" {
		l, err = d.client.Create(ctx, l, meta.CreateOptions{})
	} else {
		l, err = d.client.Update(ctx, l, meta.UpdateOptions{})
	}
	switch {
	case errors.IsAlreadyExists(err), errors.IsConflict(err):
		return nil, &leaderelection.LostRaceError{Place: d.place(), Err: err}
	case err != nil:
		return nil, fmt.Errorf("writing %s: %w", d.place(), err)
	}
	return resourceVersion(l.ResourceVersion), nil
}
