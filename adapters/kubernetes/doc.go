/*
Package kubernetes runs a controller-runtime manager as a candidate of an election:
an operator whose leader is elected on any store, with a view and a fencing token. On the
Lease of controller-runtime's own election (deciders/kubernetes) replicas of both kinds may
stand together, while an operator is moved from one to the other.

	runner := lekubernetes.NewRunner(leaderelection.Config{
		Decider: decider, LeaderID: podName, MaxClockSkew: time.Second,
	})
	mgr, err := ctrl.NewManager(restConfig, runner.Options(ctrl.Options{}))
	...
	err = runner.Start(ctrl.SetupSignalHandler(), mgr) // in place of mgr.Start
	os.Exit(1)                                         // as after mgr.Start

All replicas run the manager. Caches, webhooks, metrics and health probes run
everywhere, so standbys are warm; the runnables that need leader election, which are
the controllers unless they say otherwise, start on the leader. [manager.Manager]'s
Elected channel works as ever.

# Whose decisions

controller-runtime takes a resourcelock.Interface, and it would have been possible to
keep an election's record behind one. Then client-go's elector would decide, and its
own documentation says that it does not guarantee that only one client acts as
leader: it goes by the time at which it last saw the record change, ends its leader's
ctx after a renewal has failed for RenewDeadline (whatever the process was doing
meanwhile, as for being stopped), and has no fencing token. None of what this library
promises would be left.

So here the lock decides nothing. It is a gate, kept in this process: it lets
client-go's elector win when the campaign has won, without delay, and renew for as
long as the manager runs. The campaign decides. When it ceases to lead, for whatever
reason, the ctx that the manager was started with is cancelled at once, and with it
that of every runnable; client-go is not asked. LeaseDuration, RenewDeadline and
RetryPeriod mean nothing; TermLength and MaxClockSkew of the Config do.

# What it promises

A runnable that needs leader election is started only after this candidate was
elected, and its ctx is cancelled no later than the view ends. What it does after
that is its own affair, as everywhere: a reconciler asks [Runner.View] immediately
before it writes, and sends the fencing token along where the other end can tell old
from new.

A manager starts once. When leadership is lost, Start ends at once with the cause, and the
process must, too, to be started again as a standby: controllers that do not stop may still
run, while another leads. If all have stopped, the record is released before Start returns. Leadership that is given up by choice (a signal, Transfer, StepDown,
Healthy) is kept, and extended, until the manager has stopped: for its
GracefulShutdownTimeout (30 s) at most. The Config's DrainTimeout is taken from there if it is
zero; a shorter one is refused, and so is a manager that does not wait for its controllers
(GracefulShutdownTimeout 0). If controllers still run after that time, nothing is released: the
process ends, and the lease runs out.

It is a module of its own, so that nobody who imports the election links Kubernetes.
*/
package kubernetes
