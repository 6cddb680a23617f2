// Package route keeps what a router knows of an election: who leads, by which
// addresses, until when that can be true without further news, and whether it
// has changed. It is what lehttp and legrpc have in common.
package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Table is the newest record of one election. Its methods may be called by any
// number of goroutines at once.
type Table struct {
	clock   clocks.Clock
	epoch   time.Time
	skew    time.Duration
	lasting bool       // who holds a record does so until a newer one
	mu      sync.Mutex // orders News
	state   atomic.Pointer[State]
	there   context.Context // ends when what the records are about is gone
	remove  context.CancelFunc
}

// State is one state of a Table; immutable.
type State struct {
	// Entry is the newest record, without its Token; zero while nothing has
	// been learned.
	Entry leaderelection.RaceEntry

	table      *Table
	gone       time.Time     // by the table's wall clock: the leader's term is over for every clock within bounds
	until      time.Duration // the elapsed time until which it may last, whatever its expiry says
	changed    chan struct{}
	leadership *leadership
}

// leadership is what the States of one leadership have in common: ctx ends when a later
// one is known.
type leadership struct {
	ctx   context.Context
	end   context.CancelFunc
	noted atomic.Bool // by First
}

func newLeadership() *leadership {
	ctx, end := context.WithCancel(context.Background())
	return &leadership{ctx: ctx, end: end}
}

// NewTable returns an empty Table. Clock, skew and policy are those of a Config or a WatchConfig, with
// the same defaults.
func NewTable(clock clocks.Clock, skew time.Duration, policy leaderelection.ClockPolicy) *Table {
	if clock == nil {
		clock = clocks.System()
	}
	if skew == 0 && policy != leaderelection.SharedClock {
		skew = leaderelection.DefaultMaxClockSkew
	}
	t := &Table{clock: clock, epoch: clock.Now(), skew: skew}
	t.there, t.remove = context.WithCancel(context.Background())
	t.state.Store(&State{table: t, changed: make(chan struct{}), leadership: newLeadership()})
	return t
}

// NewLastingTable returns an empty Table of records that say nothing of a term: whoever
// holds one is known as the leader until there is a newer one.
func NewLastingTable(clock clocks.Clock) *Table {
	t := NewTable(clock, 0, leaderelection.SharedClock)
	t.lasting = true
	return t
}

// Load returns the present State; never nil.
func (t *Table) Load() *State { return t.state.Load() }

// News takes in a record. One that is not newer than what is known is no news.
func (t *Table) News(e leaderelection.RaceEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.state.Load()
	if e.ElectionNumber == leaderelection.NoElections || e.Compare(&old.Entry) <= 0 {
		return
	}
	next := &State{Entry: *e.Clone(), table: t, changed: make(chan struct{}), leadership: old.leadership}
	next.Entry.Token = nil
	next.ends()
	t.follow(old, next, e.ElectionNumber != old.Entry.ElectionNumber)
}

// follow has next follow old, as a later leadership's or not. The caller holds t.mu.
func (t *Table) follow(old, next *State, later bool) {
	if later {
		next.leadership = newLeadership()
	}
	t.state.Store(next)
	close(old.changed)
	if later {
		old.leadership.end()
	}
}

// Remove says that what the records are about is gone, and its leadership over. There must be no
// News after it.
func (t *Table) Remove() {
	t.remove()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.follow(t.state.Load(), &State{table: t, changed: make(chan struct{})}, true)
}

// AfterRemove calls f, in a goroutine of its own, after Remove.
func (t *Table) AfterRemove(f func()) { context.AfterFunc(t.there, f) }

// ends works out when the term is over for every clock within bounds. None of them can have written
// an expiry that is later than now by more than a term and twice the skew. An Unsynchronized record's
// expiry tells nothing: its term counts from now.
func (s *State) ends() {
	t, e := s.table, &s.Entry
	lasts := e.TermLength + 3*t.skew
	s.gone = e.TermExpiry.Add(t.skew)
	if e.Unsynchronized {
		lasts = e.TermLength + max(t.skew, e.TermLength/100)
		s.gone = t.clock.Now().Round(0).Add(lasts)
	}
	s.until = t.elapsed() + lasts
}

