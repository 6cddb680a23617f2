// Httpservice shows an HTTP service with hot standbys: three processes of which one
// answers at a time, behind a lehttp.Proxy that follows the election.
//
//	go run ./examples/httpservice
//
// Clients ask the proxy all the while. Then the leader is killed, and the next one
// is asked to hand over, and the next. At the end a table says how many requests
// were lost and how long the clients waited for the next leader. The program fails
// where a request was answered by a process whose view had ended.
//
// The election is kept in a file, since all is on one machine. On several, the
// decider is one of a store that all can reach; nothing else changes. Linux and
// macOS.
//
// Where to read on: member.go is what a service of yours would do, load.go what its
// clients do and what is checked.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/lehttp"
)

const (
	term     = 2 * time.Second        // short, so that there is something to see; the default is 15 s
	skew     = 100 * time.Millisecond // more than enough: one machine has one clock
	patience = 10 * time.Second       // of requests, and for each event
)

var names = []string{"one", "two", "three"}

func main() {
	if name := os.Getenv(envName); name != "" {
		os.Exit(serve(name))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := show(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "httpservice:", err)
		os.Exit(1)
	}
}

// event is a row of the table: what befell a leader, and when the clients were
// answered by the next.
type event struct {
	what     string
	from, to firstAnswer
	took     time.Duration
	lost     int // requests lost before it
}

// stage is what the show is played on.
type stage struct {
	out     io.Writer
	decider *file.Decider
	members map[string]*member
	load    *load
	leader  firstAnswer
	events  []event
}

// show runs the whole of it, and leaves nothing behind.
func show(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "leaderelection-httpservice")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	record := filepath.Join(dir, "election.json")
	s := &stage{out: out, decider: file.NewDecider(record, nil), members: map[string]*member{}}
	defer s.clear()
	for _, name := range names {
		if s.members[name], err = spawn(name, record); err != nil {
			return err
		}
	}
	front, closeFront, err := front(s.decider)
	if err != nil {
		return err
	}
	defer closeFront()
	fmt.Fprintf(out, "term %v, clocks may differ by %v, %d members; clients ask %s\n", term, skew, len(names), front)
	s.load = startLoad(front)
	defer s.load.stop()
	if err := s.play(ctx); err != nil {
		return err
	}
	s.load.stop()
	return s.verdict()
}

// front starts the proxy that the clients ask. It is no candidate: it follows the
// election, and could run anywhere, any number of times.
func front(d le.RaceDecider) (url string, closeAll func(), err error) {
	router, err := lehttp.Follow(le.WatchConfig{Decider: d, MaxClockSkew: skew})
	if err != nil {
		return "", nil, err
	}
	proxy := router.Proxy(&lehttp.ProxyOptions{Wait: patience}) // more than the default, for a busy machine
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		router.Close()
		return "", nil, err
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() {
		_ = server.Close()
		proxy.Close()
		router.Close()
	}, nil
}

// play is what happens.
func (s *stage) play(ctx context.Context) error {
	if err := s.next(ctx, event{what: "first election"}, time.Now()); err != nil {
		return err
	}
	for _, scene := range []func(context.Context) error{s.kill, s.handOver, s.handOver} {
		select {
		case <-time.After(time.Second): // some ordinary life in between
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for len(s.load.firsts) > 0 { // on a busy machine there may have been another leadership
			s.leader = <-s.load.firsts
		}
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends the leader without a word to anybody: its term must run out.
func (s *stage) kill(ctx context.Context) error {
	e, at := event{what: "kill -9", lost: s.load.lost()}, time.Now()
	s.members[s.leader.by].kill()
	delete(s.members, s.leader.by)
	return s.next(ctx, e, at)
}

// handOver asks the leader to hand over to another member that is alive.
func (s *stage) handOver(ctx context.Context) error {
	for _, name := range names {
		if s.members[name] != nil && name != s.leader.by {
			e, at := event{what: "hand-over", lost: s.load.lost()}, time.Now()
			if err := le.Transfer(ctx, s.decider, name); err != nil {
				return err
			}
			return s.next(ctx, e, at)
		}
	}
	return errors.New("nobody is left to hand over to")
}

// next waits for the first answer of the next leadership after e, which began at since.
func (s *stage) next(ctx context.Context, e event, since time.Time) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case f := <-s.load.firsts:
		e.from, e.to, e.took = s.leader, f, f.at.Sub(since)
		s.events = append(s.events, e)
		s.leader = f
		fmt.Fprintf(s.out, "%s: %s answers, with token %d\n", e.what, f.by, f.leadership)
		return nil
	case <-late.C:
		return fmt.Errorf("%s: no leader answers within %v", e.what, patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// clear ends the members that are left.
func (s *stage) clear() {
	for _, m := range s.members {
		m.kill()
	}
}

// verdict prints the tables, and says what must not have happened.
func (s *stage) verdict() error {
	table := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nEVENT\tLEADER\tLEADERSHIP\tNEXT ANSWER AFTER\tLOST")
	for i, e := range s.events {
		lost := s.load.lost() // until the next event
		if i+1 < len(s.events) {
			lost = s.events[i+1].lost
		}
		from := ""
		if e.from.by != "" {
			from = e.from.by + " -> "
		}
		fmt.Fprintf(table, "%s\t%s%s\t%d\t%.3f s\t%d\n", e.what, from, e.to.by, e.to.leadership, e.took.Seconds(), lost-e.lost)
	}
	fmt.Fprintln(table, "\nMETHOD\tREQUESTS\tANSWERED\tLOST\t")
	for _, k := range kinds {
		c := s.load.counts[k.method]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", k.method, c.answered+c.lost, c.answered, c.lost, k.note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(s.load.stale) > 0 {
		return fmt.Errorf("%d requests were answered by a process whose view had ended, the first: %s", len(s.load.stale), s.load.stale[0])
	}
	fmt.Fprintln(s.out, "\n0 requests were answered by a process whose view had ended")
	return nil
}
