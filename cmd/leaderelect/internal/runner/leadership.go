package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// leadership is one leadership.
type leadership struct {
	*Runner
	ctx   context.Context
	view  View
	log   *slog.Logger
	alarm *proc.Alarm // nil while it could not be made
}

// Elected is one leadership: it returns when the command is dead, and not before.
func (r *Runner) Elected(ctx context.Context, view *leaderelection.TimeView) { r.Run(ctx, view) }

// Run runs the command for as long as view lasts, and ctx, and returns when it is dead.
func (r *Runner) Run(ctx context.Context, view View) {
	defer func() {
		switch {
		case r.c.DropHold == nil:
		case !r.begun:
			r.c.Logger.Warn("the command was not started: the lease is released without its hold")
			r.c.DropHold()
		case r.c.HoldOnSuccess && !r.well:
			r.c.Logger.Warn("the command has not succeeded: the lease is released without its hold, so that another candidate can continue")
			r.c.DropHold()
		}
	}()
	l := &leadership{Runner: r, ctx: ctx, view: view, log: r.c.Logger.With("token", uint64(view.ElectionNumber()))}
	defer func() {
		_ = l.file.remove(tidy) // the command, which reads it, is dead
		if l.alarm != nil {
			l.alarm.Close()
		}
	}()
	for over := false; !over; {
		if !l.room() {
			l.cut()
			return
		}
		began := time.Now()
		status, forced := l.run()
		if !status.Unstarted {
			l.begun = true
		}
		if status.Failure != "" {
			l.log.Error("the command did not run", "err", status.Failure)
		}
		if !l.c.Once && !l.c.Single && !errors.Is(context.Cause(l.ctx), ErrStopped) {
			l.again()
		}
		over = l.after(status, forced, time.Since(began))
	}
}

// tidy is how long a leadership that is over lasts for the expiry file to be removed.
const tidy = 100 * time.Millisecond

// after decides what follows when the command has ended, and waits until it is to
// be started again. It reports whether the leadership is over.
func (l *leadership) after(status proc.Status, forced bool, took time.Duration) (over bool) {
	stopped := errors.Is(context.Cause(l.ctx), ErrStopped)
	switch {
	case l.c.Once && forced && stopped && !status.Unstarted:
		l.c.Finish(status.Code, nil)
		return true
	case forced && stopped && status.Killed && status.Code == codeKilled:
		l.c.Finish(codeKilled, nil)
		return true
	case l.c.Once && forced:
		l.cut()
		return true
	case forced || l.ctx.Err() != nil && !l.c.Once:
		return false // no room is left, or there is again
	case l.c.Once:
		l.well = status.Code == 0
		l.c.Finish(status.Code, nil)
		return true
	case status.Code != 0 && l.c.OnFailure == Exit:
		l.c.Finish(status.Code, nil)
		return true
	}
	return l.retry(status, took)
}

// codeKilled is what a program that had to be killed exits with.
const codeKilled = 128 + int(syscall.SIGKILL)

// retry waits before the command is started again; or after too many failures, lets
// another candidate lead, and stays out for that time: it reports whether it has.
func (l *leadership) retry(status proc.Status, took time.Duration) (over bool) {
	if took > quick*l.c.Delay {
		l.failed, l.pause = 0, l.c.Delay
	}
	if l.failed++; status.Code == 0 {
		l.failed = 0
	}
	pause := l.pause
	l.pause = min(2*pause, mostDelays*l.c.Delay)
	if l.c.Resign != nil && l.failed >= Attempts || l.failed > 0 && l.c.OnFailure == StepDown {
		why := fmt.Errorf("the command failed with code %d, %d times in a row", status.Code, l.failed)
		if l.c.Single {
			l.c.Finish(status.Code, why)
			return true
		}
		l.log.Warn("stepping down, since the command failed: another candidate may be able to run it; this one stays out for a term, or for back_after if that is longer", "code", status.Code, "times", l.failed, "back_after", pause)
		l.aside.For(pause, why)
		l.c.Resign(l.ctx)
		return true
	}
	l.log.Info("starting the command again", "in", pause)
	clocks.System().SleepFor(l.ctx, pause)
	return false
}

// cut ends a run that was to happen once, and was cut off.
func (l *leadership) cut() {
	cause := context.Cause(l.ctx)
	if cause == nil {
		cause = leaderelection.ErrExpired
	}
	if (l.c.Once || l.c.Single) && !errors.Is(cause, ErrStopped) {
		l.c.Finish(proc.CodeFailed, fmt.Errorf("leadership ended before the command had: %w", cause))
	}
	l.log.Debug("no command runs any more", "cause", cause)
}

// deadline is when the command must be killed for it to be dead at the view's
// end.
func (l *leadership) deadline() proc.Deadline {
	return proc.At(l.view.Get(), l.c.Times.Span).Sub(l.c.Times.Margin)
}

