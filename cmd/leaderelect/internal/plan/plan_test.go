package plan

import (
	"context"
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Virtual time goes from one sleeper to the next, in order, and only when nothing
// runs.
func TestWorld(t *testing.T) {
	w := newWorld()
	var order []time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		inner := make(chan time.Duration)
		for _, d := range []time.Duration{3, 1, 2} {
			go func() {
				w.sleep(context.Background(), d*time.Hour)
				x := 0
				for i := range 1_000_000 { // work, for which time stands still
					x += i
				}
				inner <- w.elapsed()
			}()
		}
		for range 3 {
			order = append(order, <-inner)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan bool, 1)
	go func() { gone <- w.sleep(ctx, time.Minute) }()
	cancel()
	if err := w.run(func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if <-gone {
		t.Error("a sleep whose ctx has ended says that it was slept through")
	}
	for i, at := range order {
		if want := time.Duration(i+1) * time.Hour; at != want {
			t.Errorf("sleeper %d woke at %v, want %v", i, at, want)
		}
	}
	if err := w.run(func() bool { return false }, 24*time.Hour); err != errLimit {
		t.Errorf("with nobody asleep: %v", err)
	}
}

// The simulation must say what the rules say: after a crash half a view to a whole
// term, and the skew on top.
func TestRunAgreesWithTheRules(t *testing.T) {
	for _, name := range []string{"gs", "nats"} {
		c := Choice{Term: 15 * time.Second, Skew: time.Second, Candidates: 3, Observers: 2, Store: *Lookup(name), Trials: 25}
		r, err := c.Run()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v", name, r)
		// The leader's clock may be off by the skew either way, and the
		// challenger's too.
		if low, high := 15*time.Second-7*time.Second-time.Second, 15*time.Second+3*time.Second+time.Second; r.Crash.Min < low || r.Crash.Max > high {
			t.Errorf("%s: crash %+v, want within %v and %v", name, r.Crash, low, high)
		}
		if most := 8500 * time.Millisecond; r.HandOver.Max > most || c.Store.Pushes && r.HandOver.Max > 100*time.Millisecond {
			t.Errorf("%s: hand-over %+v", name, r.HandOver)
		}
		if r.Outage < 4*time.Second || r.Outage > 7*time.Second {
			t.Errorf("%s: outage %v", name, r.Outage)
		}
		if r.Writes < 500 || r.Writes > 530 {
			t.Errorf("%s: %v writes an hour", name, r.Writes)
		}
		if reads := map[string]float64{"gs": 4 * 480, "nats": 0}[name]; r.Reads < reads*0.95 || r.Reads > reads*1.05 {
			t.Errorf("%s: %v reads an hour, want %v", name, r.Reads, reads)
		}
	}
}

// Where clocks are not compared, they may be hours apart: a fail-over takes a term and
// the allowance from when a standby has seen the last extension.
func TestRunUnsynchronized(t *testing.T) {
	c := Choice{Term: 15 * time.Second, Skew: time.Second, Unsynchronized: true, Candidates: 3, Store: *Lookup("nats"), Trials: 25}
	r, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	if low, high := 9*time.Second-100*time.Millisecond, 16*time.Second+100*time.Millisecond; r.Crash.Min < low || r.Crash.Max > high {
		t.Errorf("crash %+v, want within %v and %v", r.Crash, low, high)
	}
	if r.HandOver.Max > 100*time.Millisecond {
		t.Errorf("hand-over %+v", r.HandOver)
	}
	for _, w := range c.Warnings(r) {
		t.Errorf("warned: %s", w)
	}
	c.Store = *Lookup("file")
	if w := c.Warnings(r); len(w) != 1 || !strings.Contains(w[0], "--unsynchronized only makes fail-overs slower") {
		t.Errorf("on one machine: %q", w)
	}
}

// The drawing is XML, within its bounds, and begins with the reign, not before.
func TestSVG(t *testing.T) {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	c := Choice{Term: at(15), Skew: at(1), Store: Store{Name: "a<b&c"}}
	r := &Result{Typical: Trial{Extended: []time.Duration{at(2), at(9), at(16)}, Ends: []time.Duration{at(16), at(23), at(30)}, Expiry: at(31), Fault: at(20), Elected: at(32)}}
	text := c.SVG(r)
	d := xml.NewDecoder(strings.NewReader(text))
	var bars []float64
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "rect" {
			continue
		}
		var x, width float64
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "x":
				x, err = strconv.ParseFloat(a.Value, 64)
			case "width":
				width, err = strconv.ParseFloat(a.Value, 64)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if x < 120 || width <= 0 || x+width > 880.05 {
			t.Errorf("a bar from %v, %v wide", x, width)
		}
		bars = append(bars, x)
	}
	// Leader, view, what is left of the view, term, next leader.
	if len(bars) != 5 || bars[0] != bars[1] || bars[3] != bars[0] || bars[2] <= bars[1] || bars[4] <= bars[2] {
		t.Errorf("bars begin at %v", bars)
	}
	if !strings.Contains(text, "12s without a leader") {
		t.Error("it does not say for how long")
	}
}

// A price says what it is a price of, and how far it can be relied on.
func TestPricesAreAccountedFor(t *testing.T) {
	if _, err := time.Parse(time.DateOnly, PricesAsOf); err != nil {
		t.Error(err)
	}
	for _, s := range Stores {
		priced := s.Writes > 0 && s.Reads > 0
		if priced != strings.Contains(s.Pricing, "https://") || priced != (s.Checked != "") || priced == s.Pushes {
			t.Errorf("%+v", s)
		}
	}
}
