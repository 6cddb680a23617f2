package main

import (
	"context"
	"net/http"

	"github.com/hashicorp/consul/api"
)

// consulConn is the HTTP client of a client of Consul.
type consulConn struct {
	*http.Client
	transport *http.Transport
}

func (c consulConn) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// consulClient makes the HTTP client that Consul's own library makes, and counts.
func consulClient(s seat) (consulConn, error) {
	transport := api.DefaultConfig().Transport
	if s.Clients != nil { // for a blocking query of each election, and the writes
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 10_000
	}
	return consulConn{&http.Client{Transport: counting{transport, s}}, transport}, nil
}

// consulLock contests as the documentation of api.Lock says. What is not set has the
// library's default; the lock-delay's is T where T is 15 s.
func consulLock(ctx context.Context, s seat, lead func(belief)) error {
	conn, done, err := client(s, consulClient)
	if err != nil {
		return err
	}
	defer done()
	config := api.DefaultConfig()
	config.Address, config.Scheme, config.HttpClient = s.Addr, "http", conn.Client
	client, err := api.NewClient(config)
	if err != nil {
		return err
	}
	lock, err := client.LockOpts(&api.LockOptions{Key: s.Key, Value: []byte(s.ID), SessionTTL: s.Term.String(), LockDelay: s.Term})
	if err != nil {
		return err
	}
	lost, err := lock.Lock(ctx.Done())
	if err != nil || lost == nil {
		return err // lost is nil where ctx has ended
	}
	lead(belief{told: func() bool {
		select {
		case <-lost:
			return false
		default:
			return ctx.Err() == nil
		}
	}})
	select {
	case <-lost:
	case <-ctx.Done():
	}
	return lock.Unlock() // also of what is lost: it ends the session's renewals
}