// room waits until the view leaves time to start a command in, and reports whether
// it did so before the leadership ended. Only an extension makes room.
func (l *leadership) room() bool {
	for l.ctx.Err() == nil {
		if l.view.ValueInFuture() && l.deadline().Left() > l.c.Times.Grace+l.c.Times.Margin {
			return true
		}
		select {
		case <-l.ctx.Done():
		case <-l.nudge:
		}
	}
	return false
}

// prepare makes what a command needs apart from itself. A command is not started without the file, or
// with one that a former leadership has left.
func (l *leadership) prepare() (err error) {
	if l.alarm == nil {
		if l.alarm, err = proc.NewAlarm(); err != nil {
			return err
		}
	}
	return l.file.begin(l.ctx, min(l.file.patience, l.c.Times.Extend()), l.view.Get())
}

// run runs the command once, and returns when all of it is dead: how it ended, and
// whether it was made to.
func (l *leadership) run() (proc.Status, bool) {
	end := l.view.Get()
	if err := l.prepare(); err != nil && l.ctx.Err() != nil {
		return proc.Status{Code: proc.CodeFailed, Unstarted: true}, true
	} else if err != nil {
		return proc.Status{Code: proc.CodeFailed, Failure: err.Error(), Unstarted: true}, false
	}
	p, err := proc.Start(proc.Spec{
		Args: l.c.Args, Env: l.environment(),
		Stdin: l.c.Stdin, Stdout: l.c.Stdout, Stderr: l.c.Stderr,
		Grace: l.c.Times.Grace, Until: l.deadline(), Late: l.c.Times.Margin / 3,
		Setuid: l.c.Setuid, Remove: l.file.all(), Logger: l.log, Ready: l.take(),
	})
	if err != nil {
		return proc.Status{Code: proc.CodeFailed, Failure: err.Error(), Unstarted: true}, false
	}
	l.log.Info("the command is started", "command", l.c.Args[0])
	l.runs(p)
	defer l.runs(nil)
	forced := l.tend(p, end)
	status := p.Status()
	if status.Killed {
		l.log.Warn("the command, or what it had started, did not end in the time that it had, and was killed")
	}
	level := slog.LevelInfo
	if status.Code != 0 && (!forced || status.Expired) { // else it was asked to end, which is said above
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "the command has ended", "code", status.Code)
	return status, forced || status.Expired
}

// drainLook is how often the view is looked at while the command is ending.
const drainLook = 100 * time.Millisecond

// tend moves the command's deadline on with the view, and ends the command when
// leadership ends; it reports whether it did. It waits only for time and the
// command's end, and while all is well for that alone.
func (l *leadership) tend(p *proc.Process, end time.Time) (forced bool) {
	ended := l.ctx.Done()
	asked, killed := false, false
	for {
		select {
		case <-p.Done():
			return asked || killed
		default:
		}
		switch alive := l.view.ValueInFuture(); {
		case !alive && !killed:
			killed = true
			if !asked {
				l.log.Warn("killing the command: the view is over", "cause", context.Cause(l.ctx))
			}
			p.Kill()
		case alive && l.ctx.Err() != nil && !asked:
			asked = true
			l.ask(p)
		}
		if next := l.view.Get(); next.After(end) {
			end = next
			p.Extend(l.deadline())
			l.file.tell(end, l.log)
		}
		look := proc.At(end, l.c.Times.Span)
		if asked || killed {
			ended = nil
			look = proc.At(time.Now().Add(drainLook), drainLook)
		}
		l.alarm.Set(look)
		select {
		case <-ended:
		case <-p.Done():
		case <-l.nudge:
		case <-l.alarm.C:
		}
	}
}

// ask asks the command to end.
func (l *leadership) ask(p *proc.Process) {
	l.mu.Lock()
	s := l.stop
	l.mu.Unlock()
	l.log.Info("asking the command to end", "signal", s, "cause", context.Cause(l.ctx), "patience", l.c.Drain)
	p.Stop(s, l.c.Drain)
}

// runs notes the command that runs, or nil.
func (l *leadership) runs(p *proc.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.p = p
}

// environment is the command's.
func (l *leadership) environment() []string {
	more := []string{"LEADERELECT_EXPIRY_FILE=" + l.file.file}
	if l.c.Shard != "" {
		more = append(more, "LEADERELECT_SHARD="+l.c.Shard)
	}
	if l.c.Shards > 0 {
		more = append(more, fmt.Sprintf("LEADERELECT_SHARDS=%d", l.c.Shards))
	}
	if l.c.LeaseID != nil {
		if id := l.c.LeaseID(l.view.ElectionNumber()); id != "" {
			more = append(more, "LEADERELECT_LEASE_ID="+id)
		}
	}
	return Environment(l.view.ElectionNumber(), l.c.LeaderID, l.c.Store, l.c.Withheld, more...)
}
