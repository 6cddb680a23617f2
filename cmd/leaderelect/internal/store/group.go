package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// Placeholder stands for the name of a record in a group's URL.
const Placeholder = "{name}"

// escaped is Placeholder in a URL that some program has rewritten.
var escaped = regexp.MustCompile("(?i)%7Bname%7D")

// larger are further parameters that say where a record is.
var larger = []string{"table", "bucket", "sort_value"}

// InGroup is the URL of one record of a group of shards: raw with name in place of
// Placeholder, or without one raw's own record with "-" and name added to its name.
func InGroup(raw, name string) (string, error) {
	raw = escaped.ReplaceAllString(raw, Placeholder)
	if strings.Contains(raw, Placeholder) {
		one, err := parseGroup(strings.ReplaceAll(raw, Placeholder, name))
		if err != nil {
			return "", err
		}
		other, err := parseGroup(strings.ReplaceAll(raw, Placeholder, name+"-"))
		if err == nil {
			err = apart(one, other)
		}
		return strings.ReplaceAll(raw, Placeholder, name), err
	}
	u, err := parseGroup(raw)
	if err != nil {
		return "", err
	}
	if kindOf(raw).Parameter == "" && (strings.HasSuffix(u.Path, "/") || strings.HasSuffix(u.Opaque, "/")) {
		return "", fmt.Errorf("%w: a group's name cannot end with a slash: leave it out, or write %s after it", ErrURL, Placeholder)
	}
	beside(u, "-"+name)
	return u.String(), nil
}

// parseGroup reads a URL whose record is to be one of many.
func parseGroup(raw string) (*url.URL, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: its parameters cannot be read: in what follows the ?, write %%3B for ; and %%25 for %%", ErrURL)
	}
	for _, p := range leadersAlone {
		if q.Has(p) {
			return nil, fmt.Errorf("%w: %s is of an election's leader, and a group of shards has one in each of its records: leave it out", ErrURL, p)
		}
	}
	switch p := kindOf(raw).Parameter; {
	case p != "" && q.Get(p) == "":
		return nil, fmt.Errorf("%w: it does not say by %s= what the group is called", ErrURL, p)
	case p == "" && u.Opaque == "" && strings.Trim(u.Path, "/") == "":
		return nil, fmt.Errorf("%w: it does not say what the group is called: that is the last part of its path, as in\n  %s", ErrURL, strings.Join(Forms, "\n  "))
	}
	return u, nil
}

// apart returns what keeps the URLs of two records from being of two places, or nil.
func apart(one, other *url.URL) error {
	q, r := one.Query(), other.Query()
	k, hosts := kindOf(one.Scheme), one.Host != other.Host
	differs := one.Path != other.Path || one.Opaque != other.Opaque || hosts
	for _, p := range append(larger, k.Parameter) {
		differs = differs || q.Get(p) != r.Get(p)
	}
	switch {
	case !differs, hosts && !k.Hosted, one.Scheme != other.Scheme, one.User.String() != other.User.String():
		return fmt.Errorf("%w: %s stands where it names no record. Put it into the name, and nowhere else, or leave it out", ErrURL, Placeholder)
	case q.Has(channel) && q.Get(channel) == r.Get(channel):
		return fmt.Errorf("%w: the records of a group cannot share a %s: put %s into that, too, or leave it out", ErrURL, channel, Placeholder)
	}
	return nil
}

// idle is for how long a record is kept open that nobody uses: a member looks at each seat when
// it joins, and later at its own alone.
const idle = time.Minute

// Group opens the records of a group of shards: each when it is first used, and again
// when it is used after it was left alone for a while. They share one client, for as long as
// one of them is open. Its methods may be called by several goroutines at once.
type Group struct {
	raw      string
	patience time.Duration
	idle     time.Duration
	pushes   bool
	open     func(ctx context.Context, raw string, patience time.Duration) (leaderelection.RaceDecider, error)

	clients clients.Set

	mu      sync.Mutex
	records map[string]*record
	closed  bool
}

// OpenGroup opens the group that raw names. It opens the record called first, to see
// whether the store can be had; the others follow when they are used.
func OpenGroup(ctx context.Context, raw, first string, patience time.Duration) (*Group, error) {
	return openGroup(ctx, raw, first, patience, Open)
}

