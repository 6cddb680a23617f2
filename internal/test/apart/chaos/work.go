//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// worker is what works on the registers for one leadership, and writes down what it does.
type worker struct {
	life      string // whose ledger lines these are
	by        string // what begins the values that it writes: no two workers have it in common
	number    uint64
	since     int64 // of two workers of one leadership, the later has the greater
	registers string
	ledger    *ledger
	may       func() bool // whether it may still act
	over      func() bool // whether it has been asked to end
	first     line        // what its first line says besides
}

// pace is how long it waits between two acts.
const pace = 5 * time.Millisecond

// ask begins a line: it is true that the worker might act at a time from B to A.
func (w *worker) ask(k kind) (line, bool) {
	l := w.first
	l.Kind, l.By, l.N, l.B = k, w.life, w.number, now()
	ok := w.may()
	l.A = now()
	return l, ok
}

// work works as long as it may, and reports whether it knows what has become of its writes.
// Reads are answered from memory, as a leader may that is the only one: they are right
// only if no other leader writes meanwhile.
func (w *worker) work() (known bool) {
	r := newClient(w.registers, w.number, w.since)
	var memory content
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for writes := 0; ; <-tick.C {
		choice := rand.IntN(3)
		l, ok := w.ask([]kind{act, read, write}[choice])
		if !ok || w.over() {
			return true
		}
		l.Key = keys[rand.IntN(len(keys))]
		switch {
		case memory.Values == nil:
			l.Kind, l.Key = act, ""
			memory, _ = r.open(context.Background()) // or again
		case choice == 1:
			l.V, l.R = memory.Values[l.Key], l.A
		case choice == 2:
			writes++
			l.V = fmt.Sprintf("%s-%d-%d", w.by, w.number, writes)
			err := r.write(context.Background(), l.Key, l.V)
			l.R = now()
			switch {
			case err == nil:
				l.O, memory.Values[l.Key] = "ok", l.V
			case errors.Is(err, errFenced):
				l.O = "refused"
			default:
				l.O = "unknown"
			}
		}
		w.ledger.add(l)
		w.first = line{}
		if l.O == "unknown" || l.O == "refused" {
			return false // what is in memory may not be what is there
		}
	}
}

// registerPort is where the registers are served, on a host of their own.
const registerPort = "8080"

// registers are the resource that the leader works on: values by key, behind a fence. They
// refuse a token that is smaller than the greatest they have seen, as a resource should. A
// leader's command may be killed and started again in the same leadership: of two requests
// with one token, those of the process that came later count.
type registers struct {
	mu      sync.Mutex
	top     uint64
	since   int64
	values  map[string]string
	applied map[string]int64 // when each value was written
}

// serveRegisters is the process of the registers.
func serveRegisters(addr string) error {
	r := &registers{values: map[string]string{}, applied: map[string]int64{}}
	l, err := net.Listen("tcp", net.JoinHostPort(addr, registerPort))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /open", func(w http.ResponseWriter, q *http.Request) { r.fenced(w, q, nil) })
	mux.HandleFunc("POST /write", func(w http.ResponseWriter, q *http.Request) {
		r.fenced(w, q, func() {
			key, value := q.FormValue("key"), q.FormValue("value")
			r.values[key], r.applied[value] = value, now()
		})
	})
	return http.Serve(l, mux)
}

// fenced does f if the request's token is not fenced off. Without f it answers with all
// values, and with when each was written if that is asked for.
func (r *registers) fenced(w http.ResponseWriter, q *http.Request, f func()) {
	token, err := strconv.ParseUint(q.FormValue("token"), 10, 64)
	since, err2 := strconv.ParseInt(q.FormValue("since"), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.top || token == r.top && since < r.since {
		http.Error(w, "a greater token was here", http.StatusConflict)
		return
	}
	r.top, r.since = token, since
	all := content{}
	if f != nil {
		f()
	} else if all.Values = r.values; q.FormValue("all") != "" {
		all.Applied = r.applied
	}
	_ = json.NewEncoder(w).Encode(all)
}

// client speaks with the registers for one leadership.
type client struct {
	base  string
	token uint64
	since int64
	http  http.Client
}

var errFenced = errors.New("fenced off")

func newClient(addr string, token uint64, since int64) *client {
	return &client{base: "http://" + net.JoinHostPort(addr, registerPort), token: token, since: since, http: http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, IdleConnTimeout: 5 * time.Second},
	}}
}

// content is what the registers hold, and when each value was written.
type content struct {
	Values  map[string]string
	Applied map[string]int64 `json:",omitempty"`
}

func (c *client) post(ctx context.Context, path string, form url.Values) (all content, err error) {
	form.Set("token", strconv.FormatUint(c.token, 10))
	form.Set("since", strconv.FormatInt(c.since, 10))
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return all, err
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	a, err := c.http.Do(q)
	if err != nil {
		return all, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	switch {
	case err != nil:
		return all, err
	case a.StatusCode == http.StatusConflict:
		return all, errFenced
	case a.StatusCode != http.StatusOK:
		return all, fmt.Errorf("%s: %s", a.Status, body)
	}
	return all, json.Unmarshal(body, &all)
}

// open fences off all earlier leaders, and returns what is there.
func (c *client) open(ctx context.Context) (content, error) {
	return c.post(ctx, "/open", url.Values{})
}

// all is open, with when each value was written.
func (c *client) all(ctx context.Context) (content, error) {
	c.http.Timeout = time.Minute
	return c.post(ctx, "/open", url.Values{"all": {"yes"}})
}

func (c *client) write(ctx context.Context, key, value string) error {
	_, err := c.post(ctx, "/write", url.Values{"key": {key}, "value": {value}})
	return err
}

// dump is a process that prints what the registers hold at the end.
func dump(addr string) error {
	all, err := newClient(addr, 1<<63, 0).all(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}
