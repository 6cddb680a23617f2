//go:build go1.25

package route_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// A leader is known for as long as its term can last: by its expiry where clocks
// can be compared, and for a term and the allowance for drift from when the record
// was seen where they cannot.
func TestLed(t *testing.T) {
	const term, skew = 200 * time.Second, time.Second
	for name, c := range map[string]struct {
		unsynchronized bool
		ahead          time.Duration // of the writer's clock
		want           time.Duration
	}{
		"clocks in common":            {false, 0, term + skew},
		"the writer's ahead":          {false, time.Second, term + 2*skew},
		"the writer's hours ahead":    {false, 2 * time.Hour, term + 3*skew}, // than a right clock could have written
		"no clocks in common, behind": {true, -5 * time.Hour, term + term/100},
		"no clocks in common, ahead":  {true, 5 * time.Hour, term + term/100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := route.NewTable(nil, skew, leaderelection.Synchronized)
				table.News(leaderelection.RaceEntry{
					LeaderID: "a", HostPort: []string{"127.0.0.1:1"}, ElectionNumber: 1, Unsynchronized: c.unsynchronized,
					TermLength: term, TermExpiry: time.Now().Add(term + c.ahead),
				})
				s := table.Load()
				if got := s.UntilNext(); got != c.want || !s.Led() {
					t.Errorf("led: %v, until the next %v, want %v", s.Led(), got, c.want)
				}
				time.Sleep(c.want - time.Nanosecond)
				if !s.Led() {
					t.Error("not led before that")
				}
				time.Sleep(time.Nanosecond)
				if s.Led() || s.UntilNext() != 0 {
					t.Errorf("led: %v, until the next %v", s.Led(), s.UntilNext())
				}
			})
		})
	}
}

// No MaxClockSkew means the default, as in a Config, except to those that share one clock.
func TestSkewOfAConfig(t *testing.T) {
	for policy, want := range map[leaderelection.ClockPolicy]time.Duration{
		leaderelection.Synchronized: leaderelection.DefaultMaxClockSkew, leaderelection.SharedClock: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			const term = 15 * time.Second
			table := route.NewTable(nil, 0, policy)
			table.News(leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermLength: term, TermExpiry: time.Now().Add(term)})
			if got := table.Load().UntilNext(); got != term+want {
				t.Errorf("%v: until the next %v, want %v", policy, got, term+want)
			}
		})
	}
}

// A router whose own clock was hours ahead when it learned of a leader, and is set right, does not know
// that leader for hours.
func TestOwnClockWasAhead(t *testing.T) {
	const term, skew = 15 * time.Second, time.Second
	synctest.Test(t, func(t *testing.T) {
		clock := clocks.NewOffset(nil, 2*time.Hour)
		table := route.NewTable(clock, skew, leaderelection.Synchronized)
		table.News(leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i", TermLength: term, TermExpiry: time.Now().Add(2*time.Hour + term)})
		clock.Set(0)
		time.Sleep(term)
		if !table.Load().Led() {
			t.Error("not led for a term")
		}
		time.Sleep(3 * skew)
		if s := table.Load(); s.Led() || s.UntilNext() != 0 {
			t.Errorf("led: %v, until the next %v", s.Led(), s.UntilNext())
		}
	})
}

// A router whose store refuses for good logs few lines, and one more when the election is watched.
func TestRefusedForGoodIsLoggedBriefly(t *testing.T) {
	for _, err := range []error{leaderelection.ErrPermanent, leaderelection.ErrDenied} {
		for _, polled := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				var w leaderelection.WatchConfig
				store := d.Handle()
				store.Inject(memory.Fail(err))
				w.Decider = store
				if polled {
					w.Decider = store.Polled()
				}
				var text bytes.Buffer
				w.Logger = slog.New(slog.NewTextHandler(&text, nil))
				f, err := route.Follow(w, nil)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := strings.Count(text.String(), "\n"); n < 20 || n > 65 {
					t.Errorf("%d lines in an hour", n)
				}
				text.Reset()
				store.Inject(nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := strings.Count(text.String(), "the election is watched again"); n != 1 || f.Failure() != nil {
					t.Errorf("it was said %d times that the election is watched again, and the failure is %v", n, f.Failure())
				}
				f.Close()
			})
		}
	}
}