// elapsed is the time that passes whatever the wall clock is set to.
func (t *Table) elapsed() time.Duration {
	if m, ok := t.clock.(clocks.Monotonic); ok {
		return m.Monotonic()
	}
	return t.clock.Now().Sub(t.epoch)
}

// Known reports whether anything has been learned.
func (s *State) Known() bool { return s.Entry.ElectionNumber != leaderelection.NoElections }

// Removed reports whether what the records are about is gone.
func (s *State) Removed() bool { return s.table.there.Err() != nil }

// First reports whether it is called for the first time in this leadership.
func (s *State) First() bool { return !s.leadership.noted.Swap(true) }

// Led reports whether there is a leader, as far as is known: the record is held,
// and its term has not run out for sure.
func (s *State) Led() bool {
	return s.Known() && !s.Entry.Vacant() && (s.table.lasting || s.UntilNext() > 0)
}

// Gone is when the leader's term is over by the table's clock, for every clock
// within bounds, if it is not extended and its expiry is right; the zero time if nobody leads, or nobody knows.
func (s *State) Gone() time.Time {
	if !s.Known() || s.Entry.Vacant() || s.table.lasting {
		return time.Time{}
	}
	return s.gone
}

// UntilNext is how long it is at least until there can be a leader after the one
// of s, if that one does not hand over; zero where there may be one at once.
func (s *State) UntilNext() time.Duration {
	gone := s.Gone()
	if gone.IsZero() {
		return 0
	}
	return max(0, min(gone.Sub(s.table.clock.Now().Round(0)), s.until-s.table.elapsed()))
}

// Changed is closed when there is a newer State.
func (s *State) Changed() <-chan struct{} { return s.changed }

// Overdue calls f, once, when a later leadership has been known for grace and what
// was expected of this one has not come: until stop is called.
func (s *State) Overdue(grace time.Duration, f func()) (stop func()) {
	came := make(chan struct{})
	forget := context.AfterFunc(s.leadership.ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			f()
		case <-came:
		}
	})
	return func() {
		forget()
		close(came)
	}
}

// Addresses returns those of a leader's addresses that can be dialled and pass check, and what is
// wrong with the others. Choose returns the addresses of a leader; nil chooses the HostPorts.
func Addresses(e *leaderelection.RaceEntry, choose func(leaderelection.RaceEntry) []string, check func(hostPort string) error) (good []string, fault error) {
	all := e.HostPort
	if choose != nil {
		all = choose(*e.Clone())
	}
	switch {
	case len(all) > 0:
	case choose == nil:
		fault = errors.New("the leader has no HostPort in its record: set Config.HostPort")
	default:
		fault = fmt.Errorf("the leader has no address of the kind that is wanted: its HostPort is %q", e.HostPort)
	}
	for _, hp := range all {
		err := CheckHostPort(hp)
		if err == nil {
			err = check(hp)
		}
		if err != nil {
			fault = errors.Join(fault, err)
			continue
		}
		good = append(good, hp)
	}
	return good, fault
}

// Port chooses the HostPorts that have that port.
func Port(port string) func(leaderelection.RaceEntry) []string {
	return func(e leaderelection.RaceEntry) (chosen []string) {
		for _, hp := range e.HostPort {
			if _, p, err := net.SplitHostPort(hp); err == nil && p == port {
				chosen = append(chosen, hp)
			}
		}
		return chosen
	}
}

// Named chooses the addresses that the leader's ConnectionParams have by that name: a JSON
// object with a member "addresses", an object of lists.
func Named(name string) func(leaderelection.RaceEntry) []string {
	return func(e leaderelection.RaceEntry) []string {
		var params struct {
			Addresses map[string][]string `json:"addresses"`
		}
		if json.Unmarshal(e.ConnectionParams, &params) != nil {
			return nil
		}
		return params.Addresses[name]
	}
}

