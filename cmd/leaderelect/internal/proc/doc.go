// Package proc runs a leader's command so that it is dead when the leader's view
// ends, whatever happens to the process that started it.
//
// A command is not started directly, but by a guard: this program once more, in
// a session of its own. The candidate tells the guard until when the command may
// live, again with each extension of the lease; the guard lets it go on until
// then and no longer. So a candidate that is killed, stopped (SIGSTOP) or stuck
// takes its command with it in time: when it is killed the guard notices at once,
// when it is stopped the time simply runs out. The other way round, a candidate
// that sees its guard not act in time kills the command itself, and where the
// guard is killed, the kernel kills the command (on Linux, by the parent-death
// signal) and the candidate what the command had started.
//
// On Linux a guard does not stay stopped: a timer has it go on when it has something to
// do. If it has not done it in time (it was stopped again, or a debugger holds it) a
// timer kills it, and that kills the command. A candidate that is stopped goes on when
// its guard dies before its work is done.
//
// The command leads a process group, and signals go to the whole group. On Linux
// the guard also adopts what the command leaves behind (it is a child subreaper),
// so that processes that went into a group or session of their own are found and
// ended too; elsewhere only the group is.
//
// Times until which a command may live are told in two clocks at once, and the
// earlier one counts: the wall clock, and a clock that nobody sets, which on Linux
// (CLOCK_BOOTTIME) also runs while the machine is suspended.
package proc
