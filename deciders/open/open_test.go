//go:build linux || darwin

package open_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

// conn is a decider that holds a connection.
type conn struct {
	leaderelection.RaceDecider
	url    string
	closed int
}

var errClosing = errors.New("closing")

func (c *conn) Close() error { c.closed++; return errClosing }

func (c *conn) String() string { return c.url }

func connect(_ context.Context, u *url.URL) (*conn, error) {
	if u.Path == "/refused" {
		return nil, fmt.Errorf("dial %s: %w", u, errRefused)
	}
	return &conn{RaceDecider: memory.NewDecider(), url: u.String()}, nil
}

var errRefused = errors.New("refused")

func TestTheSchemeDecides(t *testing.T) {
	stores := open.Stores{"one": open.With(connect), "file": open.With(file.Open), "nil": nil, "none": open.With[*conn](nil),
		"empty": func(context.Context, *url.URL) (leaderelection.RaceDecider, error) { return nil, nil }}
	d, err := stores.Open(t.Context(), "ONE://host/x?y=z")
	if err != nil || fmt.Sprint(d) != "one://host/x?y=z" {
		t.Errorf("one: %v, %v", d, err)
	}
	d, err = stores.Open(t.Context(), "file:x.json")
	if _, is := d.(*file.Decider); err != nil || !is {
		t.Errorf("file: %v, %v", d, err)
	}
	for in, c := range map[string]struct {
		says           string
		url, permanent bool
	}{
		"two://user:hush@host/x":       {`this program has no store for "two://xxxxx@host/x"; it can open empty, file, one: `, true, true},
		"nil://host/x":                 {"it can open empty, file, one: ", true, true},
		"none://host/x":                {"it can open empty, file, one: ", true, true},
		"host/x":                       {"it has no scheme, such as the s3 of s3://bucket/key; it can open empty, file, one: ", true, true},
		"":                             {"it has no scheme", true, true},
		"one://user:hush@host:x":       {"it cannot be read as a URL", true, true},
		"one://user:hush@host/refused": {errRefused.Error(), false, false}, // a store's own error is told as it is
		"file:///":                     {"names no file", true, true},
		"empty://x":                    {"returned neither", false, true},
	} {
		d, err := stores.Open(t.Context(), in)
		if d != nil || err == nil || errors.Is(err, open.ErrURL) != c.url || errors.Is(err, leaderelection.ErrPermanent) != c.permanent || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, %v, want %+v", in, d, err, c)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: a password is told: %v", in, err)
		}
	}
	if _, err := open.Stores(nil).Open(t.Context(), "s3://b/k"); err == nil || !strings.Contains(err.Error(), "put the Open function of a store into open.Stores") {
		t.Errorf("no stores: %v", err)
	}
}

// A store that was not opened is no decider, not even a nil of the store's type.
func TestWith(t *testing.T) {
	d, err := open.With(connect)(t.Context(), &url.URL{Path: "/refused"})
	if d != nil || !errors.Is(err, errRefused) {
		t.Errorf("%#v, %v", d, err)
	}
}

// The ctx that the store was opened with goes on after the one given to Open has ended,
// and keeps its values.
func TestTheDeciderOutlivesCtx(t *testing.T) {
	type key struct{}
	var with context.Context
	var made *conn
	stores := open.Stores{"one": func(ctx context.Context, u *url.URL) (_ leaderelection.RaceDecider, err error) {
		with = ctx
		made, err = connect(ctx, u)
		return made, err
	}}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
	_, err := stores.Open(ctx, "one://x")
	cancel()
	if err != nil || with.Err() != nil || with.Value(key{}) != 1 || made.closed > 0 {
		t.Errorf("%v, %v, %v", err, with.Err(), with.Value(key{}))
	}
}

