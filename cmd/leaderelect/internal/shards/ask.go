package shards

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/shard"
)

// Foreign is what to do about an assignment that cannot be understood.
const Foreign = "if it is of another group, or an election's, correct the URL. If a newer leaderelect wrote it, take that one. " +
	"If it is damaged, delete the record while members run, and restart one of them: they write again what they know. If none runs, leaderelect shards reset"

// alive are the sessions of a member that run.
func (s *State) alive(id string) (all []Member) {
	for _, m := range s.Members {
		if m.ID == id && m.State == Alive {
			all = append(all, m)
		}
	}
	return all
}

// there is why a name is no member's that could be asked for something, or "".
func (s *State) there(id string) string {
	if len(s.alive(id)) > 0 {
		return ""
	}
	for _, m := range s.Members {
		if m.ID == id {
			return fmt.Sprintf("the member %s is gone: its session is over", state.Name(id))
		}
	}
	return fmt.Sprintf("the group has no member %s", state.Name(id))
}

// room is how many more shards members take, by their capacity; without a limit it is as
// many as there are.
func (s *State) room(members []Member) (n int) {
	for _, m := range members {
		if m.Capacity == 0 {
			return s.Shards
		}
		n += max(0, m.Capacity-m.Owned)
	}
	return n
}

// takers are the members that get shards if id is emptied.
func (s *State) takers(id string) (all []Member) {
	for _, m := range s.Members {
		if m.ID != id && m.State == Alive && !m.Drained {
			all = append(all, m)
		}
	}
	return all
}

// CannotMove is why a shard could not be moved to a member, or "".
func (s *State) CannotMove(name, to string) string {
	if why := s.there(to); why != "" {
		return why
	}
	pinned, capacity := 0, 0
	for shard, member := range s.Pins {
		if member == to && shard != name {
			pinned++
		}
	}
	for _, m := range s.alive(to) {
		if m.Capacity == 0 {
			return ""
		}
		capacity += m.Capacity
	}
	if pinned < capacity {
		return ""
	}
	return fmt.Sprintf("%s takes %d shards at most (its --capacity), and %d others are pinned to it: unpin one", state.Name(to), capacity, pinned)
}

// CannotDrain is why a member could not be emptied, or "".
func (s *State) CannotDrain(id string) string {
	if why := s.there(id); why != "" {
		return why
	}
	if len(s.takers(id)) > 0 {
		return ""
	}
	for _, m := range s.Members {
		if m.ID != id && m.State == Alive {
			return fmt.Sprintf("nobody would take the shards of %s: all others are draining; undrain one, or start another member", state.Name(id))
		}
	}
	return fmt.Sprintf("nobody would take the shards of %s: it is the only member; start another one", state.Name(id))
}

// NotMoved is what keeps a shard from being moved, as far as can be told.
func (s *State) NotMoved(name, to string) string {
	if why := s.CannotMove(name, to); why != "" {
		return why
	}
	return s.uncoordinated("its command may still be ending, for which its member has --drain")
}

// NotDrained is what keeps a member from being emptied, as far as can be told.
func (s *State) NotDrained(id string) string {
	if why := s.CannotDrain(id); why != "" {
		return why
	}
	if s.room(s.takers(id)) == 0 {
		return "the others have no room: start another member, or one with more --capacity"
	}
	return s.uncoordinated("their commands may still be ending, for which the member has --drain")
}

func (s *State) uncoordinated(otherwise string) string {
	if s.Coordinator == "" {
		return "nobody coordinates the group: that is for a member to do, within a term"
	}
	return otherwise
}

// Exam is what to examine besides what an election needs.
type Exam struct {
	One, Other leaderelection.RaceDecider // scratch records of two names
	Members    int                        // how many the group has
	Shards     shard.Shards               // what it divides; empty: that is not known
	Pause      time.Duration              // between two writes, where the store limits their rate
	Patience   time.Duration              // of a call
	Tell       func(doctor.Finding)

	failed bool
}

