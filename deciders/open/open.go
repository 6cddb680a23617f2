// Package open opens an election by URL, for programs that take the store from a flag, a
// file or the environment:
//
//	var stores = open.Stores{
//		"file":   open.With(file.Open),
//		"s3":     open.With(s3.Open),
//		"redis":  open.With(redis.Open),
//		"rediss": open.With(redis.Open),
//	}
//
//	decider, err := stores.Open(ctx, os.Getenv("STORE"))
//
// A program can open the stores that it names in its Stores, and links no other store's client.
// Importing a package registers nothing, and a test may use other Stores. This package needs only
// the standard library and the root module.
//
// Each store's Open function documents its URL and the parameters. Those of TLS name their files by
// tls_ca, tls_cert and tls_key, in PEM form. Any of these files implies TLS, whatever the scheme.
// The schemes are:
//
//	deciders/azblob     azblob
//	deciders/consul     consul
//	deciders/dynamo     dynamodb
//	deciders/etcd       etcd, etcds
//	deciders/file       file
//	deciders/gcs        gs
//	deciders/kubernetes kubernetes
//	deciders/mongodb    mongodb, mongodb+srv
//	deciders/natskv     nats
//	deciders/postgres   postgres, postgresql
//	deciders/redis      redis, rediss, redis+unix
//	deciders/rethinkdb  rethinkdb
//	deciders/s3         s3
//	deciders/sql/mysql  mysql, mariadb
//	deciders/sql/sqlite sqlite
//	deciders/zookeeper  zookeeper
//
// A store of your own needs a function of the type Opener.
package open

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// ErrURL is in the error of Open if it cannot read the URL, if the Stores do not have its scheme,
// or if a parameter is wrong. Such an error also wraps leaderelection.ErrPermanent.
var ErrURL = errors.New("leaderelection/open: the store's URL is wrong")

// Opener opens the election that u names. If u is wrong, so that no retry can help, its
// error wraps leaderelection.ErrPermanent. An error shows no secrets of u. The decider may
// use ctx for as long as it lives, see Stores.Open. If it holds a connection, it is an
// io.Closer. An Opener may be called concurrently.
type Opener func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error)

// With makes an Opener of a store's Open function: open.With(redis.Open).
func With[D leaderelection.RaceDecider](f func(ctx context.Context, u *url.URL) (D, error)) Opener {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		d, err := f(ctx, u)
		if err != nil {
			return nil, err // d is a nil of some type, which is not a nil RaceDecider
		}
		return d, nil
	}
}

// Stores are the stores that a program can open, by the schemes of their URLs, in lower case. Open
// may be called concurrently, while nobody changes the map.
type Stores map[string]Opener

// Open opens the election that rawURL names, by the Opener of its scheme. Ctx limits only the
// opening: the decider outlives it. If ctx ends first, the error wraps its cause.
//
// Close ends what the decider holds, such as a connection.
//
// Open does not retry. If its error wraps leaderelection.ErrPermanent, correct the URL or the
// store. Otherwise the same call may succeed later. An error never shows a password in rawURL.
//
// # A client that fails for good
//
// A client may fail for good while a new one would work: its login has expired, say. So if all reads,
// or all writes, have failed for a term, the decider opens rawURL again, in the background, and the
// new client takes over. It does so once a term at most, and logs the reason: see WithLogger. The
// term is that of the record, within 1 s to 1 min, or 15 s while it is not known. The old client is
// closed when its last call has returned. No call is repeated, and feeds end with an error, so that
// campaigns open them again. Lost races, requests for a pause, and errors that wrap
// leaderelection.ErrPermanent are responses, so they count as success. A leaderelection.ErrDenied
// counts as a failure. Tokens of the old client must be valid for the new one, as all tokens are for
// all deciders of one record.
//
// The decider is therefore not of the type that the Opener returns. It is a fmt.Stringer, a
// leaderelection.ChangeFeed and a durability.Examiner if that is one. A decider that is not an
// io.Closer holds no client: Open returns it as it is.
func (s Stores) Open(ctx context.Context, rawURL string) (leaderelection.RaceDecider, error) {
	u, opener, err := s.find(rawURL)
	if err != nil {
		return nil, err
	}
	open := func(ctx context.Context, shares *clients.Shares) (leaderelection.RaceDecider, error) {
		again := *u
		return once(shares.In(ctx), rawURL, &again, opener)
	}
	shares := new(clients.Shares)
	d, err := open(ctx, shares)
	if err != nil {
		return nil, err
	}
	return reopens(ctx, redact.URL(rawURL), d, shares, open), nil
}

// once opens u once. The decider outlives ctx.
func once(ctx context.Context, rawURL string, u *url.URL, opener Opener) (leaderelection.RaceDecider, error) {
	// A client may go on to use the ctx that it was made with. So that one ends only if
	// opening fails.
	live, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	d, err := opener(live, u)
	inTime := stop()
	switch {
	case err != nil && !inTime && !errors.Is(err, context.Cause(ctx)):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case err != nil: // it says which store, and what was wrong
	case d == nil:
		err = notOpened(u, fmt.Errorf("the Opener of %s:// returned neither a decider nor an error: %w", u.Scheme, leaderelection.ErrPermanent))
	case inTime:
		return d, nil
	default: // the ctx that d may go on to use has ended
		_ = Close(d)
		err = notOpened(u, context.Cause(ctx))
	}
	cancel(nil)
	return nil, redact.Error(err, rawURL)
}

// find reads rawURL and looks for the Opener of its scheme.
func (s Stores) find(rawURL string) (*url.URL, Opener, error) {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil: // which may show parts of a password
		return nil, nil, wrong(redact.ErrUnreadable.Error())
	case u.Scheme == "":
		return nil, nil, wrong("it has no scheme, such as the s3 of s3://bucket/key; " + s.linked())
	case s[u.Scheme] == nil:
		return nil, nil, wrong(fmt.Sprintf("this program has no store for %q; %s", redact.URL(rawURL), s.linked()))
	}
	return u, s[u.Scheme], nil
}

// linked says what the program can open.
func (s Stores) linked() string {
	schemes := s.Schemes()
	if len(schemes) == 0 {
		return "it has been given none: put the Open function of a store into open.Stores"
	}
	return "it can open " + strings.Join(schemes, ", ")
}

// Schemes returns the schemes that Open takes, in the order of the alphabet.
func (s Stores) Schemes() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(scheme string) bool { return s[scheme] == nil })
}

// Close closes d if it is an io.Closer, as a decider that holds a connection is. Call it
// when nothing uses d any more: after a Campaign is Done, so that it can still release.
func Close(d leaderelection.RaceDecider) error {
	if c, is := d.(io.Closer); is {
		return c.Close()
	}
	return nil
}

func wrong(why string) error {
	return fmt.Errorf("%w: %s: %w", ErrURL, why, leaderelection.ErrPermanent)
}

func notOpened(u *url.URL, err error) error {
	return fmt.Errorf("leaderelection/open: opening %s: %w", redact.URL(u.String()), err)
}
