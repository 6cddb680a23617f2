package redis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// Open returns a handle on the election that u names, with a client of its own,
// which Close closes:
//
//	redis://user:password@localhost:6379/0?key=election:web
//	rediss://cache.example.com?key=election:web&tls_ca=ca.pem
//	redis://node-1:6379?key=election:web&cluster=true&addr=node-2:6379
//	redis://sentinel-1:26379/0?key=election:web&master_name=main&addr=sentinel-2:26379
//	unix:///run/redis.sock?key=election:web
//
// The parameter key is required. Others are channel, wait_replicas, wait_timeout
// and feed_silence (Options); cluster=true for a Cluster, master_name for a
// master that Sentinels know, addr for further nodes of either; tls_ca, tls_cert
// and tls_key for PEM files; and those of go-redis's ParseURL, ParseClusterURL and
// ParseFailoverURL, such as dial_timeout or skip_verify.
//
// A password that the address lacks is taken from REDISCLI_AUTH in the
// environment, as redis-cli does. Retries are off unless max_retries says
// otherwise. It does no I/O but for reading the files named, which are read again
// for each connection: certificates may be renewed without a restart.
func Open(_ context.Context, u *url.URL) (*Decider, error) {
	d, err := open(u)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/redis: the address %s: %w: %w", redact.URL(u.String()), redact.Error(err, u.String()), leaderelection.ErrPermanent)
	}
	return d, nil
}

func open(u *url.URL) (*Decider, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	for name, values := range q {
		if len(values) > 1 && name != "addr" {
			return nil, fmt.Errorf("parameter %q is given twice", name)
		}
	}
	take := func(name string) string {
		v := q.Get(name)
		q.Del(name)
		return v
	}
	var opts Options
	key := take("key")
	opts.Channel = take("channel")
	var bad [4]error
	opts.WaitReplicas, bad[0] = number(take("wait_replicas"))
	opts.WaitTimeout, bad[1] = duration(take("wait_timeout"))
	opts.FeedSilence, bad[2] = duration(take("feed_silence"))
	cluster, err := flag(take("cluster"))
	bad[3] = err
	if key == "" {
		return nil, errors.New("it lacks the parameter key: add ?key=name-of-the-election")
	}
	if err := errors.Join(bad[:]...); err != nil {
		return nil, err
	}
	files := tlsFiles{ca: take("tls_ca"), cert: take("tls_cert"), key: take("tls_key")}
	if err := files.check(u); err != nil {
		return nil, err
	}
	rest := *u
	rest.RawQuery = q.Encode()
	client, err := connect(&rest, cluster, files)
	if err != nil {
		return nil, err
	}
	d := NewDecider(client, key, &opts)
	d.close = client.Close
	return d, nil
}

// connect makes the client. Its own retries are off: a candidate retries, and a
// call must not outlive it.
func connect(u *url.URL, cluster bool, files tlsFiles) (redis.UniversalClient, error) {
	password := os.Getenv("REDISCLI_AUTH")
	retries := u.Query().Has("max_retries")
	switch {
	case cluster:
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, err
		}
		o.Dialer = files.dialer(o.TLSConfig, o.DialTimeout)
		o.ContextTimeoutEnabled = true
		o.Password = orElse(o.Password, password)
		if !retries {
			o.MaxRetries = -1
		}
		return redis.NewClusterClient(o), nil
	case u.Query().Has("master_name"):
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, err
		}
		o.Dialer = files.dialer(o.TLSConfig, o.DialTimeout)
		o.ContextTimeoutEnabled = true
		o.Password = orElse(o.Password, password)
		if !retries {
			o.MaxRetries = -1
		}
		return redis.NewFailoverClient(o), nil
	}
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	o.Dialer = files.dialer(o.TLSConfig, o.DialTimeout)
	o.ContextTimeoutEnabled = true
	o.Password = orElse(o.Password, password)
	if !retries {
		o.MaxRetries = -1
	}
	return redis.NewClient(o), nil
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func number(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && n < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return 0, fmt.Errorf("parameter value %q: %w", s, err)
	}
	return n, nil
}

func duration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errors.New("must be positive")
	}
	if err != nil {
		return 0, fmt.Errorf("parameter value %q: %w", s, err)
	}
	return d, nil
}

func flag(s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	return strconv.ParseBool(s)
}