func (x *Exam) tell(check string, v doctor.Verdict, detail, advice string) {
	if v == doctor.Fail {
		x.failed = true
	}
	x.Tell(doctor.Finding{Check: check, Verdict: v, Detail: detail, Advice: advice})
}

// Run makes the checks that write, and reports whether none has failed.
func (x *Exam) Run(ctx context.Context) bool {
	x.apart(ctx)
	if !x.failed {
		x.room(ctx)
	}
	return !x.failed
}

// write replaces a scratch record by one with payload, and returns what is read back.
func (x *Exam) write(ctx context.Context, d leaderelection.RaceDecider, payload []byte) (*leaderelection.RaceEntry, error) {
	if !clocks.System().SleepFor(ctx, x.Pause) {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, x.Patience, fmt.Errorf("no answer within %v", x.Patience))
	defer cancel()
	e, err := d.ReadCurrent(ctx)
	if err == nil {
		err = doctor.Scratch(e)
	}
	if err != nil {
		return nil, err
	}
	next := &leaderelection.RaceEntry{TermExpiry: time.Now().UTC(), ElectionNumber: e.ElectionNumber + 1, Incarnation: doctor.NewIncarnation(), ConnectionParams: payload, Token: e.Token}
	if _, err := d.WriteEntry(ctx, next); err != nil {
		return nil, err
	}
	back, err := d.ReadCurrent(ctx)
	if err == nil && back.Incarnation != next.Incarnation {
		err = fmt.Errorf("a read after the write answers with another record: %w", errElsewhere)
	}
	return back, err
}

var errElsewhere = errors.New("what was written is not there")

// apart looks whether two names are two records.
func (x *Exam) apart(ctx context.Context) {
	const check = "two names are two records"
	one, err := x.write(ctx, x.One, nil)
	if err == nil {
		_, err = x.write(ctx, x.Other, nil)
	}
	if err != nil {
		x.tell(check, doctor.Fail, err.Error(), "each record of the group must be written, and no election have those called doctor and doctor-2: check the permissions, which may be for one name alone")
		return
	}
	call, cancel := context.WithTimeout(ctx, x.Patience)
	defer cancel()
	switch again, err := x.One.ReadCurrent(call); {
	case err != nil:
		x.tell(check, doctor.Fail, err.Error(), "run this again")
	case again.Incarnation != one.Incarnation:
		x.tell(check, doctor.Fail, "what was written to the record doctor-2 has changed the record doctor",
			"the store cuts names off, or the URL does not tell them apart: take a shorter name, or put {name} into it")
	default:
		x.tell(check, doctor.OK, "a write to one leaves the other as it is", "")
	}
}

// room looks how large a record the store keeps, and how many shards fit into that.
func (x *Exam) room(ctx context.Context) {
	const check = "room for the assignment"
	limit, err := x.largest(ctx)
	if err != nil && limit == 0 {
		x.tell(check, doctor.Fail, err.Error(), "run this again")
		return
	}
	detail := fmt.Sprintf("a record has room for %d bytes of it; that is about %d numbered shards", limit, x.most(limit))
	if limit == shard.MaxAssignment {
		detail += " (a group takes no more)"
	}
	if n := x.Shards.Len(); n > 0 {
		size, err := x.Shards.Size(x.Members)
		switch {
		case err != nil:
			x.tell(check, doctor.Fail, err.Error(), "make fewer shards, or give them shorter names")
			return
		case size > limit:
			x.tell(check, doctor.Fail, fmt.Sprintf("the %d shards take about %d bytes; %s", n, size, detail), "make fewer shards, give them shorter names or numbers, or take another store")
			return
		case size > limit/10*8:
			x.tell(check, doctor.Warn, fmt.Sprintf("the %d shards take about %d bytes; %s", n, size, detail), "that grows with the tokens: leave more room")
			return
		}
		detail = fmt.Sprintf("the %d shards take about %d bytes; %s", n, size, detail)
	}
	x.tell(check, doctor.OK, detail, "")
}