// The routers' own rule about addresses.
func TestCheckAddress(t *testing.T) {
	for _, good := range []string{"10.0.0.1:80", "127.0.0.1:80", "[::1]:80", "192.0.2.7:80", "[fd00::1]:80", "[2001:db8::1]:80", "[64:ff9b::10.0.0.1]:80", "[2002:a00:1::1]:80", "100.100.100.201:80", "leader.example:80", "localhost:80"} {
		if err := route.CheckAddress(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fe80::1]:80", "[fe80::1%eth0]:80", "[fd00:ec2::254]:80",
		"224.0.0.1:80", "[ff02::1]:80", "0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80", "nonsense",
		"[fd20:ce::254]:80", "100.100.100.200:80", "168.63.129.16:80", "[::ffff:168.63.129.16]:80",
		"[64:ff9b::169.254.169.254]:80", "[64:ff9b:1::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "[::169.254.169.254]:80", "[64:ff9b::6464:64c8]:80",
	} {
		if route.CheckAddress(bad) == nil {
			t.Errorf("%s is allowed", bad)
		}
		if err := route.Control("tcp", bad, nil); err == nil {
			t.Errorf("%s is dialled", bad)
		}
	}
	if err := route.Control("tcp", "[::1]:80", nil); err != nil {
		t.Error(err)
	}
}

// A record with several addresses has one for each router: by number, by name, or as the program likes. What is
// chosen must be fit to be dialled and allowed, like a HostPort: a record cannot send requests, with their
// credentials, to anywhere.
func TestAddresses(t *testing.T) {
	const named = `{"x": 1, "addresses": {"admin": ["10.0.0.1:9000"], "bad": ["169.254.169.254:80"], "worse": ["x/y?:80"], "none": []}}`
	only := func(hostPort string) error {
		if hostPort != "10.1.2.3:80" {
			return errors.New("none of ours")
		}
		return nil
	}
	two := []string{"10.0.0.1:80", "10.0.0.1:9000"}
	for name, c := range map[string]struct {
		hostPort []string
		choose   func(leaderelection.RaceEntry) []string
		check    func(string) error
		want     string // the good ones
		fault    string // what is wrong with others
	}{
		"none chosen":                  {two, nil, route.CheckAddress, "10.0.0.1:80 10.0.0.1:9000", ""},
		"by port":                      {two, route.Port("9000"), route.CheckAddress, "10.0.0.1:9000", ""},
		"by name":                      {two, route.Named("admin"), route.CheckAddress, "10.0.0.1:9000", ""},
		"by hand":                      {two, func(e leaderelection.RaceEntry) []string { return e.HostPort[1:] }, route.CheckAddress, "10.0.0.1:9000", ""},
		"none":                         {nil, nil, route.CheckAddress, "", "no HostPort in its record"},
		"a port of nobody's":           {two, route.Port("1"), route.CheckAddress, "", "no address of the kind"},
		"a name of nobody's":           {two, route.Named("other"), route.CheckAddress, "", "no address of the kind"},
		"a name without addresses":     {two, route.Named("none"), route.CheckAddress, "", "no address of the kind"},
		"a named one that is refused":  {two, route.Named("bad"), route.CheckAddress, "", "169.254.169.254"},
		"a named one that is none":     {two, route.Named("worse"), route.CheckAddress, "", "x/y"},
		"the good one of two":          {[]string{"[fe80::1]:80", "10.0.0.1:80"}, nil, route.CheckAddress, "10.0.0.1:80", "fe80"},
		"the caller's rule":            {[]string{"10.0.0.1:80", "10.1.2.3:80"}, nil, only, "10.1.2.3:80", "none of ours"},
		"the caller's rule, none left": {two, nil, only, "", "none of ours"},
	} {
		e := leaderelection.RaceEntry{HostPort: c.hostPort, ConnectionParams: []byte(named)}
		good, fault := route.Addresses(&e, c.choose, c.check)
		if got := strings.Join(good, " "); got != c.want || (fault == nil) != (c.fault == "") || !strings.Contains(fmt.Sprint(fault), c.fault) {
			t.Errorf("%s: %q, %v", name, got, fault)
		}
	}
}

