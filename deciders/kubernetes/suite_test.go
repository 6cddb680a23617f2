package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(openBy)
	goleak.VerifyTestMain(m)
}

// openBy is Open of a URL whose parameter server says where the API server is reached.
func openBy(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
	q := u.Query()
	file := q.Get("kubeconfig")
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	for _, c := range cfg.Clusters {
		c.Server = "https://" + q.Get("server")
	}
	file += strings.NewReplacer(":", "-").Replace(q.Get("server"))
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		return nil, err
	}
	q.Set("kubeconfig", file)
	q.Del("server")
	u.RawQuery = q.Encode()
	return kubernetes.Open(ctx, u)
}

// kubeconfig writes one for the API server at a URL, whose certificate is not looked at.
func kubeconfig(t testing.TB, server string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"x"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// config is that of a client for the user with this token.
func config(t testing.TB, k *stores.KubeServer, token string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", k.Config(t, token, ""))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// client returns a clientset.
func client(t testing.TB, k *stores.KubeServer, token string) *clientset.Clientset {
	t.Helper()
	return clientOf(t, config(t, k, token))
}

func clientOf(t testing.TB, cfg *rest.Config) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CoordinationV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections)
	return c
}

// decider is the election in a Lease of the namespace default.
func decider(c clientset.Interface, name string) *kubernetes.Decider {
	return kubernetes.NewDecider(c.CoordinationV1().RESTClient(), "default", name, nil)
}

// elections returns what makes an election after the other, each in a Lease of the test's
// own, each handle with a client of its own.
func elections(k *stores.KubeServer) feedtest.NewElection {
	return electionsBy(func(t testing.TB) *rest.Config { return config(t, k, "admin") })
}

// electionsBy is elections by clients of this config.
func electionsBy(cfg func(t testing.TB) *rest.Config) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider { return decider(clientOf(t, cfg(t)), name) }
	}
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *kubernetes.Decider {
	t.Helper()
	return feedtest.Opened(t, kubernetes.Open, address)
}

// silently is ctx for client-go, which is to log nothing.
func silently(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

func TestConformance(t *testing.T) {
	decidertest.Run(t, elections(stores.Kube(t)), nil)
}

// What stands in for the API server in virtual time keeps the contract as well.
func TestImitation(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		s := newImitation()
		return func() leaderelection.RaceDecider { return decider(imitationClient(t, s), "one") }
	}, nil)
}

func TestHandover(t *testing.T) { feedtest.Handover(t, elections(stores.Kube(t))) }

func TestIdle(t *testing.T) {
	k := stores.Kube(t)
	var requests atomic.Int64
	feedtest.Idle(t, electionsBy(func(t testing.TB) *rest.Config { return counted(config(t, k, "admin"), &requests) }), func() int { return int(requests.Load()) })
}

// counted has cfg's requests counted.
func counted(cfg *rest.Config, n *atomic.Int64) *rest.Config {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			n.Add(1)
			return next.RoundTrip(r)
		})
	})
	return cfg
}

// The way to the API server is cut: it itself takes longer to start than a leader may wait.
func TestOutage(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	k := stores.Kube(t)
	proxy := stores.NewRelay(t, k.Address)
	feedtest.Outage(t, electionsBy(func(t testing.TB) *rest.Config {
		cfg := config(t, k, "admin")
		cfg.Host = "https://" + proxy.Addr
		return cfg
	}), feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal})
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

// The client that Open makes leaves a connection that has died without a word, though the API
// server speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.HTTP2(t, newImitation()))
	feedtest.Abandons(t, opened(t, "kubernetes://default/x?kubeconfig="+kubeconfig(t, "https://"+relay.Addr)), relay.Swallow)
}