// largest is the largest payload that the store keeps, to about a sixteenth.
func (x *Exam) largest(ctx context.Context) (limit int, err error) {
	defer func() { _, _ = x.write(context.WithoutCancel(ctx), x.Other, nil) }() // leave it small
	text := make([]byte, shard.MaxAssignment)
	_, _ = rand.Read(text) // never fails; what is alike might be compressed
	keeps := func(n int) bool {
		_, err = x.write(ctx, x.Other, text[:n])
		return err == nil
	}
	if keeps(len(text)) {
		return len(text), nil
	}
	low, high := 0, len(text)
	for high-low > max(low/16, 256) && ctx.Err() == nil {
		if middle := (low + high) / 2; keeps(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low, err
}

// most is about how many numbered shards fit into limit bytes: as many times what a
// thousand take, among enough of them for the members to weigh nothing.
func (x *Exam) most(limit int) int {
	const few, many = 4000, 5000
	less, err := shard.Numbered(few).Size(x.Members)
	more, err2 := shard.Numbered(many).Size(x.Members)
	if err != nil || err2 != nil || more <= less {
		return 0
	}
	return max(0, min(shard.MaxShards, few+(limit-less)*(many-few)/(more-less)))
}

// advice is what to do if the assignment cannot be read.
func advice(err error) string {
	if _, damaged := errors.AsType[*leaderelection.DamagedRecordError](err); damaged || errors.Is(err, shard.ErrForeign) {
		return Foreign
	}
	return "check the permission to read it"
}

// Group looks at the group that there is, if there is one.
func (x *Exam) Group(ctx context.Context, w shard.WatchConfig) {
	const check = "the group's own records"
	ctx, cancel := context.WithTimeout(ctx, 4*x.Patience)
	defer cancel()
	a, err := w.Read(ctx)
	if errors.Is(err, shard.ErrNoGroup) {
		x.tell(check, doctor.OK, "there is no assignment yet", "")
		return
	}
	if err != nil {
		x.tell(check, doctor.Fail, err.Error(), advice(err))
		return
	}
	seats, err := w.Seats(ctx, a)
	if err != nil {
		x.tell(check, doctor.Fail, err.Error(), "check the permission to read it")
		return
	}
	s := Of(a, seats, time.Now())
	detail := fmt.Sprintf("version %d, %d shards, %d members", s.Version, s.Shards, len(s.Members))
	ids, twice := map[string]bool{}, []string{}
	for _, m := range s.Members {
		if m.State == Alive && ids[m.ID] {
			twice = append(twice, m.ID)
		}
		ids[m.ID] = ids[m.ID] || m.State == Alive
	}
	switch n := x.Shards.Len(); {
	case len(s.Unreadable) > 0:
		x.tell(check, doctor.Fail, fmt.Sprintf("%s; seat %d: %s", detail, s.Unreadable[0].Seat, s.Unreadable[0].Error),
			"check the permission to read it; a damaged one leaderelect reset mends, as an election's record")
	case len(twice) > 0:
		x.tell(check, doctor.Warn, detail+"; more than one member is called "+strings.Join(twice, ", "), "give each an --id of its own: a pin to that name means all of them")
	case n > 0 && n != s.Shards:
		x.tell(check, doctor.Warn, fmt.Sprintf("%s; not the %d that were named here", detail, n), "give all members the same --shards or --names")
	case s.Unowned > 0:
		x.tell(check, doctor.Warn, fmt.Sprintf("%s; %d shards have no owner", detail, s.Unowned), "start members, or raise their --capacity; just after a member has gone this passes by itself")
	default:
		x.tell(check, doctor.OK, detail, "")
	}
}

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
