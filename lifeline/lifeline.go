// Package lifeline proves the death of a process to the other processes of its machine. With it,
// candidates on that machine do not wait for a dead leader's term.
//
//	line, err := lifeline.Dir("/run/myapp")
//
// A lifeline is a file in memory that a process holds locked for as long as it lives. The
// kernel, and nobody else, unlocks it when the process ends, however it ends. Before a campaign of
// the process leads, it gives that file a name, its incarnation. The election's record has the
// incarnation too. So a process that reads the record on the same machine can ask the kernel
// whether the leader's process is gone. The answer takes about a millisecond.
//
// # What is a proof
//
// The death of an incarnation is proved if all of this holds, see [Lifeline.Dead]:
//
//   - This process's own directory has a file of that name, and its lock was obtained.
//   - The name still stands for the file that was locked.
//   - The file says that it is this very file, of this boot of the machine, and that it has
//     that name. A copy, a restored backup, or a link to another file does not say so.
//
// Everything else proves nothing: a name that does not exist, a file that cannot be read, an
// error. If a leader's death is not proved, the others wait for its term, as without a lifeline.
// A proof is final, since no incarnation is used twice.
//
// # What it needs
//
// It needs Linux, and a directory on tmpfs that root or this user owns. Nobody else may write
// to it, since they could forge a death. A disk is refused, since another machine could start
// from its image. Everywhere else Dir returns an error that says so.
//
// If a machine's memory is cloned while a leader runs (a virtual machine forked from a snapshot),
// the leader's view is cloned as well. No lease survives that, with or without lifelines.
//
// # What a process is
//
// The lock belongs to the open file, and so to every process that has inherited the open file.
// The file is closed on exec, so a command that the process starts does not have it. Pass
// [Lifeline.File] on to a child that acts for the leader. The death is then proved when the
// last of these processes has ended.
//
// Other processes, such as the application alongside a sidecar, must not act by a view that this
// process has told them of. When this process dies, the next leader does not wait for that view's
// end.
package lifeline

import "errors"

// ErrUnsupported means that a directory, or this system, cannot have lifelines. The error that
// wraps it says why, and what to use instead.
var ErrUnsupported = errors.New("lifeline: not supported here")
