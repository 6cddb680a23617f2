// Grpcfailover shows gRPC calls that follow the leader of an election: through a
// hand-over, through a leader that is cut off from the store and does not know it,
// and through a crash.
//
//	go run ./examples/grpcfailover
//
// Four clients share one channel, whose resolver is legrpc's, and call all the
// while. The program fails where a call was answered by a server whose view had
// ended.
//
// The election is kept in memory, so that there is nothing to install, and the
// servers are all in this process, each with a listener of its own. In a program
// of yours each is a process, and the decider one of a real store; nothing else
// changes.
//
// Where to read on: server.go is what a server of yours would do, calls.go what its
// clients do and what is checked.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/legrpc"
)

const (
	term     = time.Second // short, so that there is something to see; the default is 15 s
	skew     = 50 * time.Millisecond
	patience = 10 * time.Second // of calls, and for each event
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := show(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "grpcfailover:", err)
		os.Exit(1)
	}
}

// stage is what the show is played on.
type stage struct {
	out      io.Writer
	election *memory.Decider
	servers  map[string]*server
	calls    *calls
	now      answer // the first of the present leadership
	table    *tabwriter.Writer
}

// show runs the whole of it.
func show(ctx context.Context, out io.Writer) error {
	s := &stage{out: out, election: memory.NewDecider(), servers: map[string]*server{}, table: tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	defer s.clear()
	for _, name := range []string{"ada", "bob", "cyd"} {
		var err error
		if s.servers[name], err = start(name, s.election.Handle()); err != nil {
			return err
		}
	}

	// The client knows no address, only the election.
	leader := legrpc.NewBuilder(le.WatchConfig{Decider: s.election.Handle(), MaxClockSkew: skew}, nil)
	conn, err := grpc.NewClient("leaderelection:///example",
		append(leader.DialOptions(nil), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.calls = startCalls(conn)
	defer s.calls.stop()

	if err := s.play(ctx); err != nil {
		return err
	}
	s.calls.stop()
	return s.verdict()
}

// play is what happens.
func (s *stage) play(ctx context.Context) error {
	fmt.Fprintln(s.table, "EVENT\tLEADER\tLEADERSHIP\tNEXT ANSWER AFTER")
	var err error
	if s.now, err = s.next(ctx, "first election"); err != nil {
		return err
	}
	fmt.Fprintf(s.table, "first election\t%s\t%d\t\n", s.now.by, s.now.leadership)
	for _, event := range []struct {
		what string
		do   func(leader *server) error
	}{
		{"hand-over", func(*server) error { return s.handOver(ctx) }},
		// It is still reached by its clients, and refuses them once its view has
		// ended.
		{"cut off from the store", func(leader *server) error { leader.store.Inject(memory.LoseRequests()); return nil }},
		{"crash", func(leader *server) error { leader.crash(); return nil }},
	} {
		select {
		case <-time.After(term): // some ordinary life in between
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for len(s.calls.firsts) > 0 { // on a busy machine there may have been another leadership
			s.now = <-s.calls.firsts
		}
		at, old := time.Now(), s.now
		if err := event.do(s.servers[old.by]); err != nil {
			return err
		}
		if s.now, err = s.next(ctx, event.what); err != nil {
			return err
		}
		fmt.Fprintf(s.table, "%s\t%s -> %s\t%d\t%.3f s\n", event.what, old.by, s.now.by, s.now.leadership, s.now.at.Sub(at).Seconds())
		s.servers[old.by].store.Inject(nil) // what was cut off is joined again, a follower
	}
	return nil
}

// handOver asks the leader to hand over to any of the others.
func (s *stage) handOver(ctx context.Context) error {
	for name := range s.servers {
		if name != s.now.by {
			return le.Transfer(ctx, s.election, name)
		}
	}
	return nil
}

// next waits for the first answer of the next leadership.
func (s *stage) next(ctx context.Context, what string) (answer, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a := <-s.calls.firsts:
		fmt.Fprintf(s.out, "%s: %s answers, with token %d\n", what, a.by, a.leadership)
		return a, nil
	case <-late.C:
		return answer{}, fmt.Errorf("%s: no leader answers within %v", what, patience)
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// clear ends the servers.
func (s *stage) clear() {
	for _, server := range s.servers {
		server.stop()
	}
}

// verdict prints the table, and says what must not have happened.
func (s *stage) verdict() error {
	fmt.Fprintln(s.out)
	if err := s.table.Flush(); err != nil {
		return err
	}
	c := s.calls
	fmt.Fprintf(s.out, "\n%d calls answered, %d refused after all retries, %d failed otherwise\n", c.answered, c.refused, len(c.failed))
	switch {
	case len(c.stale) > 0:
		return fmt.Errorf("%d calls were answered by a server whose view had ended, the first: %s", len(c.stale), c.stale[0])
	case len(c.failed) > 0:
		return fmt.Errorf("calls failed, the first: %w", c.failed[0])
	}
	fmt.Fprintln(s.out, "0 calls were answered by a server whose view had ended")
	return nil
}
