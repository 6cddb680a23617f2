/*
Package kubernetes runs a controller-runtime manager as a candidate of an election:
an operator whose leader is elected on any store, with a view and a fencing token. On the
Lease of controller-runtime's own election (deciders/kubernetes) replicas of both kinds may
campaign together, while you move an operator from one to the other.

	runner := lekubernetes.NewRunner(leaderelection.Config{
		Decider: decider, LeaderID: podName,
	})
	mgr, err := ctrl.NewManager(restConfig, runner.Options(ctrl.Options{}))
	...
	err = runner.Start(ctrl.SetupSignalHandler(), mgr) // in place of mgr.Start
	os.Exit(1)                                         // as after mgr.Start

All replicas run the manager. Caches, webhooks, metrics and health probes run
everywhere, so standbys are warm; the runnables that need leader election, which are
the controllers unless they say otherwise, start on the leader. [manager.Manager]'s
Elected channel works as usual.

# The campaign decides

controller-runtime asks client-go's elector, over a resourcelock.Interface. That elector does
not guarantee that only one client acts as leader, and has no fencing token. So here the lock
is a gate in this process. It lets client-go's elector win when the campaign has won, without
delay, and renew for as long as the manager runs.

When the campaign ceases to lead, for whatever reason, it cancels the ctx that the manager was
started with, and so that of every runnable. LeaseDuration, RenewDeadline and RetryPeriod have
no effect. TermLength and MaxClockSkew of the Config do.

# What it promises

A runnable that needs leader election is started only after this candidate was elected, and its
ctx is cancelled no later than the view ends. A reconciler must ask [Runner.View] immediately
before it writes, and send the fencing token along if the other end can compare it.

A manager starts once. When leadership is lost, Start ends at once with the cause. The process
must end, too, and be started again as a standby: controllers that do not stop may still run
while another leads. If all have stopped, the record is released before Start returns.

Leadership that is given up by choice (a signal, Transfer, StepDown, Healthy) is kept, and
extended, until the manager has stopped: for its GracefulShutdownTimeout (30 s) at most. The
Config's DrainTimeout is taken from there if it is zero. Start refuses a shorter one, and a
manager that does not wait for its controllers (GracefulShutdownTimeout 0). If controllers still
run after that time, nothing is released: the process ends, and the lease runs out.

It is a module of its own, so that nobody who imports the election links Kubernetes.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package kubernetes
