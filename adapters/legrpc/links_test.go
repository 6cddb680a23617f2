package legrpc

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// at is a connection to a remote address.
type at struct {
	net.Conn
	remote string
}

func (c at) RemoteAddr() net.Addr { return c }
func (c at) Network() string      { return "tcp" }
func (c at) String() string       { return c.remote }

// connect has l know a connection to an address, which is its remote address, too. It returns
// what the other end is told of its end.
func connect(t *testing.T, l *links, address string) (closed <-chan struct{}) {
	ours, theirs := net.Pipe()
	k := l.add(at{ours, address}, address)
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = theirs.Read(make([]byte, 1))
	}()
	t.Cleanup(func() { _ = k.Close(); <-end })
	return end
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A connection to a leader that is deposed is left after a second of silence: also if that one led
// again meanwhile, and not by what is said of an older leader.
func TestDeposedLinksAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinks()
		l.leads(2, []string{"a"})
		a := connect(t, l, "a")
		time.Sleep(time.Hour)
		l.leads(3, []string{"b"})
		time.Sleep(grace / 2)
		l.leads(4, []string{"a"})
		time.Sleep(grace)
		if isClosed(a) {
			t.Fatal("the leader's connection is closed")
		}
		l.leads(5, []string{"b"})
		l.leads(4, []string{"a"}) // late news
		time.Sleep(grace - time.Millisecond)
		if isClosed(a) {
			t.Error("closed before it was silent for long enough")
		}
		time.Sleep(time.Millisecond)
		if !isClosed(a) {
			t.Error("the connection to the one that was deposed is open")
		}
	})
}

// An address that refuses is left out for a second, or until another leader is there; unless
// none is better. What is offered holds until the first of those comes back.
func TestOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinks()
		all := []string{"a", "b", "c"}
		expect := func(from []string, left time.Duration, want ...string) {
			t.Helper()
			offered, until, _ := l.offer(from)
			if !slices.Equal(offered, want) {
				t.Errorf("offered are %q, want %q", offered, want)
			}
			if until.IsZero() != (left == 0) || left != 0 && time.Until(until) != left {
				t.Errorf("it holds until %v, want for %v", until, left)
			}
		}
		l.leads(1, all)
		for _, address := range all {
			connect(t, l, address)
		}
		expect(all, 0, "a", "b", "c")
		_, _, changed := l.offer(all)
		l.refused("a")
		if !isClosed(changed) {
			t.Error("that an address refuses is not told")
		}
		time.Sleep(avoidFor / 4)
		l.refused("b")
		l.refused("nobody")
		expect(all, avoidFor*3/4, "c")
		expect([]string{"b", "a", "c"}, avoidFor*3/4, "c")
		expect([]string{"a", "b"}, 0, "a", "b") // none is better
		time.Sleep(avoidFor * 3 / 4)
		expect(all, avoidFor/4, "a", "c")
		l.leads(1, all) // an extension
		expect(all, avoidFor/4, "a", "c")
		l.leads(2, all)
		expect(all, 0, "a", "b", "c")
	})
}

// channel is a gRPC channel that notes where it is to connect to.
type channel struct {
	resolver.ClientConn
	offered chan []string
}

func (c channel) ReportError(error) {}
func (c channel) UpdateState(s resolver.State) error {
	var all []string
	for _, a := range s.Addresses {
		all = append(all, a.Addr)
	}
	c.offered <- all
	return nil
}

// An address that refuses is taken from the channel at once, and given back a second later, with no other
// news.
func TestRefusingAddressIsOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		all := []string{"10.0.0.1:1", "10.0.0.2:1"}
		d.Replace(&leaderelection.RaceEntry{LeaderID: "a", HostPort: all, ElectionNumber: 1, Incarnation: "i", TermLength: time.Hour, TermExpiry: time.Now().Add(time.Hour)})
		b := NewBuilder(leaderelection.WatchConfig{Decider: d.Handle(), MaxClockSkew: time.Second}, nil)
		c := channel{offered: make(chan []string, 10)}
		r, err := b.Build(resolver.Target{}, c, resolver.BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-c.offered:
				if !slices.Equal(got, want) {
					t.Errorf("offered are %q, want %q", got, want)
				}
			default:
				if want != nil {
					t.Errorf("nothing is offered, want %q", want)
				}
			}
		}
		expect(all...)
		connect(t, b.links, all[0])
		b.links.refused(all[0])
		expect(all[1])
		time.Sleep(avoidFor - time.Millisecond)
		expect()
		time.Sleep(time.Millisecond)
		expect(all...)
	})
}
