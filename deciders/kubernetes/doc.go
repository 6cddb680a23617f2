// Package kubernetes keeps an election in Kubernetes, as one Lease of coordination.k8s.io/v1. An
// update must match the resourceVersion: this decides who leads. A watch tells candidates and
// observers of every change within milliseconds. Candidates of client-go's leaderelection may use
// the same Lease, so you can migrate.
//
//	clients, err := kubernetes.NewForConfig(config) // of k8s.io/client-go/kubernetes
//	...
//	decider := lekubernetes.NewDecider(clients.CoordinationV1().RESTClient(), "default", "web", nil)
//
// # What is written where
//
// The Lease's spec is as client-go writes it, for people and tools:
//
//   - holderIdentity is the LeaderID, or empty.
//   - renewTime is when the term was last extended.
//   - leaseTransitions counts leaderships.
//   - leaseDurationSeconds is the term and a hundredth, rounded up: 16 for the default of 15 s, and
//     1 in a vacant record.
//
// For example:
//
//	$ kubectl get lease web
//	NAME   HOLDER   AGE
//	web    web-1    3d
//
// The annotation leaderelection/record has the record, in the form of all stores of this library.
// The annotation leaderelection/written says which spec belongs to it. All annotations of an object
// together may have 256 KiB. Other annotations, labels and owners stay as they are.
//
// To end a leadership delete the leader's pod, or use leaderelect stepdown. Never delete or empty
// the Lease: a leader that is cut off goes on until its view ends. After a deletion let a term pass
// before candidates start again, since nothing shows it. An empty Lease that may have been emptied
// (kubectl replace, helm upgrade --force) is left alone for a term. This applies if
// metadata.managedFields show that it was written again after it was made, or if it was made more
// than five minutes ago.
//
// # Together with client-go
//
// You can move a fleet from client-go to this library, and back, one process after the other. No
// candidate of ours leads while one of client-go's leads by client-go's rules, and vice versa:
//
//   - A spec that this package has not written is a leader of client-go. Its clock is not compared.
//     A candidate of ours contests it when it has not seen it change for its leaseDurationSeconds,
//     by its own monotonic clock, and MaxClockSkew more. That is client-go's own rule with a
//     margin.
//   - Whatever a spec says, candidates respect the term of the record in the annotation, and its
//     Hold: the record's leader may be cut off, and act until its view ends. So if client-go's
//     candidates, or kubectl edit, have written a spec over that record, it is contested only when
//     the record's own term is over as well. The leader hears of the change, and leads no more.
//   - Client-go's candidates wait for leaseDurationSeconds from when they saw the last change. By
//     then a leader's view is over: it is shorter, and began before the change was written.
//     Client-go compares renewTime by whole seconds, so each extension has another second. (With
//     terms below two seconds renewTime runs ahead for that. Nothing depends on it.)
//   - The record stays in its annotation while client-go leads. A leadership of client-go has the
//     number of the record and one for each transition since. Its Incarnation is [ClientGo]. So
//     when one of ours leads again, its fencing token is greater than all before. It is also
//     greater than leaseTransitions, even if the annotations are lost. That is why leaseTransitions
//     of a Lease which begins with this package is in the billions.
//
// docs/migrate/client-go.md says what to set before a migration. What to know, too:
//
//   - Client-go before v0.27 (Kubernetes 1.27), and some clients in other languages, wait for the
//     LeaseDuration of their own configuration, not for the leader's. No TermLength may be longer
//     than the shortest of these.
//   - You cannot ask a client-go leader to hand over (Transfer, StepDown): end its process.
//     Client-go's candidates ignore that a vacancy is reserved for a successor. They look every two
//     seconds, and the successor hears of it at once.
//   - Client-go has no fencing token: its leaders' writes are not fenced.
//   - Coordinated leader election (spec.strategy, LeaseCandidate) is another protocol: keep it away
//     from the Lease.
//
// Client-go's own faults stay. They affect a mixed fleet as much as a fleet of client-go alone,
// until its last candidate is gone:
//
//   - With ReleaseOnCancel, an elector that could not renew for RenewDeadline reads the Lease and
//     releases it, whoever holds it by then. Client-go's candidates may then take it from a leader
//     whose term has not run out. Our candidates see by leaseTransitions that it was not taken
//     first, and leave it to its leader. So set it to false, or end processes by their context only.
//   - The same release comes before OnStoppedLeading and before the leader's context ends.
//   - A renewal with a late response counts from the response. If responses take longer than
//     LeaseDuration - RenewDeadline - RetryPeriod (3 s by default), a client-go leader still
//     believes in its leadership when others may take it.
//
// # Permissions
//
// A candidate needs get, update and watch on the one Lease, and create, which Kubernetes cannot
// limit to a name. If you make the Lease before (kubectl apply of one with a name only), create is
// not needed. An observer needs get and watch. The directory manifests has all of that, with a
// Deployment, and with a Service that leaderelect --endpoint-slice has follow the leader. The command
// leaderelect doctor uses a second Lease, whose name ends in -doctor. It needs the same permissions
// for that Lease, and create.
//
// # What Kubernetes promises
//
// An update is one transaction in etcd that compares the version. Reads here ask a majority of
// etcd's members, and are never stale. The watch comes from an API server's memory, and shows what
// is committed. A confirmed write can be lost as in etcd: see package etcd. After a restore of etcd
// from a backup let a whole term pass before candidates start. Kubernetes keeps no time of writes
// that could be compared. So CommitTS is zero, and this store does not check a candidate's clock.
//
// A response counts only if it is a Lease of this name with exactly what was written, and a later
// resourceVersion.
//
// # What it costs
//
// A leader makes one update each 7 s at the default term, and no reads. A standby or an observer
// reads once and holds one watch, which the API server feeds from memory. It does not ask etcd,
// however many there are. Measured with a thousand (go test -v -run TestThousandFeeds): 2,000
// requests at the start, then for five extensions five requests to the API server and five messages
// to etcd. All thousand had each within 0.4 s. After a release the next candidate leads after one
// more update, without reads. Candidates of one process can share a client and its connections.
//
// # How the feed works
//
// It reads the Lease, and watches from what the API server has in memory, leaving out what is older
// than the read. API servers end a watch after half an hour to an hour. The feed resumes from the
// last version of an event or a bookmark. If the server has forgotten that version (410 Gone), it
// reads the Lease again. If it cannot reach the server it fails, so that candidates poll until the
// server is back.
//
// If a watch dies silently, a standby is behind until the leader's term should be over. Then it
// always reads, and the watch is replaced.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. Open's
// client uses HTTP/1: a call that is given up closes its connection, and the next call makes a new
// one. Each watch has a connection of its own. With HTTP/2, client-go's default, calls and watches
// share one connection, and client-go's pings take 45 s to notice. So in a rest.Config of yours,
// set NextProtos to "http/1.1", or set HTTP2_READ_IDLE_TIMEOUT_SECONDS and
// HTTP2_PING_TIMEOUT_SECONDS in the environment to 2.
package kubernetes
