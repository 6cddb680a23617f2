package legrpc

import (
	"io"
	"net"
	"slices"
	"strings"
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
	end, _ := connected(t, l, address)
	return end
}

// connected is connect. What is written to the other end is read.
func connected(t *testing.T, l *links, address string) (closed <-chan struct{}, far io.Writer) {
	ours, theirs := net.Pipe()
	k := l.add(at{ours, address}, address)
	end := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, k) }()
	go func() {
		defer close(end)
		_, _ = theirs.Read(make([]byte, 1))
	}()
	t.Cleanup(func() { _ = k.Close(); <-end })
	return end, theirs
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

// A connection to a leader that is deposed is left after a second of silence, and not while it is at work: also
// if that one led again meanwhile, and not by what is said of an older leader.
func TestDeposedLinksAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLinks()
		l.leads(2, []string{"a", "c"})
		a := connect(t, l, "a")
		worked, busy := connected(t, l, "c")
		time.Sleep(time.Hour)
		l.leads(3, []string{"b"})
		for range 10 {
			time.Sleep(grace / 20)
			_, _ = busy.Write([]byte("x"))
		}
		l.leads(4, []string{"a"})
		for range 10 {
			time.Sleep(grace / 10)
			_, _ = busy.Write([]byte("x"))
		}
		if isClosed(a) || isClosed(worked) {
			t.Fatal("the leader's connection is closed, or that of one that is at work")
		}
		if time.Sleep(grace); !isClosed(worked) {
			t.Error("it is open though it is at work no more")
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

// An address that refuses is taken from the channel at once, unless none is better, and given back a second
// later, with no other news, or when another leads.
func TestRefusingAddressIsOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		all := []string{"10.0.0.1:1", "10.0.0.2:1"}
		e := &leaderelection.RaceEntry{LeaderID: "a", HostPort: all, ElectionNumber: 1, Incarnation: "i", TermLength: time.Hour, TermExpiry: time.Now().Add(time.Hour)}
		d.Replace(e)
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
		connect(t, b.links, all[1])
		b.links.refused("nobody")
		expect()
		b.links.refused(all[0])
		expect(all[1])
		time.Sleep(avoidFor - time.Millisecond)
		e.Extension++
		d.Replace(e)
		expect()
		time.Sleep(time.Millisecond)
		expect(all...)
		b.links.refused(all[0])
		expect(all[1])
		b.links.refused(all[1])
		expect(all...)
		time.Sleep(avoidFor / 2)
		e.ElectionNumber++
		d.Replace(e)
		expect(all...)
	})
}

// A name that resolves to what is refused is not dialled.
func TestDialChecksTheAddress(t *testing.T) {
	b := NewBuilder(leaderelection.WatchConfig{}, nil)
	if _, err := b.dial(t.Context(), "169.254.169.254:1"); err == nil || !strings.Contains(err.Error(), "is refused") {
		t.Error(err)
	}
}