// Opening ends with ctx, and says why; what was opened too late is closed.
func TestCtxEndsOpening(t *testing.T) {
	var late *conn
	why := errors.New("the user has left")
	for _, c := range []struct {
		name string
		open open.Opener
		says []error
	}{
		{"fails with another error", func(ctx context.Context, _ *url.URL) (leaderelection.RaceDecider, error) {
			<-ctx.Done()
			return nil, errRefused
		}, []error{why, errRefused}},
		{"fails with the cause", func(ctx context.Context, _ *url.URL) (leaderelection.RaceDecider, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, []error{why}},
		{"does not heed ctx", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
			<-ctx.Done()
			late, _ = connect(ctx, u)
			return late, nil
		}, []error{why}},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancelling := func(live context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
			cancel(why)
			return c.open(live, u)
		}
		d, err := open.Stores{"one": cancelling}.Open(ctx, "one://x")
		if d != nil || err == nil {
			t.Errorf("%s: %v, %v", c.name, d, err)
			continue
		}
		for _, says := range c.says {
			if !errors.Is(err, says) || strings.Count(err.Error(), says.Error()) != 1 {
				t.Errorf("%s: %v does not say %q once", c.name, err, says)
			}
		}
	}
	if late.closed != 1 {
		t.Errorf("what was opened too late was closed %d times", late.closed)
	}
}

func TestClose(t *testing.T) {
	c := &conn{}
	if err := open.Close(c); err != errClosing || c.closed != 1 {
		t.Errorf("%v, %d times", err, c.closed)
	}
	for _, d := range []leaderelection.RaceDecider{nil, memory.NewDecider()} {
		if err := open.Close(d); err != nil {
			t.Errorf("%T: %v", d, err)
		}
	}
}

// Whatever the text, Open neither panics nor tells what stands between : and @.
func FuzzOpen(f *testing.F) {
	for _, raw := range []string{"", ":", "file:", "file:///x.json?mode=%zz", "one://id:QZ@h/p", "one:@", "two:id:QZ@h", "://id:QZ@h", "one://h/refused", "one://id:Q@QZ@h/refused", "\x00", "one://[", "two://h\n"} {
		f.Add(raw)
	}
	stores := open.Stores{"one": open.With(connect), "file": open.With(file.Open)}
	f.Fuzz(func(t *testing.T, raw string) {
		d, err := stores.Open(t.Context(), raw)
		if (d == nil) != (err != nil) {
			t.Fatalf("%q: %v, %v", raw, d, err)
		}
		if before, after, found := strings.Cut(raw, ":QZ@"); found && err != nil && !strings.Contains(before+after, "QZ") && strings.Contains(err.Error(), "QZ") {
			t.Fatalf("%q: %v", raw, err)
		}
	})
}

// A program that keeps its election if it is told to.
func Example() {
	stores := open.Stores{
		"file": open.With(file.Open),
		// "s3": open.With(s3.Open), and so on: each store that the program shall know.
	}

	dir, err := os.MkdirTemp("", "election")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	decider, err := stores.Open(ctx, "file://"+filepath.ToSlash(filepath.Join(dir, "web.json")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer open.Close(decider)

	config := leaderelection.Config{Decider: decider, LeaderID: "web-1"}
	err = config.Run(ctx, func(_ context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading with a token:", view.ElectionNumber() > 0)
		return nil
	})
	fmt.Println(err)

	_, err = stores.Open(ctx, "s3://bucket/key")
	fmt.Println(err)
	// Output:
	// leading with a token: true
	// <nil>
	// leaderelection/open: the store's URL is wrong: this program has no store for "s3://bucket/key"; it can open file: leaderelection: no retry can help
}

// A store of one's own, or one that needs more than a URL says.
func ExampleOpener() {
	election := memory.NewDecider()
	stores := open.Stores{
		"mem": func(context.Context, *url.URL) (leaderelection.RaceDecider, error) { return election, nil },
	}
	decider, err := stores.Open(context.Background(), "mem://")
	if err != nil {
		fmt.Println(err)
		return
	}
	entry, err := decider.ReadCurrent(context.Background())
	fmt.Println(entry.ElectionNumber, err)
	// Output:
	// 0 <nil>
}
