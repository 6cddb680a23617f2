package rethinkdb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A server that was down when the decider was opened is used when it is back, and each
// takes over from the other.
func TestServersComeAndGo(t *testing.T) {
	first, second := imitate(t), imitate(t)
	first.stop()
	d := opened(t, "rethinkdb://"+first.addr+","+second.addr+"/leaderelection_test/elections/web?timeout=1s")
	token := feedtest.Write(t, d, 1, nil)
	for range 2 {
		feed := feedtest.Follow(t, d)
		feedtest.Number(t, feed, 1)
		second.stop()
		if n := feedtest.Next(t, feed); n.Err == nil {
			t.Errorf("the feed of a server that is gone yields %+v", n)
		}
		first.start(t, first.addr)
		eventually(t, d, 0) // there they have no replica of it
		feedtest.Number(t, feedtest.Follow(t, d), 0)
		first.stop()
		second.start(t, second.addr)
		eventually(t, d, 1)
	}
	feedtest.Write(t, d, 2, token)

	second.stop()
	feedtest.Passing(t, feedtest.ReadError(t, d), `"web"`)
	feedtest.Passing(t, feedtest.ReadError(t, d), first.addr, second.addr, "refused", `"web"`)
}

// eventually reads until that works: at the third time at the latest, and later only on a machine that
// takes most of the ctx's time to compute a login.
func eventually(t *testing.T, d leaderelection.RaceDecider, number leaderelection.ElectionNumber) {
	t.Helper()
	var failures []error
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		e, err := d.ReadCurrent(ctx)
		cancel()
		if err == nil {
			if e.ElectionNumber != number {
				t.Errorf("read %+v; want leadership %d", e, number)
			}
			return
		}
		failures = append(failures, err)
	}
	t.Errorf("nothing was read: %v", errors.Join(failures...))
}

// A server that does not answer, and one that cannot do anything without the others, are
// left for the next one.
func TestServersThatAreNoUse(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	first, second := imitate(t), imitate(t)
	proxy := stores.NewRelay(t, first.addr)
	d := opened(t, "rethinkdb://"+proxy.Addr+","+second.addr+"/leaderelection_test/elections/web?timeout=1s")
	feedtest.Write(t, d, 1, nil)
	proxy.Cut()
	eventually(t, d, 0)
	feedtest.Write(t, d, 2, nil)
	proxy.Heal()
	second.inject(func(string) *fault {
		return &fault{refuse: &refusal{p.Response_OP_FAILED, "Cannot perform read: The primary replica isn't connected to a quorum of replicas. The read was not performed."}}
	})
	eventually(t, d, 1)
}

// Authority, certificate and key are replaced, and with them the server's.
func TestRenewedCertificates(t *testing.T) {
	ca := feedtest.NewAuthority(t, "server", "client")
	s := imitateTLS(t, ca.ServerTLS("server"))
	d := opened(t, "rethinkdb://"+s.addr+"/ops/elections/web?tls_ca="+ca.Path("ca.pem")+"&tls_cert="+ca.Path("client.pem")+"&tls_key="+ca.Path("client.key"))
	feedtest.Write(t, d, 1, nil)
	s.stop()
	ca.Renew()
	s.start(t, s.addr)
	eventually(t, d, 1)
	feedtest.Number(t, feedtest.Follow(t, d), 1)
}

// A decider that was closed says so.
func TestClosed(t *testing.T) {
	d, err := open(t.Context(), "rethinkdb://"+imitate(t).addr+"/ops/elections/web")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "closed", `"web"`)
}
