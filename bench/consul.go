package main

import (
	"context"
	"io"
	"net/http"

	"github.com/hashicorp/consul/api"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
)

// idleConns closes a transport's connections, as far as nothing uses them.
type idleConns struct{ *http.Transport }

func (i idleConns) Close() error {
	i.CloseIdleConnections()
	return nil
}

// consulClient makes the HTTP client that Consul's own library makes, and counts.
func consulClient(s seat) (*http.Client, io.Closer) {
	transport := api.DefaultConfig().Transport
	return &http.Client{Transport: counting{transport, s}}, idleConns{transport}
}

func consulDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client, conns := consulClient(s)
	return consul.NewDecider(client, "http://"+s.Addr, s.Key, nil), conns, nil
}

// consulLock contests as the documentation of api.Lock says. What is not set has the
// library's default; the lock-delay's is T where T is 15 s.
func consulLock(ctx context.Context, s seat, lead func(belief)) error {
	http, conns := consulClient(s)
	defer conns.Close()
	config := api.DefaultConfig()
	config.Address, config.Scheme, config.HttpClient = s.Addr, "http", http
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