// CheckHostPort says what is wrong with a HostPort that cannot be dialled, or
// would make another URL than the one meant.
func CheckHostPort(hp string) error {
	host, port, err := net.SplitHostPort(hp)
	if err != nil {
		return fmt.Errorf("HostPort %q: %w", hp, err)
	}
	if host == "" {
		return fmt.Errorf("HostPort %q has no host", hp)
	}
	if _, err := netip.ParseAddr(host); err != nil && !isName(host) {
		return fmt.Errorf("HostPort %q is not a host and a port: the host must be an IP address, or a name of letters, digits, hyphens, underscores and dots", hp)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("HostPort %q: the port must be a number from 1 to 65535", hp)
	}
	if u, err := url.Parse("//" + hp); err != nil || u.Host != hp || u.User != nil {
		return fmt.Errorf("HostPort %q is not a host and a port", hp)
	}
	return nil
}

// isName reports whether host is a name of DNS. It refuses names that a browser or a resolver might take
// for an IPv4 address in another notation, such as 2130706433 or 0x7f.1.
func isName(host string) bool {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInName) {
			return false
		}
	}
	return len(host) <= 254 && !number.MatchString(labels[len(labels)-1])
}

// number is a last label that makes a name an IPv4 address in some notation.
var number = regexp.MustCompile(`^(?:[0-9]+|0[xX][0-9a-fA-F]*)$`)

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}

// CheckAddress is the routers' own rule about where a record may send requests, with
// their credentials: it refuses addresses that name no machine of a network, but
// this one's surroundings (link-local, as clouds' metadata services have), all of
// them (multicast) or none. A name passes; what it resolves to is for checkIP.
func CheckAddress(hostPort string) error {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return fmt.Errorf("HostPort %q: %w", hostPort, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return checkIP(ip)
	}
	return nil
}

// metadata is where clouds have services for their own machines outside the link-local ranges.
var metadata = map[netip.Addr]string{
	netip.MustParseAddr("fd00:ec2::254"):   "AWS",
	netip.MustParseAddr("fd20:ce::254"):    "Google Cloud",
	netip.MustParseAddr("100.100.100.200"): "Alibaba Cloud",
	netip.MustParseAddr("168.63.129.16"):   "Azure",
}

// checkIP is CheckAddress for an address that a name was resolved to.
func checkIP(ip netip.Addr) error {
	ip = ip.Unmap()
	bare := ip.WithZone("")
	if bare.IsLinkLocalUnicast() || bare.IsMulticast() || bare.IsUnspecified() {
		return fmt.Errorf("address %v is refused: it is link-local, multicast or unspecified; set CheckAddress to allow it", ip)
	}
	if cloud, is := metadata[bare]; is {
		return fmt.Errorf("address %v is refused: %s has a service for its own machines there; set CheckAddress to allow it", ip, cloud)
	}
	if inner, is := within(bare); is {
		if err := checkIP(inner); err != nil {
			return fmt.Errorf("address %v may lead to %v: %w", ip, inner, err)
		}
	}
	return nil
}

// Ranges of IPv6 whose addresses have one of IPv4 at the offset from which a gateway would take it.
var wrapped = []struct {
	of netip.Prefix
	at int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},   // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12}, // NAT64 of a site
	{netip.MustParsePrefix("2002::/16"), 2},       // 6to4
	{netip.MustParsePrefix("::/96"), 12},          // IPv4-compatible
}

// within returns the IPv4 address that an IPv6 address has in it.
func within(ip netip.Addr) (netip.Addr, bool) {
	if ip.Is4() || ip == netip.IPv6Loopback() {
		return netip.Addr{}, false
	}
	b := ip.As16()
	for _, w := range wrapped {
		if w.of.Contains(ip) {
			return netip.AddrFrom4([4]byte(b[w.at : w.at+4])), true
		}
	}
	return netip.Addr{}, false
}

// Control is checkIP as a net.Dialer's Control.
func Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return checkIP(to.Addr())
}
