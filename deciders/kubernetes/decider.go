package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Options adjusts a Decider. The zero value is right for most.
type Options struct {
	// Labels are for the Lease, if the Decider creates it. Labels of an existing Lease stay as
	// they are.
	Labels map[string]string
}

// Decider is an election in a Lease. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[version]
	close    func()
}

// backend is the store: one Lease.
type backend struct {
	client          func() rest.Interface
	distrusted      func() // told of each error that other certificates or credentials may cure
	namespace, name string
	labels          map[string]string
	place           string
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// version is a LeaderToken: a Lease as it was read or written, which the next write sends
// again with what is new, and what its record says. The zero version stands for no Lease.
type version struct {
	lease  *coordinationv1.Lease
	number leaderelection.ElectionNumber
	expiry time.Time
}

// CommitTS is the zero time: Kubernetes keeps no time of writes that could be compared.
func (version) CommitTS() time.Time { return time.Time{} }

// NewDecider returns the election kept in the Lease of this namespace and name. Use the client of
// any API group of a clientset, such as
//
//	clientset.CoordinationV1().RESTClient()
//
// The client should send at once: with a QPS of 0 in its rest.Config it delays requests beyond five
// a second, those of its other users included. Options may be nil. The first candidate creates the
// Lease, but not the namespace. NewDecider does no I/O. If an argument is wrong, each call of the
// Decider returns an error that says so.
func NewDecider(client rest.Interface, namespace, name string, opts *Options) *Decider {
	b := &backend{client: func() rest.Interface { return client }, distrusted: func() {}, namespace: namespace, name: name, place: fmt.Sprintf("lease %s/%s", namespace, name)}
	if opts != nil {
		b.labels = opts.Labels
	}
	d := &Decider{b: b, close: func() {}, election: store.Election[version]{Store: b, Package: "kubernetes", Ours: true, Place: b.place}}
	if c, is := client.(*rest.RESTClient); client == nil || is && c == nil {
		d.election.Wrong = errors.New("the client is nil; a fake clientset has none")
	} else {
		d.election.Wrong = checkNames(namespace, name)
		if is {
			d.election.Place += store.At(server(c))
		}
	}
	return d
}

// server is the API server that a client asks. Several may have one host, and differ in the path.
func server(c *rest.RESTClient) string {
	u := c.Get().URL()
	path, _, _ := strings.Cut(u.Path, "/apis")
	return u.Host + strings.TrimSuffix(path, "/")
}

// checkNames says what is wrong with the Lease's names, or nil.
func checkNames(namespace, name string) error {
	if said := validation.IsDNS1123Label(namespace); len(said) > 0 {
		return fmt.Errorf("%q is not a valid namespace: %s", namespace, strings.Join(said, "; "))
	}
	if said := validation.IsDNS1123Subdomain(name); len(said) > 0 {
		return fmt.Errorf("%q is not a valid name of a Lease: %s", name, strings.Join(said, "; "))
	}
	return nil
}

// Close ends what Open has made. For a client given to NewDecider it does nothing.
func (d *Decider) Close() error {
	d.close()
	return nil
}

// String names the place of the record: the Lease and the API server.
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. It is never stale: the API server
// asks a majority of etcd's members.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, by one update, or one create. If a client-go
// candidate leads, it refuses requests to hand over: client-go does not know them.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Changes implements leaderelection.ChangeFeed by a watch. It shows only what is committed. It ends
// with an error if it cannot reach the API server, and if a watch ends that has just begun.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

// leases is the path of the namespace's Leases.
func (b *backend) leases() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + b.namespace + "/leases"
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[version], error) {
	l, err := b.do(ctx, b.client().Get().AbsPath(b.leases(), b.name))
	if b.missing(err) {
		return store.Stored[version]{None: true}, nil
	}
	if err != nil {
		return store.Stored[version]{}, err
	}
	s, err := b.stored(l)
	if err != nil { // an operator's Reset replaces just this one
		return s, &leaderelection.DamagedRecordError{Token: version{lease: l}, Err: err}
	}
	return s, nil
}

// Of implements store.Versioner.
func (b *backend) Of(e *leaderelection.RaceEntry, at version) version {
	return version{at.lease, e.ElectionNumber, e.TermExpiry}
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at version, data []byte, e *leaderelection.RaceEntry) (version, error) {
	if e.Incarnation == ClientGo && !e.Vacant() {
		return version{}, store.Wrong("%q, which leads, is a client-go candidate and cannot be asked to hand over: end its process", e.LeaderID)
	}
	l, err := b.next(at, data, e)
	if err != nil {
		return version{}, err
	}
	body, err := json.Marshal(l)
	if err != nil {
		return version{}, err
	}
	r := b.client().Post().AbsPath(b.leases())
	if at.lease != nil {
		r = b.client().Put().AbsPath(b.leases(), b.name)
	}
	got, err := b.do(ctx, r.Param("fieldManager", "leaderelection").SetHeader("Content-Type", "application/json").Body(body))
	if err != nil {
		return version{}, err
	}
	if !proves(got, l) {
		return version{}, errNotWritten
	}
	return version{got, e.ElectionNumber, e.TermExpiry}, nil
}

// proves reports whether got, which the server sent in answer to sent, shows that just
// this was written, and is no answer to an earlier request.
func proves(got, sent *coordinationv1.Lease) bool {
	return got.Annotations[recordKey] == sent.Annotations[recordKey] && got.Annotations[writtenKey] == sent.Annotations[writtenKey] &&
		sameSpec(&got.Spec, &sent.Spec) && (sent.UID == "" || got.UID == sent.UID) &&
		number(got.ResourceVersion) > number(sent.ResourceVersion)
}

// silent has client-go log nothing: errors are returned, and the campaign logs them.
func silent(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// do makes a request, once: the campaign retries, and knows how. It returns the Lease in
// the answer.
func (b *backend) do(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	var status int
	result := r.SetHeader("Accept", "application/json").MaxRetries(0).Do(silent(ctx)).StatusCode(&status)
	if err := b.noted(result.Error()); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return nil, errNotKubernetes
	}
	return b.parse(body)
}

// parse is the Lease in data.
func (b *backend) parse(data []byte) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("%w (%w)", errNotKubernetes, err)
	}
	if l.Kind != "Lease" || l.APIVersion != coordinationv1.SchemeGroupVersion.String() || l.Namespace != b.namespace || l.Name != b.name ||
		l.UID == "" || number(l.ResourceVersion) == 0 {
		return nil, errNotKubernetes
	}
	return l, nil
}
