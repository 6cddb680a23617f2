package kubernetes_test

import (
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

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
	_, err := d.ReadCurrent(t.Context())
	refused(err)

	grant(t, admin, "candidate", leases("one", "get", "update", "watch"))
	feedtest.Eventually(t, "a candidate may read", func() bool { _, err := d.ReadCurrent(t.Context()); return err == nil })
	_, err = d.WriteEntry(t.Context(), feedtest.State(1, nil))
	refused(err)

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
	feedtest.Eventually(t, "an observer may not write", func() bool { _, err := d.WriteEntry(t.Context(), feedtest.State(2, token)); return err != nil })
	_, err = d.WriteEntry(t.Context(), feedtest.State(3, feedtest.Read(t, d).Token))
	refused(err)
	if n := feedtest.Next(t, feedtest.Follow(t, d)); n.Err != nil {
		t.Errorf("an observer's feed yields %+v", n)
	}

	grant(t, admin, "candidate", leases("one", "get", "update"))
	feedtest.Eventually(t, "a candidate without watch may write", func() bool {
		_, err := d.WriteEntry(t.Context(), feedtest.State(4, feedtest.Read(t, d).Token))
		return err == nil
	})
	feed = feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	refused(feedtest.Next(t, feed).Err)

	grant(t, admin, "candidate", leases("one", "get", "update", "watch"), leases("", "create"))
	other := decider(client(t, k, "candidate"), "one")
	if err := admin.CoordinationV1().Leases("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	feedtest.Eventually(t, "a candidate may create", func() bool { _, err := other.WriteEntry(t.Context(), feedtest.State(1, nil)); return err == nil })
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