// A leadership is handed over by two requests: the release, and the next one's update. One who has
// never read before reads it back once, to see whether the store tells the time. An extension is
// one request, and a standby makes none.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		start := func(id string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := leaderelection.Config{Decider: decider(imitationClient(t, s), "one"), LeaderID: id}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return func() { cancel(); _ = c.Wait() }
		}
		grows := func(what string, writes, reads int, do func()) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			w, g, n := s.writes, s.gets, s.watches
			s.mu.Unlock()
			do()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.writes-w != writes || s.gets-g != reads || s.watches != n {
				t.Errorf("%s: %d writes, %d reads and %d watches; want %d and %d, and no watches", what, s.writes-w, s.gets-g, s.watches-n, writes, reads)
			}
		}
		stopA := start("a")
		synctest.Wait()
		stopB := start("b")
		grows("70 s", 10, 0, func() { time.Sleep(70*time.Second + time.Millisecond) })
		grows("a hand-over", 2, 0, stopA)
		if l := s.lease("one"); *l.Spec.HolderIdentity != "b" {
			t.Errorf("%q leads", *l.Spec.HolderIdentity)
		}
		stopB()
	})
}

// A thousand feeds on one Lease, as standbys and observers have them, cost a read and a
// watch each when they begin, and nothing from then on, neither the API server nor etcd.
func TestThousandFeeds(t *testing.T) {
	const feeds, writes = 1000, 5
	k := stores.Kube(t)
	var requests atomic.Int64
	d := decider(clientOf(t, counted(config(t, k, "admin"), &requests)), "one")
	token := feedtest.Write(t, d, 1, nil)
	var all [feeds]<-chan feedtest.Item
	for i := range all {
		all[i] = feedtest.Follow(t, d)
	}
	hear := func(number uint64) {
		t.Helper()
		for _, feed := range all {
			feedtest.Number(t, feed, number)
		}
	}
	hear(1)
	begun := func() bool { return requests.Load() >= 1+2*feeds }
	feedtest.Eventually(t, "all watches", begun)
	t.Logf("%d feeds began with %d requests", feeds, requests.Load()-1)
	before, in := requests.Load(), k.Etcd.Requests(t)
	for number := uint64(2); number < 2+writes; number++ {
		at := time.Now()
		token = feedtest.Write(t, d, number, token)
		hear(number)
		t.Logf("all have heard of a write after %v", time.Since(at).Round(time.Millisecond))
	}
	own, etcd := requests.Load()-before, k.Etcd.Requests(t)-in
	t.Logf("for %d writes the API server had %d requests, etcd %d messages from it", writes, own, etcd)
	if own != writes {
		t.Errorf("for %d writes the API server had %d requests", writes, own)
	}
	if etcd > feeds/10 {
		t.Errorf("for %d writes etcd had %d messages", writes, etcd)
	}
}

// grant lets the user do what the rules say in the namespace default, and nothing else.
func grant(t testing.TB, admin *clientset.Clientset, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	roles, bindings := admin.RbacV1().Roles("default"), admin.RbacV1().RoleBindings("default")
	meta := metav1.ObjectMeta{Name: user}
	_ = roles.Delete(t.Context(), user, metav1.DeleteOptions{})
	if _, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_ = bindings.Delete(t.Context(), user, metav1.DeleteOptions{})
	if _, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// leases is a rule for Leases, of this name if one is given.
func leases(name string, verbs ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs}
	if name != "" {
		r.ResourceNames = []string{name}
	}
	return r
}

