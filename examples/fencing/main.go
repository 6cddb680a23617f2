//go:build unix

// Fencing shows what no lease can prevent, and how a database prevents it: a leader
// that is stopped between asking its view and writing, and writes when another one
// leads already.
//
//	go run ./examples/fencing
//	go run ./examples/fencing -dsn postgres://user@host/database
//
// Two workers, each a process of its own, campaign an election. The first leader asks
// its view, is told that it may write, and is stopped there and then (SIGSTOP) for
// longer than its term. The second takes over and writes. Then the first is let go
// on (SIGCONT), and does what it was about to do, to two tables. One is fenced: the
// first's fencing token is smaller than one that was seen, and the write is refused.
// The other is not, and there it undoes the new leader's work. What the first tries
// after that does not even leave the process: its view has ended.
//
// Without -dsn it starts a PostgreSQL of its own, if one is installed, and stops it
// at the end. With -dsn it works in a schema of its own, which it drops at the end;
// the user needs the right to make one. At last it looks what the tables hold. It
// ends with status 1 where the fenced one holds the late write, or the other does
// not, and with 2 where it could not find out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if name, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(workMain(name))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run plays the scene and returns the exit status.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("fencing", flag.ContinueOnError)
	flags.SetOutput(errs)
	dsn := flags.String("dsn", "", "the PostgreSQL `database` to write to, such as postgres://user@host/database (default: one that is started for this)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errs, "fencing: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done within %v", patience))
	defer cancel()
	err := show(ctx, out, *dsn, nil)
	if err == nil {
		return 0
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause // whatever it made of the end
	}
	fmt.Fprintln(errs, "fencing:", err)
	if errors.Is(err, errProof) {
		return 1
	}
	return 2
}

// errProof: the tables do not hold what they are to.
var errProof = errors.New("the proof failed")

// show plays the scene. Meanwhile may be nil; it is called while the first leader
// is stopped and the second has written.
func show(ctx context.Context, out io.Writer, dsn string, meanwhile func(*tables)) (err error) {
	s := &scene{out: out}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.prepare(ctx, dsn); err != nil {
		return err
	}
	first, err := s.start(ctx, "first")
	if err != nil {
		return err
	}
	if err := first.elected(); err != nil {
		return err
	}
	s.say("first   leads with token %d, has asked its view, and is told that it may write", first.token)
	if err := first.freeze(); err != nil {
		return err
	}
	begin := time.Now()
	s.say("first   is stopped at that very moment (SIGSTOP); its term is %v", term)

	second, err := s.start(ctx, "second")
	if err != nil {
		return err
	}
	if err := second.elected(); err != nil {
		return err
	}
	s.say("second  leads with token %d, %.1f s later, and writes", second.token, time.Since(begin).Seconds())
	if err := s.turn(second); err != nil {
		return err
	}
	if meanwhile != nil {
		meanwhile(s.tables)
	}

	s.say("first   goes on (SIGCONT), and writes what it was about to write")
	if err := s.turn(first); err != nil {
		return err
	}
	s.say("first   wants to write once more, by its write gate")
	if err := s.turn(first); err != nil {
		return err
	}
	return s.proof(ctx)
}

// proof looks what the tables hold.
func (s *scene) proof(ctx context.Context) error {
	fenced, err := s.tables.holds(ctx, "fenced")
	if err != nil {
		return err
	}
	unfenced, err := s.tables.holds(ctx, "unfenced")
	if err != nil {
		return err
	}
	s.say("in PostgreSQL, the fenced table holds what %s wrote, the unfenced one what %s wrote", fenced, unfenced)
	switch {
	case fenced != "second":
		return fmt.Errorf("%w: the deposed leader's late write was accepted, in spite of the fence", errProof)
	case unfenced != "first":
		return fmt.Errorf("%w: the late write was not accepted without a fence either: it shows nothing", errProof)
	}
	s.say("the late write of a deposed leader was refused where there is a fence, and accepted where there is none")
	return nil
}