// A host that is invalid, or that a browser takes for another one, makes no URL.
func TestCheckHostPort(t *testing.T) {
	for _, good := range []string{"10.0.0.1:80", "[::1]:80", "[fe80::1]:80", "leader:80", "leader-0.orders_x.svc.cluster.local.:80", "1a.example:80", "3f2a9c1b2d4e:80", "0xy:80", "xn--bcher-kva.example:80"} {
		if err := route.CheckHostPort(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"a;b:80", "a,b:80", "a&b=c:80", "<script>:80", `a"b:80`, "a'b:80", "(a):80", "a*:80", "a..b:80", ".a:80", "a b:80", "%31:80", "bücher.example:80", "１２７.０.０.１:80",
		"2130706433:80", "0x7f000001:80", "0x7f.1:80", "127.1:80", "0177.0.0.1:80", "a.1:80", "[a]:80", "[10.0.0.1]:80", strings.Repeat("a", 64) + ":80", strings.Repeat("a.", 127) + "ab:80",
	} {
		if route.CheckHostPort(bad) == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

// What is expected of a leader is overdue when a later leadership has been known
// for a while, or what it led is gone: a vacancy or an extension is none.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := leaderelection.RaceEntry{LeaderID: "a", HostPort: []string{"127.0.0.1:1"}, ElectionNumber: 1, TermExpiry: time.Now().Add(time.Hour)}
		table := route.NewTable(nil, time.Second, leaderelection.Synchronized)
		table.News(e)
		var calls atomic.Int32
		s := table.Load()
		s.Overdue(time.Second, func() { calls.Add(1) })
		came := s.Overdue(time.Second, func() { t.Error("it came, and was called overdue") })
		expect := func(want int32) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if calls.Load() != want {
				t.Errorf("called %d times, want %d", calls.Load(), want)
			}
		}
		e.Extension++
		table.News(e)
		expect(0)
		e.LeaderID, e.Extension = "", e.Extension+1
		table.News(e)
		expect(0)
		e.LeaderID, e.ElectionNumber = "b", 2
		table.News(e)
		came()
		expect(1)
		s.Overdue(time.Second, func() { calls.Add(1) }) // it has been over for long
		expect(2)
		table.Load().Overdue(time.Second, func() { t.Error("the present leader is called overdue") })()
		table.Load().Overdue(time.Second, func() { calls.Add(1) })
		table.Remove()
		expect(3)
		if s := table.Load(); !s.Removed() || s.Led() || s.Known() {
			t.Errorf("what was removed is %+v", s)
		}
	})
}

// FuzzAddresses takes what a record says of the leader's addresses: what passes can be dialled, and makes
// the URL that is meant; link-local addresses do not pass, however they are written.
func FuzzAddresses(f *testing.F) {
	for _, hp := range []string{"10.0.0.1:80", "[::1]:80", "[fe80::1%25eth0]:80", "[::ffff:169.254.169.254]:80", "a@b:80", "a/b:80", "host:http", "host:0", ":80", "169.254.169.254:80", "0.0.0.0:1", "%31:80", "a b:80"} {
		f.Add(hp, []byte(`{"addresses": {"grpc": ["`+hp+`"]}}`))
	}
	f.Add("host", []byte("[]")) // no port, and no object
	f.Fuzz(func(t *testing.T, hp string, params []byte) {
		for _, a := range append(route.Named("grpc")(leaderelection.RaceEntry{ConnectionParams: params}), hp) {
			if route.CheckHostPort(a) != nil {
				continue
			}
			u, err := url.Parse("http://" + a + "/path")
			if err != nil || u.Host != a || u.Path != "/path" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				t.Errorf("%q makes %v, %v", a, u, err)
				continue
			}
			host, _, err := net.SplitHostPort(a)
			if err != nil || host == "" || host != strings.Trim(host, "[]") {
				t.Errorf("%q cannot be dialled: %q, %v", a, host, err)
			}
			ip := net.ParseIP(strings.SplitN(host, "%", 2)[0])
			if ip != nil && (ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified()) && route.CheckAddress(a) == nil {
				t.Errorf("%q passes", a)
			}
		}
	})
}
