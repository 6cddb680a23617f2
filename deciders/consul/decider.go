package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Options adjusts a Decider. The zero value is right for an agent without ACLs, in its own
// datacenter.
type Options struct {
	// Token returns the ACL token. It is called for each request, by several goroutines at
	// once, so a renewed token is used. Nil: no token is sent, and the agent uses its own
	// (acl.tokens.default), or the anonymous one.
	Token func() (string, error)
	// Datacenter is where the key is. Empty: the agent's. Each datacenter has keys of its
	// own: all candidates must name the same.
	Datacenter string
	// Namespace and Partition are for Consul Enterprise. Empty: the token's, or default.
	Namespace, Partition string
	// FeedWait is how long a query of the feed waits for a change, from a second to ten
	// minutes. Consul adds up to a sixteenth of it. Keep it below the time after which
	// a proxy gives up requests. Zero: 50 s.
	FeedWait time.Duration
}

// Decider is one handle on an election in Consul. It is a leaderelection.RaceDecider, a
// leaderelection.ChangeFeed and a durability.Examiner. Its methods may be called by several
// goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[token]
	close    func()
}

// backend is the store: one key.
type backend struct {
	http    *http.Client
	address *url.URL
	key     string
	opts    Options
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// NewDecider returns a handle on the election in the key ("elections/web") of the Consul that the
// agent at address ("http://127.0.0.1:8500") belongs to. Client may be shared. Nil means one with
// Go's default transport. Its Timeout and CheckRedirect are not used: each request has a deadline,
// and redirects are not followed. Options may be nil. NewDecider does no I/O.
func NewDecider(client *http.Client, address, key string, opts *Options) *Decider {
	b := &backend{http: &http.Client{}, key: key}
	if client != nil {
		b.http.Transport = client.Transport
	}
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if opts != nil {
		b.opts = *opts
	}
	b.opts.FeedWait = cmp.Or(b.opts.FeedWait, 50*time.Second)
	var err error
	if b.address, err = parseAddress(address); err == nil {
		err = checkKey(key)
	}
	if b.opts.FeedWait < time.Second || b.opts.FeedWait > 10*time.Minute {
		err = fmt.Errorf("the FeedWait is %v, and must be from a second to ten minutes", b.opts.FeedWait)
	}
	place := fmt.Sprintf("Consul key %q", key)
	for _, part := range [][2]string{{"datacenter", b.opts.Datacenter}, {"namespace", b.opts.Namespace}, {"partition", b.opts.Partition}} {
		if part[1] != "" {
			place += " of " + part[0] + " " + part[1]
		}
	}
	if b.address != nil {
		place += " at " + b.address.Host
	}
	return &Decider{b: b, close: func() {}, election: store.Election[token]{Store: b, Package: "consul", Place: place, Wrong: err}}
}

func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || strings.Contains(u.Host, ",") || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the agent's address must be a URL with one host, such as http://127.0.0.1:8500")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the agent's address must have no credentials and no parameters")
	}
	return u, nil
}

// checkKey says what would not arrive at Consul as it is, by way of a URL, or is refused by
// some of its versions.
func checkKey(key string) error {
	if key == "" || len(key) > 1000 || !utf8.ValidString(key) {
		return errors.New("the key must be UTF-8 of 1 to 1000 bytes")
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("the key must not have %q between slashes, nor a / at its beginning or end", name)
		}
	}
	for _, r := range key {
		if !unicode.IsPrint(r) || r == '%' {
			return fmt.Errorf("the key must not have the letter %q", r)
		}
	}
	if strings.TrimSpace(key) != key {
		return errors.New("the key must not begin or end with a space")
	}
	return nil
}

// Close closes the connections that Open has made. Those of a client given to NewDecider are yours
// to close.
func (d *Decider) Close() error {
	d.close()
	return nil
}

// token is a version of the key. The zero one says that there is no key.
type token struct {
	created  uint64 // the CreateIndex
	modified uint64 // the ModifyIndex
}

// CommitTS is zero: Consul does not say when it wrote.
func (token) CommitTS() time.Time { return time.Time{} }

// String names the place of the record: the key, and the agent that leads to it.
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. It is a consistent read: the servers' leader
// first makes sure, by a majority, that it still leads.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, in one transaction of one operation.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[token], error) {
	s, _, err := b.read(ctx, 0)
	return s, err
}

// pair is a key as Consul shows it.
type pair struct {
	Key                      string
	Value                    []byte
	Flags                    uint64
	CreateIndex, ModifyIndex uint64
	Session                  string
}

