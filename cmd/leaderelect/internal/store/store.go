// Package store opens the store that a URL names.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// ErrURL is what a URL that names no store is refused with.
var ErrURL = errors.New("the store's URL is wrong")

// Wrong reports whether err is that the URL is wrong, be it its scheme or a parameter: so the
// command line is.
func Wrong(err error) bool { return errors.Is(err, ErrURL) || errors.Is(err, open.ErrURL) }

// builtIn are the stores of this build, by their tags. Each has a file of its own, which its
// tag leaves out: hence init.
var builtIn = map[string]open.Opener{}

func has[D leaderelection.RaceDecider](tag string, o func(context.Context, *url.URL) (D, error)) {
	builtIn[tag] = open.With(o)
}

// loggers give a logger to drivers that would write to stderr otherwise.
var loggers []func(*slog.Logger)

// LogDrivers has log take what the stores' drivers say by themselves.
func LogDrivers(log *slog.Logger) {
	logger.Store(log)
	for _, set := range loggers {
		set(log)
	}
}

// logger takes what is to be said of a store's client.
var logger atomic.Pointer[slog.Logger]

// stores are what this build can open, by scheme.
func stores() open.Stores {
	all := open.Stores{"file": open.With(file.Open)}
	for _, k := range kinds {
		for _, scheme := range k.Schemes {
			if o := builtIn[k.Tag]; o != nil {
				all[scheme] = o
			}
		}
	}
	return all
}

// unknown is why no store of this build goes by u.
func unknown(u *url.URL) error {
	if tag := kindOf(u.Scheme).Tag; tag != "" {
		return fmt.Errorf("%w: this build of leaderelect was made without %s, which %s:// URLs need: take one that was built without the tag %s (it has %s)",
			ErrURL, strings.TrimPrefix(tag, "no_"), u.Scheme, tag, strings.Join(BuiltIn(), ", "))
	}
	return fmt.Errorf("%w: no store has the scheme of %q; known are:\n  %s", ErrURL, redact.URL(u.String()), strings.Join(Forms, "\n  "))
}

// BuiltIn are the stores that this build has, as their build tags name them.
func BuiltIn() []string {
	all := []string{"file"}
	for tag := range builtIn {
		all = append(all, strings.TrimPrefix(tag, "no_"))
	}
	slices.Sort(all)
	return all
}

// Parse reads a store's URL. It does no I/O.
func Parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrURL, redact.ErrUnreadable)
	case u.Scheme == "":
		return nil, fmt.Errorf("%w: it has no scheme; known are:\n  %s", ErrURL, strings.Join(Forms, "\n  "))
	}
	return u, nil
}

// Open opens the store that raw names. It gives up when ctx ends, or after
// patience; the Decider itself outlives both.
func Open(ctx context.Context, raw string, patience time.Duration) (leaderelection.RaceDecider, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	all := stores()
	if all[u.Scheme] == nil {
		return nil, unknown(u)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v: %w", patience, context.DeadlineExceeded))
	defer cancel()
	return all.Open(open.WithLogger(ctx, logger.Load()), raw)
}

// making are the parameters by which a store makes the table, bucket or directory that is missing, and how.
var making = []string{"create", "create_companions", "replicas", "storage", "description"}

// Existing is raw without them: it names what is there. A command that does not campaign may belong to
// another user than the candidates, and what it made would be closed to them.
func Existing(raw string) string {
	place, query, found := strings.Cut(raw, "?")
	if !found {
		return raw
	}
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		name, _, _ := strings.Cut(parameter, "=")
		name, err := url.QueryUnescape(name)
		return err == nil && slices.Contains(making, name)
	})
	if len(kept) == 0 {
		return place
	}
	return place + "?" + strings.Join(kept, "&")
}

// Scratch is the URL of a record next to the one that raw names.
func Scratch(raw string) (string, error) {
	u, err := Parse(raw)
	if err != nil {
		return "", err
	}
	beside(u, "-doctor")
	return u.String(), nil
}

// beside has u name the record whose name is longer by suffix.
func beside(u *url.URL, suffix string) {
	q := u.Query()
	switch {
	case q.Get("key") != "":
		q.Set("key", q.Get("key")+suffix)
	case q.Get("election") != "":
		q.Set("election", q.Get("election")+suffix)
	case u.Opaque != "":
		u.Opaque += suffix
	default:
		u.Path += suffix
		if u.RawPath != "" {
			u.RawPath += suffix
		}
	}
	if q.Has(channel) {
		q.Set(channel, q.Get(channel)+suffix)
	}
	for _, leaders := range leadersAlone {
		q.Del(leaders)
	}
	u.RawQuery = q.Encode()
}

// channel is the parameter (redis) for where the writes of one record are told: candidates
// take whatever comes there for that record.
const channel = "channel"

// leadersAlone are parameters about what is the leader's alone.
var leadersAlone = []string{"native_lease", "companion", "create_companions"}

// Close closes what Open opened, if it holds a connection.
func Close(d leaderelection.RaceDecider) { _ = open.Close(d) }