func openGroup(ctx context.Context, raw, first string, patience time.Duration, open func(context.Context, string, time.Duration) (leaderelection.RaceDecider, error)) (*Group, error) {
	g := &Group{raw: raw, patience: patience, idle: idle, open: open, records: map[string]*record{}}
	r, err := g.record(first)
	if err != nil {
		return nil, err
	}
	d, done, err := r.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	_, g.pushes = d.(leaderelection.ChangeFeed)
	return g, nil
}

// Store is a shard.Config's.
func (g *Group) Store(name string) (leaderelection.RaceDecider, error) {
	r, err := g.record(name)
	switch {
	case err != nil:
		return nil, err
	case g.pushes:
		return pushing{r}, nil
	}
	return r, nil
}

// Open is what Store returns, as the store's own: with all that its kind of decider can
// do. It stays open until Close.
func (g *Group) Open(ctx context.Context, name string) (leaderelection.RaceDecider, error) {
	r, err := g.record(name)
	if err != nil {
		return nil, err
	}
	d, _, err := r.use(ctx)
	return d, err
}

func (g *Group) record(name string) (*record, error) {
	raw, err := InGroup(g.raw, name)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.records[name] == nil {
		g.records[name] = &record{group: g, url: raw, turn: make(chan struct{}, 1)}
	}
	return g.records[name], nil
}

// Close closes what is open. What is used now fails.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	var open []leaderelection.RaceDecider
	for _, r := range g.records {
		if r.decider != nil {
			open = append(open, r.decider)
			r.decider = nil
		}
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, d := range open {
		wg.Go(func() { Close(d) })
	}
	wg.Wait()
}

// record is a decider that is opened when it is used.
type record struct {
	group *Group
	url   string
	turn  chan struct{} // who opens it

	// Under the group's mu:
	decider leaderelection.RaceDecider // nil: not open
	users   int
	timer   *time.Timer // until it is closed; nil: it was never let alone
}

var errClosed = errors.New("the group's store was closed")

// take returns the decider, if it is open.
func (r *record) take() (leaderelection.RaceDecider, error) {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	if r.group.closed {
		return nil, errClosed
	}
	if r.decider != nil {
		r.users++
	}
	return r.decider, nil
}

// use returns the decider, and what to call when it is not used any more.
func (r *record) use(ctx context.Context) (d leaderelection.RaceDecider, done func(), err error) {
	if d, err = r.take(); d != nil || err != nil {
		return d, r.done, err
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if d, err = r.take(); d != nil || err != nil {
		return d, r.done, err
	}
	if d, err = r.group.open(r.group.clients.In(ctx), r.url, r.group.patience); err != nil {
		return nil, nil, err
	}
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	if r.group.closed {
		go Close(d)
		return nil, nil, errClosed
	}
	r.decider, r.users = d, 1
	return d, r.done, nil
}

// done notes that one user has left.
func (r *record) done() {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	if r.users--; r.users > 0 || r.group.closed {
		return
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(r.group.idle, r.left)
	} else {
		r.timer.Reset(r.group.idle)
	}
}

// left closes the record, unless it is used again.
func (r *record) left() {
	r.group.mu.Lock()
	d := r.decider
	if r.users > 0 || d == nil {
		r.group.mu.Unlock()
		return
	}
	r.decider = nil
	r.group.mu.Unlock()
	Close(d)
}

// String implements fmt.Stringer: it may not be open.
func (r *record) String() string { return redact.URL(r.url) }

// ReadCurrent implements leaderelection.RaceDecider.
func (r *record) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	d, done, err := r.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return d.ReadCurrent(ctx)
}

// WriteEntry implements leaderelection.RaceDecider.
func (r *record) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	d, done, err := r.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return d.WriteEntry(ctx, e)
}

// pushing is a record of a store that tells of changes.
type pushing struct{ *record }

// Changes implements leaderelection.ChangeFeed.
func (p pushing) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		d, done, err := p.use(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer done()
		feed, tells := d.(leaderelection.ChangeFeed)
		if !tells {
			yield(nil, fmt.Errorf("the store of %T tells of no changes any more", d))
			return
		}
		feed.Changes(ctx)(yield)
	}
}