// read reads the key, and returns its index as well. If after is not 0 it waits until the
// index is greater, or for the time of FeedWait.
func (b *backend) read(ctx context.Context, after uint64) (s store.Stored[token], index uint64, err error) {
	q := url.Values{}
	if after == 0 {
		q.Set("consistent", "")
	} else {
		q.Set("index", fmt.Sprint(after))
		q.Set("wait", b.opts.FeedWait.String())
	}
	set(q, "ns", b.opts.Namespace)
	set(q, "partition", b.opts.Partition)
	a, err := b.call(ctx, http.MethodGet, "/v1/kv/"+b.key, q, nil)
	if err != nil {
		return s, 0, err
	}
	if a.status != http.StatusOK && a.status != http.StatusNotFound || a.status == http.StatusNotFound && len(a.body) > 0 {
		return s, 0, a.refusal(string(a.body))
	}
	if index, err = a.index(); err != nil {
		return s, 0, err
	}
	if a.status == http.StatusNotFound {
		return store.Stored[token]{None: true}, index, nil
	}
	var pairs []pair
	if err := a.decode(&pairs); err != nil {
		return s, 0, err
	}
	if len(pairs) != 1 || pairs[0].Key != b.key || pairs[0].ModifyIndex != index || pairs[0].CreateIndex == 0 || pairs[0].CreateIndex > index {
		return s, 0, errNotConsul
	}
	if pairs[0].Session != "" {
		return s, 0, store.Wrong("a session (%s) holds a lock on the key, which may delete it when it ends: name another key, or release that lock", pairs[0].Session)
	}
	return store.Stored[token]{Data: pairs[0].Value, At: token{pairs[0].CreateIndex, index}}, index, nil
}

// operation is the one of a transaction.
type operation struct {
	Verb, Key            string
	Value                []byte
	Flags, Index         uint64
	Namespace, Partition string `json:",omitempty"`
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, was token, data []byte, _ *leaderelection.RaceEntry) (token, error) {
	// The answer has the flags, and not the value. They tell it from the answer to any other
	// write, and make each write a change: one that changes nothing has no index of its own.
	mark := 1 + rand.Uint64N(1<<53-1) // as far as every JSON library counts
	op := operation{Verb: "cas", Key: b.key, Value: data, Flags: mark, Index: was.modified, Namespace: b.opts.Namespace, Partition: b.opts.Partition}
	body, err := json.Marshal([]map[string]operation{{"KV": op}})
	if err != nil {
		return token{}, err
	}
	a, err := b.call(ctx, http.MethodPut, "/v1/txn", url.Values{}, body)
	if err != nil {
		return token{}, err
	}
	if a.status != http.StatusOK && a.status != http.StatusConflict {
		return token{}, a.refusal(string(a.body))
	}
	var said struct {
		Results []struct{ KV *pair }
		Errors  []struct{ What string }
	}
	if err := a.decode(&said); err != nil {
		return token{}, err
	}
	switch {
	case a.status == http.StatusConflict && len(said.Errors) == 1 && len(said.Results) == 0:
		err := a.refusal(said.Errors[0].What)
		if said.Errors[0].What == fmt.Sprintf("failed to set key %q, index is stale", b.key) {
			return token{}, &leaderelection.LostRaceError{Err: err} // one of several reasons
		}
		return token{}, err
	case a.status == http.StatusConflict || len(said.Errors) > 0 || len(said.Results) != 1 || said.Results[0].KV == nil:
		return token{}, errNotConsul
	}
	kv := said.Results[0].KV
	next := token{kv.CreateIndex, kv.ModifyIndex}
	if was.modified == 0 {
		was.created = next.modified
	}
	if kv.Key != b.key || kv.Flags != mark || next.modified <= was.modified || next.created != was.created {
		return token{}, errNotConsul
	}
	return next, nil
}

// Changes implements leaderelection.ChangeFeed by blocking queries, one after the other. It shows
// only what is committed. It ends with an error if a query fails, or if the key holds something
// that is not our record.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

// A query that is answered at once, and tells nothing new, is followed by a pause, each
// twice as long as the one before: not every server waits, and no proxy must.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// patience is how long an answer may take in addition to what the server was asked to wait.
const patience = 10 * time.Second

// follow returns when yield has returned false, and else with an error.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	var (
		told  token
		since uint64 // the index of what was told
		after uint64 // that to wait for a greater one of; 0: ask for the record as it is
		pause time.Duration
	)
	for first := true; ; {
		begun := time.Now()
		s, index, err := d.b.query(ctx, after)
		if err != nil {
			return err
		}
		// An index that goes back means that the servers were restored, or that this one
		// lags: what it shows is not believed before a consistent read says so.
		back := index < after
		news := !back && (first || s.At != told)
		if news {
			e, err := d.election.Entry(s)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
		}
		switch {
		case news && index > since, time.Since(begun) > d.b.opts.FeedWait/2:
			pause = 0
		default:
			pause = min(max(2*pause, firstPause), lastPause)
		}
		if after = index; back {
			after = 0
		}
		if news {
			told, since, first = s.At, index, false
		}
		if !clocks.System().SleepFor(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// query is read, and does not wait for an answer for ever.
func (b *backend) query(ctx context.Context, after uint64) (s store.Stored[token], index uint64, err error) {
	wait := patience
	if after > 0 {
		wait += b.opts.FeedWait + b.opts.FeedWait/16
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errSilent)
	defer cancel()
	s, index, err = b.read(ctx, after)
	if err != nil && context.Cause(ctx) == errSilent {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return s, index, err
}
