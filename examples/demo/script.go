package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/c8e606e4/leaderelection"
)

var errTimePassed = errors.New("the time has passed")

// play is what happens, from the first election to the last release.
func (s *stage) play(ctx context.Context) error {
	begun := time.Now()
	if err := s.enter(); err != nil {
		return err
	}
	if err := s.successor(ctx, "first election", entry{}, begun); err != nil {
		return err
	}
	scenes := []func(context.Context) error{s.killLeader, s.freezeLeader, s.handOver}
	if !canFreeze {
		s.screen.say("(this system has no SIGSTOP: the frozen leader is left out)")
		scenes = []func(context.Context) error{s.killLeader, s.handOver}
	}
	for _, scene := range scenes {
		if err := s.run(ctx, 3*time.Second); err != nil {
			return err
		}
		if err := scene(ctx); err != nil {
			return err
		}
	}
	if err := s.run(ctx, 2*time.Second); err != nil {
		return err
	}
	return s.leave(ctx)
}

// killLeader: nobody is told, so the others must wait until the term has run out.
func (s *stage) killLeader(ctx context.Context) error {
	leader, err := s.act(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	s.cast[leader.ID].kill()
	s.fate[leader.ID] = "dead"
	s.screen.say("KILL %s: its term must run out, and the allowance for clocks", leader.ID)
	return s.successor(ctx, "kill -9", leader, at)
}

// freezeLeader: a leader that stands still, and does not know it. It comes back in
// the middle of its work, sure that it leads; its view knows better.
func (s *stage) freezeLeader(ctx context.Context) error {
	leader, err := s.act(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	if err := s.cast[leader.ID].freeze(); err != nil {
		return fmt.Errorf("freezing %s: %w", leader.ID, err)
	}
	s.fate[leader.ID] = "frozen"
	s.screen.say("FREEZE %s in the middle of its work", leader.ID)
	if err := s.successor(ctx, "freeze (SIGSTOP)", leader, at); err != nil {
		return err
	}
	if err := s.run(ctx, time.Second); err != nil {
		return err
	}
	delete(s.fate, leader.ID)
	s.screen.say("THAW %s, %.1f s later", leader.ID, time.Since(at).Seconds())
	if err := s.cast[leader.ID].thaw(); err != nil {
		return fmt.Errorf("thawing %s: %w", leader.ID, err)
	}
	_, err = s.until(ctx, leader.ID+"'s late act to be fenced off", patience, func(e entry) bool {
		return e.ID == leader.ID && e.Token == leader.Token && e.Kind == "fenced"
	})
	return err
}

// handOver: by agreement it takes no time to speak of.
func (s *stage) handOver(ctx context.Context) error {
	leader, err := s.act(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == leader.ID || !s.cast[name].alive() {
			continue
		}
		s.screen.say("TRANSFER: %s is asked to hand over to %s", leader.ID, name)
		at := time.Now()
		if err := leaderelection.Transfer(ctx, s.store.decider, name); err != nil {
			return err
		}
		return s.successor(ctx, "hand-over (Transfer)", leader, at)
	}
	return errors.New("nobody is left to hand over to")
}

// leave lets all end in good order: the leader last, so that nobody follows it for the
// moment until it is told as well.
func (s *stage) leave(ctx context.Context) error {
	var standbys []string
	for name := range s.cast {
		if name != s.now.ID {
			standbys = append(standbys, name)
		}
	}
	if err := errors.Join(s.dismiss(ctx, standbys...), s.dismiss(ctx, s.now.ID)); err != nil {
		return err
	}
	s.screen.say("all have stopped")
	return nil
}

// dismiss tells some to stop, and waits until they have.
func (s *stage) dismiss(ctx context.Context, names ...string) error {
	var last error
	for _, name := range names {
		if p := s.cast[name]; p.alive() {
			last = errors.Join(last, p.quit())
		}
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for _, name := range names {
		select {
		case <-s.cast[name].gone:
		case <-deadline.C:
			return fmt.Errorf("%s was told to stop, and still runs after %v", name, patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return last
}

// verdict checks the ledger, and prints what came of it.
func (s *stage) verdict(out io.Writer, took time.Duration) error {
	book, err := os.Open(s.ledger)
	if err != nil {
		return err
	}
	defer book.Close()
	lines, err := readLedger(book)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "EVENT\tLEADER\tTOKEN\tHAND-OVER TOOK")
	for _, e := range s.events {
		leader, token := e.to.ID, fmt.Sprint(e.to.Token)
		if e.from.Token > 0 {
			leader, token = e.from.ID+" -> "+leader, fmt.Sprintf("%d -> %s", e.from.Token, token)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.3f s\n", e.what, leader, token, e.took.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	leaderships, faults := check(lines)
	report(out, lines, leaderships, len(s.fenced), faults)
	fmt.Fprintf(out, "all in %.1f s\n", took.Seconds())
	switch {
	case len(faults) > 0:
		return fmt.Errorf("the ledger has %d faults", len(faults))
	case leaderships != len(s.events):
		return fmt.Errorf("%d leaderships are in the ledger, %d were seen to begin", leaderships, len(s.events))
	}
	return nil
}

// report says what the check of the ledger has found.
func report(out io.Writer, lines []entry, leaderships, fenced int, faults []string) {
	acts := 0
	for _, e := range lines {
		if e.Kind == "act" {
			acts++
		}
	}
	fmt.Fprintf(out, "\nledger: %d lines, %d acts in %d leaderships, %d late act fenced off\n", len(lines), acts, leaderships, fenced)
	for _, f := range faults {
		fmt.Fprintln(out, "FAULT:", f)
	}
	if len(faults) == 0 {
		fmt.Fprintln(out, "0 overlapping leaderships: every token grew, no act came after a later leader's first, no two views overlapped")
	}
}
