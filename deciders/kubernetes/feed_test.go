package kubernetes_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestHandover(t *testing.T) { feedtest.Handover(t, elections(stores.Kube(t))) }

func TestIdle(t *testing.T) {
	k := stores.Kube(t)
	var requests atomic.Int64
	counted := func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			cfg := config(t, k, "admin")
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &requests} })
			return decider(clientOf(t, cfg), name)
		}
	}
	feedtest.Idle(t, counted, func() int { return int(requests.Load()) })
}

// counter counts requests.
type counter struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// The way to the API server is cut: it itself takes longer to start than a leader may wait.
func TestOutage(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	k := stores.Kube(t)
	proxy := stores.NewRelay(t, k.Address)
	feedtest.Outage(t, func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			cfg := config(t, k, "admin")
			cfg.Host = "https://" + proxy.Addr
			return decider(clientOf(t, cfg), name)
		}
	}, feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal})
}

func TestNewsAfterRestart(t *testing.T) {
	k := stores.Kube(t)
	handle := elections(k)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: k.Stop, Heal: func() { k.Start(t) }})
}

// A feed goes on, and has missed nothing, when its server has forgotten what it saw last:
// compacted, and started again, so that not even its memory has it.
func TestFeedOverCompaction(t *testing.T) {
	k := stores.Kube(t)
	writer, victim := decider(client(t, k, "admin"), "one"), decider(client(t, k, "admin"), "one")
	token := feedtest.Write(t, writer, 1, nil)
	for last := uint64(11); last <= 21; last += 10 {
		feed := feedtest.Follow(t, victim)
		if n := feedtest.Next(t, feed); n.Err != nil || uint64(n.ElectionNumber) != last-10 {
			t.Fatalf("the feed yields %+v, want %d", n, last-10)
		}
		for number := last - 9; number <= last; number++ {
			token = feedtest.Write(t, writer, number, token)
		}
		other, err := client(t, k, "admin").CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: feedtest.Unique()}}, metav1.CreateOptions{})
		if err != nil { // so that the Lease is not the last that was written
			t.Fatal(err, other)
		}
		k.Compact(t)
		k.Stop()
		k.Start(t)
		token = feedtest.Read(t, writer).Token
	}
}

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	k := stores.Kube(t)
	file := k.Config(t, "admin", "")
	proctest.Run(t, proctest.Options{Address: "kubernetes://default/processes?kubeconfig=" + file + "&server=" + k.Address, Upstream: k.Address})
}
