// Package frometcd is the code of the guide from etcd's concurrency.Election.
package frometcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Before runs work when host leads, and resigns when work has returned.
func Before(ctx context.Context, client *clientv3.Client, host string, work func(context.Context)) error {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(15))
	if err != nil {
		return err
	}
	defer session.Close()
	election := concurrency.NewElection(session, "report")
	if err := election.Campaign(ctx, host); err != nil {
		return err
	}
	leading, lost := context.WithCancel(ctx)
	defer lost()
	go func() {
		select {
		case <-session.Done():
			lost()
		case <-leading.Done():
		}
	}()
	work(leading)
	return election.Resign(context.WithoutCancel(ctx))
}
