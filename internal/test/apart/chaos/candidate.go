//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/lifeline"
)

var stores = open.Stores{
	"etcd": open.With(etcd.Open), "nats": open.With(natskv.Open), "postgres": open.With(postgres.Open),
	"redis": open.With(redis.Open), "zookeeper": open.With(zookeeper.Open), "mysql": open.With(mysql.Open),
	"kubernetes": open.With(kubernetes.Open), "consul": open.With(consul.Open),
}

// keys are the registers that leaders work on.
var keys = []string{"a", "b", "c"}

// candidate is the process of a candidate. Its standard input brings what an operator
// does to it; it says on standard output when it leads.
type candidate struct {
	id, life, url, registers string
	term, skew, offset       time.Duration
	ledger                   *ledger
	campaign                 atomic.Pointer[leaderelection.Campaign]
	clock                    *clocks.Offset
	decider                  leaderelection.RaceDecider
}

func runCandidate(args []string) error {
	c := &candidate{}
	f := flag.NewFlagSet("candidate", flag.ExitOnError)
	f.StringVar(&c.id, "id", "", "")
	f.StringVar(&c.life, "life", "", "")
	f.StringVar(&c.url, "url", "", "")
	f.StringVar(&c.registers, "registers", "", "")
	f.DurationVar(&c.term, "term", 0, "")
	f.DurationVar(&c.skew, "skew", 0, "")
	f.DurationVar(&c.offset, "offset", 0, "")
	path := f.String("ledger", "", "")
	lifelines := f.String("lifeline", "", "")
	blind := f.Bool("unconditional", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	var err error
	if c.ledger, err = openLedger(*path); err != nil {
		return err
	}
	line, err := lifeline.Dir(*lifelines)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	for { // the store may not be up yet
		if c.decider, err = stores.Open(ctx, c.url); err == nil {
			break
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(200 * time.Millisecond)
	}
	if *blind {
		c.decider = unconditional{c.decider}
	}
	c.clock = clocks.NewOffset(nil, c.offset)
	go c.obey(leave)
	for {
		begun := make(chan struct{})
		campaign, err := leaderelection.Config{
			Decider: c.decider, LeaderID: c.id, TermLength: c.term, MaxClockSkew: c.skew, Clock: c.clock, Lifeline: line,
			Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)).With("life", c.life),
			OnElected: func(ctx context.Context, view *leaderelection.TimeView) { <-begun; c.lead(ctx, view) },
		}.Start(ctx)
		if err != nil {
			return err
		}
		c.campaign.Store(campaign)
		close(begun)
		// Refused for good: the store is not set up yet, or says so in its trouble.
		fmt.Fprintln(os.Stderr, "the campaign ended:", campaign.Wait())
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		time.Sleep(time.Second)
	}
}

// obey does what the standard input says.
func (c *candidate) obey(leave func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		ctx, cancel := context.WithTimeout(context.Background(), c.term)
		var err error
		switch verb {
		case "leave":
			leave()
		case "transfer":
			err = leaderelection.Transfer(ctx, c.decider, arg)
		case "stepdown":
			err = leaderelection.StepDown(ctx, c.decider, false)
		case "reset": // of an election that is well: to be refused while a term runs
			var after uint64
			_, _ = fmt.Sscan(arg, &after)
			err = leaderelection.Reset(ctx, c.decider, leaderelection.ElectionNumber(after), false)
		case "resign":
			if campaign := c.campaign.Load(); campaign != nil {
				err = campaign.Resign(ctx)
			}
		case "offset":
			var d time.Duration
			if d, err = time.ParseDuration(arg); err == nil {
				c.clock.Set(d)
			}
		}
		cancel()
		if err != nil {
			fmt.Fprintln(os.Stderr, in.Text(), err)
		}
	}
}

// lead works on the registers as long as the view lets it, whatever ctx says: the view is
// the promise under test.
func (c *candidate) lead(ctx context.Context, view *leaderelection.TimeView) {
	number := uint64(view.ElectionNumber())
	fmt.Println("leads", number)
	defer fmt.Println("over", number)
	w := &worker{
		life: c.life, by: c.life, number: number, registers: c.registers, ledger: c.ledger, may: view.ValueInFuture,
		over: func() bool {
			return ctx.Err() != nil && errors.Is(context.Cause(ctx), leaderelection.ErrResigned)
		},
		first: line{G: generation(c.campaign.Load().Leader())},
	}
	if !w.work() { // leave the leadership to others
		go func() { _ = c.campaign.Load().Resign(context.Background()) }()
	}
}

// unconditional is a store whose conditional write is none.
type unconditional struct{ leaderelection.RaceDecider }

func (u unconditional) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	token, err := u.RaceDecider.WriteEntry(ctx, e)
	for errors.Is(err, leaderelection.ErrLostRace) {
		var is *leaderelection.RaceEntry
		if is, err = u.RaceDecider.ReadCurrent(ctx); err == nil {
			over := e.Clone()
			over.Token = is.Token
			token, err = u.RaceDecider.WriteEntry(ctx, over)
		}
	}
	return token, err
}