// The documented permissions are enough, each of them is needed, and what is refused
// without says what to grant.
func TestPermissions(t *testing.T) {
	k := stores.Kube(t)
	admin := client(t, k, "admin")
	d := decider(client(t, k, "candidate"), "one")
	refused := func(err error) {
		t.Helper()
		feedtest.Permanent(t, err, "lease default/one", "Role in namespace default", "create on leases")
	}
	refused(feedtest.ReadError(t, d))

	grant(t, admin, "candidate", leases("one", "get", "update", "watch"))
	feedtest.Eventually(t, "a candidate may read", func() bool { return feedtest.ReadError(t, d) == nil })
	refused(feedtest.WriteError(t, d, 1, nil))

	// Somebody makes the Lease beforehand: then create is not needed.
	if _, err := admin.CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	feed := feedtest.Follow(t, d)
	empty := feedtest.Next(t, feed)
	if empty.Err != nil || !empty.Vacant() || empty.ElectionNumber != 0 {
		t.Fatalf("%+v", empty)
	}
	token := feedtest.Write(t, d, 1, empty.Token)
	feedtest.Number(t, feed, 1)

	grant(t, admin, "candidate", leases("one", "get", "watch")) // an observer
	feedtest.Eventually(t, "an observer may not write", func() bool { return feedtest.WriteError(t, d, 2, token) != nil })
	e := feedtest.Read(t, d)
	refused(feedtest.WriteError(t, d, 3, e.Token))
	feedtest.Number(t, feedtest.Follow(t, d), uint64(e.ElectionNumber))

	grant(t, admin, "candidate", leases("one", "get", "update"))
	feedtest.Eventually(t, "a candidate without watch may write", func() bool { return feedtest.WriteError(t, d, 4, feedtest.Read(t, d).Token) == nil })
	feed = feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	refused(feedtest.Next(t, feed).Err)

	grant(t, admin, "candidate", leases("one", "get", "update", "watch"), leases("", "create"))
	other := decider(client(t, k, "candidate"), "one")
	if err := admin.CoordinationV1().Leases("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	feedtest.Eventually(t, "a candidate may create", func() bool { return feedtest.WriteError(t, other, 1, nil) == nil })
}

// What the API server refuses for other reasons.
func TestRefusals(t *testing.T) {
	k := stores.Kube(t)
	admin := client(t, k, "admin")
	feedtest.Permanent(t, feedtest.ReadError(t, decider(client(t, k, "wrong"), "one")), "credentials")

	nowhere := kubernetes.NewDecider(admin.CoordinationV1().RESTClient(), "nowhere", "one", nil)
	if e := feedtest.Read(t, nowhere); !e.Vacant() {
		t.Errorf("%+v", e)
	}
	feedtest.Permanent(t, feedtest.WriteError(t, nowhere, 1, nil), "create the namespace nowhere")

	d := decider(admin, "one")
	huge := feedtest.State(1, nil)
	huge.ConnectionParams = make([]byte, 196_300) // of which base64 makes almost all that a record may have
	_, err := d.WriteEntry(t.Context(), huge)
	feedtest.Permanent(t, err, "256 KiB")

	for _, of := range map[string]*kubernetes.Decider{
		"no name": decider(admin, ""), "a name with a slash": decider(admin, "a/b"), "capitals": decider(admin, "One"),
		"no namespace": kubernetes.NewDecider(admin.CoordinationV1().RESTClient(), "", "one", nil),
		"no client":    kubernetes.NewDecider(nil, "default", "one", nil),
		"a nil client": kubernetes.NewDecider((*rest.RESTClient)(nil), "default", "one", nil),
	} {
		feedtest.Refuses(t, of)
	}

	plain := config(t, k, "admin")
	plain.Insecure, plain.CAData, plain.CAFile = false, nil, ""
	feedtest.Permanent(t, feedtest.ReadError(t, decider(clientOf(t, plain), "one")), "certificate-authority")
}

// A Lease that was deleted is an empty election; a token of its former life is void, even
// when there is one again.
func TestDeletedLease(t *testing.T) {
	k := stores.Kube(t)
	admin := client(t, k, "admin")
	d := decider(admin, "one")
	feed := feedtest.Follow(t, d)
	empty := feedtest.Next(t, feed)
	old := feedtest.Write(t, d, 1, empty.Token)
	feedtest.Next(t, feed)
	if err := admin.CoordinationV1().Leases("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, e := range map[string]*leaderelection.RaceEntry{"pushed": feedtest.Next(t, feed).RaceEntry, "read": feedtest.Read(t, d)} {
		if e == nil || !e.Vacant() || e.ElectionNumber != leaderelection.NoElections {
			t.Errorf("%s after the deletion: %+v", what, e)
		}
	}
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, old))
	feedtest.Reads(t, d, 0)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Number(t, feed, 1)
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, old))
}

// With the server gone every call returns when its ctx ends.
func TestNoServer(t *testing.T) {
	d := decider(clientOf(t, &rest.Config{Host: "https://127.0.0.1:1"}), "one")
	feedtest.Passing(t, feedtest.ReadError(t, d), "connection refused", "lease default/one")

	hang := &way{next: http.DefaultTransport, random: func(int) time.Duration { return time.Hour }}
	hang.heal()
	d = decider(imitationClient(t, hang), "one")
	feedtest.TimesOut(t, 100*time.Millisecond, d, nil, "lease default/one")
}
