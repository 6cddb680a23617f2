// Package shards is what leaderelect shards does apart from the command line: it runs a command
// for each shard that a member owns, and says what a group's records mean to people and to
// programs that are not written in Go.
package shards

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/shard"
)

// Placeholder stands for the shard's name in a command.
const Placeholder = "{shard}"

// Commands runs one command for each shard that is owned. Its methods may be called by
// several goroutines at once.
type Commands struct {
	c runner.Config

	mu      sync.Mutex
	running map[*runner.Runner]struct{}
	stop    syscall.Signal // by which they are asked to end; 0: as the runner has it
}

// NewCommands returns one whose commands are as c says, but for the shard: c's Args may
// have Placeholder.
func NewCommands(c runner.Config) *Commands {
	return &Commands{c: c, running: map[*runner.Runner]struct{}{}}
}

// Check reports what would keep a member from running any command.
func (c *Commands) Check() error { return runner.New(c.c).Check() }

// Owned is a shard.Config's OnOwned: it returns when the shard's command is dead, with an error
// if the command has failed so that another member is to try it.
func (c *Commands) Owned(ctx context.Context, o *shard.Owned) error {
	own, failed := c.of(o), false
	own.Resign = func(context.Context) { failed = true }
	r := runner.New(own)
	c.mu.Lock()
	c.running[r] = struct{}{}
	if c.stop != 0 {
		r.StopBy(c.stop)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, r)
	}()
	r.Run(ctx, o)
	if failed {
		return cmp.Or(r.Healthy(ctx), errFailed)
	}
	return nil
}

var errFailed = errors.New("the command failed")

// of is what to run for a shard.
func (c *Commands) of(o *shard.Owned) runner.Config {
	own, name := c.c, o.Name()
	own.Shard, own.Shards = name, o.Of()
	own.Args = make([]string, len(c.c.Args))
	for i, arg := range c.c.Args {
		own.Args[i] = strings.ReplaceAll(arg, Placeholder, name)
	}
	if own.Logger == nil {
		own.Logger = slog.New(slog.DiscardHandler)
	}
	own.Logger = own.Logger.With("shard", name)
	return own
}

func (c *Commands) each(do func(*runner.Runner)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.running {
		do(r)
	}
}

// Extended is for Trace: it has all commands told of the session's new end.
func (c *Commands) Extended(e leaderelection.ViewExtended) {
	c.each(func(r *runner.Runner) { r.Extended(e) })
}

// Signal passes a signal on to all commands.
func (c *Commands) Signal(s syscall.Signal) { c.each(func(r *runner.Runner) { r.Signal(s) }) }

// Kill kills all commands.
func (c *Commands) Kill() { c.each((*runner.Runner).Kill) }

// StopBy sets the signal by which commands will be asked to end.
func (c *Commands) StopBy(s syscall.Signal) {
	c.mu.Lock()
	c.stop = s
	c.mu.Unlock()
	c.each(func(r *runner.Runner) { r.StopBy(s) })
}
