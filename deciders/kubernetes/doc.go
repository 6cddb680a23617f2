// Package kubernetes keeps an election in Kubernetes, as one Lease of
// coordination.k8s.io/v1. The resourceVersion that an update must match decides who leads,
// and a watch tells candidates and observers of every change within milliseconds. On the
// same Lease candidates of client-go's leaderelection may stand, as before or after a
// migration.
//
//	clients, err := kubernetes.NewForConfig(config) // of k8s.io/client-go/kubernetes
//	...
//	decider := lekubernetes.NewDecider(clients.CoordinationV1().RESTClient(), "default", "web", nil)
//
// # What is written where
//
// The Lease's spec is as client-go writes it, so that people and tools see what they know:
// holderIdentity is the LeaderID, or empty; renewTime is when the term was last extended;
// leaseTransitions counts leaderships; leaseDurationSeconds is the term and a hundredth,
// rounded up: 16 for the default of 15 s, and 1 in a vacant record.
//
//	$ kubectl get lease web
//	NAME   HOLDER   AGE
//	web    web-1    3d
//
// The record, as all stores of this library keep it, is the annotation
// leaderelection/record; the annotation leaderelection/written says which spec goes with
// it. All annotations of an object together may have 256 KiB. Other annotations, labels
// and owners stay as they are. To end a leadership delete the leader's pod, or use leaderelect
// stepdown.
//
// Nothing ever deletes the Lease, or empties it. If an operator does, a leader that is cut off
// goes on until its view ends. So an empty Lease that may have been emptied (kubectl replace, helm
// upgrade --force) is left alone for a term: one that metadata.managedFields show to be written
// again after it was made, or that was made more than five minutes ago. A deletion shows nothing: let a term
// pass before candidates start again.
//
// # Together with client-go
//
// A fleet may be moved from client-go to this library, and back, one process after the
// other. No candidate of ours leads while one of client-go's does by client-go's rules,
// nor the other way round:
//
//   - A spec that another has written than this package is a leader of client-go. Its clock
//     is not compared. It is contested when it has not been seen to change for its
//     leaseDurationSeconds, by one's own monotonic clock, and MaxClockSkew more. That is
//     client-go's own rule with a margin.
//   - Whatever a spec says, the term that the record in the annotation has is kept, and its Hold.
//     The record's leader may be cut off, and act until its view ends. So a spec that
//     client-go's candidates, or kubectl edit, have written over that record is contested only
//     when the record's own term is over as well. The leader hears of the change, and leads no more.
//   - Client-go's candidates wait for leaseDurationSeconds from when they saw the last change.
//     By then a leader's view is over, which is shorter, and began before the change was
//     written. Client-go compares renewTime by whole seconds, so each extension has another
//     second. (With terms below two seconds renewTime runs ahead for that; nothing goes by it.)
//   - The record stays in its annotation while client-go leads. A leadership of client-go
//     has the number of the record and one for each transition since; its Incarnation is
//     [ClientGo]. So the fencing token is greater than all before when one of ours leads again. It
//     is greater than leaseTransitions as well, which holds even if the annotations are lost. That is why
//     leaseTransitions of a Lease which begins with this package is in the billions.
//
// What to know before:
//
//   - Client-go before v0.27 (Kubernetes 1.27), and some clients in other languages, wait for
//     the LeaseDuration that they are set to, not for that of the leader. Let no TermLength be
//     longer than the shortest of these.
//   - LeaderID and client-go's Identity must be different for different processes, also
//     across the two. Client-go takes a Lease with its own Identity for its own.
//   - A client-go leader cannot be asked to hand over (Transfer, StepDown): end its process.
//     A vacancy that is reserved for a successor is free for all to client-go's candidates; they
//     look every two seconds, and the successor is told at once.
//   - Client-go has no fencing token: what its leaders write is not fenced.
//   - Coordinated leader election (spec.strategy, LeaseCandidate) is another protocol: keep
//     it away from the Lease.
//
// Client-go's own faults stay. They hurt a mixed fleet as much as one of client-go alone,
// and are over when its last candidate is gone:
//
//   - With ReleaseOnCancel, an elector that could not renew for RenewDeadline reads the
//     Lease and releases it, whoever holds it by then: then its candidates may take it from a leader
//     whose term has not run out. Our own candidates see by leaseTransitions that it was not
//     taken first, and leave it to its leader, who goes on to extend. During a migration set
//     ReleaseOnCancel to false, or end processes by their context only.
//   - The same release comes before OnStoppedLeading and before the leader's context ends.
//   - A renewal whose answer comes late counts from the answer. If answers take longer than
//     LeaseDuration - RenewDeadline - RetryPeriod (3 s by default), a client-go leader believes in
//     its leadership when others may take it.
//
// # Permissions
//
// A candidate needs get, update and watch on the one Lease, and create, which Kubernetes
// cannot limit to a name. If the Lease is made beforehand (kubectl apply of one with a name
// only), create is not needed. An observer needs get and watch. The directory manifests has
// all of that, with a Deployment, and a Service that follows the leader.
// The command leaderelect doctor tries a Lease beside this one, whose name ends in -doctor: it
// needs the same for that, and create.
//
// # What Kubernetes promises
//
// An update is one transaction in etcd that compares the version; reads here ask a majority
// of etcd's members, and are never stale. The watch is served from an API server's memory, and
// tells of what is committed. What can lose a confirmed write is what can lose it in etcd:
// see package etcd. After etcd was restored from a backup let a whole term pass before
// candidates start. Kubernetes keeps no time of writes that could be compared, so CommitTS is
// zero, and a candidate's clock is not checked by this store.
//
// An answer counts only if it is a Lease of this name that bears just what was written,
// with a later resourceVersion.
//
// # What it costs
//
// One update each 7 s at the default term, and no read beside it. A standby or an observer
// reads once and holds one watch, which the API server feeds from memory: etcd
// is not asked, however many there are. Measured with a thousand (go test -v -run
// TestThousandFeeds): 2,000 requests to begin with, then for five extensions five requests to the
// API server and five messages to etcd, and all thousand had heard of each within 0.4 s. After a
// release the next leads after one update more; nobody reads.
// Candidates of one process can share a client, and then share its connections.
//
// The client must not hold requests back: clientset.NewForConfig with a QPS of 0 allows
// five a second for all that use it, which is enough for one candidate, and not for one
// that shares it with controllers. Open sets none.
//
// # How the feed works
//
// It reads the Lease, and watches from what the API server has in memory; what is older
// than the read is left out. API servers end a watch after half an hour to an hour: it is
// resumed from the last version that an event or a bookmark told of. If the server has
// forgotten that version (410 Gone), the Lease is read again. If the server cannot be
// reached the feed fails, so that candidates poll until it is back.
//
// A watch that has died silently is replaced when the leader's term should be over: then a standby
// always reads. Until then it is behind.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. The client
// of Open uses HTTP/1: a call that is given up closes its connection, and the next call
// makes a new one. Each watch then has a connection of its own. With HTTP/2, which client-go uses by
// default, calls and watches share one connection, and client-go's pings take 45 s to notice. So in
// a rest.Config of yours, set NextProtos to "http/1.1", or set
// HTTP2_READ_IDLE_TIMEOUT_SECONDS and HTTP2_PING_TIMEOUT_SECONDS in the environment to 2.
package kubernetes
