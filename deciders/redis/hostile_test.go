package redis_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// hostile is a proxy that gives clients what deliver makes of each answer of the
// server's, whole. It may be changed; it is called by one goroutine at a time.
type hostile struct {
	addr string

	mu      sync.Mutex
	deliver func(answer string) string
}

func (h *hostile) from(deliver func(string) string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deliver = deliver
}

func honest(answer string) string { return answer }

// script reports whether an answer is a script's.
func script(answer string) bool { return strings.HasPrefix(answer, "*4\r\n:") }

func newHostile(t *testing.T, server *stores.RedisServer) *hostile {
	t.Helper()
	h := &hostile{deliver: honest}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server.Addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() { defer upstream.Close(); _, _ = io.Copy(upstream, client) })
			all.Go(func() {
				defer client.Close()
				for in := bufio.NewReader(upstream); ; {
					answer, err := readAnswer(in)
					if err != nil {
						return
					}
					h.mu.Lock()
					answer = h.deliver(answer)
					h.mu.Unlock()
					if _, err := io.WriteString(client, answer); err != nil {
						return
					}
				}
			})
		}
	})
	return h
}

// readAnswer reads one value of the protocol's, with all that is in it.
func readAnswer(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	var n int
	if strings.ContainsAny(line[:1], "$=*%>~") {
		if _, err := fmt.Sscan(line[1:], &n); err != nil {
			return "", err
		}
	}
	answer := line
	switch line[0] {
	case '$', '=':
		if n >= 0 {
			text := make([]byte, n+2)
			_, err = io.ReadFull(in, text)
			answer += string(text)
		}
		return answer, err
	case '%':
		n *= 2
	}
	for range n {
		part, err := readAnswer(in)
		if err != nil {
			return "", err
		}
		answer += part
	}
	return answer, nil
}

// hostileClient returns a client by way of h, and what makes its pool small: all goes
// over one connection, as a proxy that mixes answers up would have it.
func hostileClient(t *testing.T, h *hostile) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: h.addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// worksAgain fails the test if calls do not come right soon: a few may fail on
// what is left over in a connection.
func worksAgain(t *testing.T, d *redis.Decider) *leaderelection.RaceEntry {
	t.Helper()
	for range 20 {
		if e, err := d.ReadCurrent(t.Context()); err == nil {
			return e
		}
	}
	t.Fatal("calls fail on")
	return nil
}

// An answer that comes late is that of no later call.
func TestAnswersLate(t *testing.T) {
	h := newHostile(t, stores.Redis(t))
	d := redis.NewDecider(hostileClient(t, h), "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	var kept string
	h.from(func(a string) string { kept += a; return "" })
	_, err := d.WriteEntry(storetest.Within(t, 50*time.Millisecond), feedtest.State(2, token))
	feedtest.Passing(t, err, `"k"`, "writing", "did not answer in time")
	_, err = d.ReadCurrent(storetest.Within(t, 50*time.Millisecond))
	feedtest.Passing(t, err, `"k"`, "reading", "did not answer in time")
	h.from(func(a string) string { a, kept = kept+a, ""; return a })
	if e := worksAgain(t, d); e.ElectionNumber != 2 {
		t.Errorf("%+v", e)
	}
}

// Answers that come twice, or to another request, are believed of none: what was
// read or written is what the server has.
func TestAnswersMixedUp(t *testing.T) {
	server := stores.Redis(t)
	for name, mixUp := range map[string]func() func(string) string{
		"twice": func() func(string) string {
			return func(a string) string {
				if script(a) {
					return a + a
				}
				return a
			}
		},
		"one behind": func() func(string) string {
			last := ""
			return func(a string) string {
				if !script(a) {
					return a
				}
				if last == "" {
					last = a
				}
				a, last = last, a
				return a
			}
		},
		"the first for all": func() func(string) string {
			first := ""
			return func(a string) string {
				if script(a) && first == "" {
					first = a
				} else if script(a) {
					return first
				}
				return a
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := feedtest.Unique()
			h := newHostile(t, server)
			d, truth := redis.NewDecider(hostileClient(t, h), key, nil), redis.NewDecider(client(t, server.Addr), key, nil)
			feedtest.Write(t, truth, 1, nil)
			h.from(mixUp())
			refused := 0
			for number := uint64(2); number < 22; number++ {
				was := feedtest.Read(t, truth)
				if e, err := d.ReadCurrent(t.Context()); err != nil {
					refused++
				} else if e.Token != was.Token {
					t.Errorf("it reads %v, and %v is stored", e.Token, was.Token)
				}
				token, err := d.WriteEntry(t.Context(), feedtest.State(number, was.Token))
				now := feedtest.Read(t, truth)
				switch {
				case err != nil && errors.Is(err, leaderelection.ErrLostRace):
					t.Errorf("write %d: %v", number, err)
				case err != nil:
					refused++
				case token != now.Token:
					t.Errorf("write %d gives the token %v, and %v is stored", number, token, now.Token)
				}
			}
			t.Logf("%d answers of 40 were refused", refused)
			h.from(honest)
			worksAgain(t, d)
		})
	}
}

// What answers a script, and is not what that script answers, is no success.
func TestAnswersOfSomethingElse(t *testing.T) {
	server := stores.Redis(t)
	h := newHostile(t, server)
	d := redis.NewDecider(hostileClient(t, h), "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	for _, answer := range []string{
		"+OK\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$2\r\nOK\r\n", "*3\r\n:1\r\n$4\r\n17-x\r\n$0\r\n\r\n", "*4\r\n:1\r\n$4\r\n17-x\r\n$0\r\n\r\n$3\r\nx-1\r\n",
		"*4\r\n$1\r\n1\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n", "*4\r\n:-1\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "+PONG\r\n",
	} {
		h.from(func(a string) string {
			if script(a) {
				return answer
			}
			return a
		})
		feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), `"k"`, "writing")
		feedtest.Passing(t, feedtest.ReadError(t, d), `"k"`, "reading")
		var err error
		for _, err = range d.Changes(t.Context()) {
		}
		feedtest.Passing(t, err, `"k"`, "following")
		h.from(honest)
		token = worksAgain(t, d).Token
	}
}

// A replica's word for it belongs to the write before it.
func TestAnswersOfWaitMixedUp(t *testing.T) {
	server := stores.Redis(t)
	h := newHostile(t, server)
	d := redis.NewDecider(hostileClient(t, h), "k", &redis.Options{WaitReplicas: 1, WaitTimeout: 10 * time.Millisecond})
	for name, wait := range map[string]string{"the script's again": "", "a text": "+OK\r\n", "none": "$-1\r\n", "a negative number": ":-1\r\n"} {
		last := ""
		h.from(func(a string) string {
			if strings.HasPrefix(a, ":") { // nobody has it
				if wait == "" {
					return last
				}
				return wait
			}
			last = a
			return a
		})
		if _, err := d.WriteEntry(t.Context(), feedtest.State(1, nil)); err == nil {
			t.Errorf("%s: a write is believed that no replica has", name)
		}
		h.from(honest)
		if e, err := d.ReadCurrent(t.Context()); err == nil {
			t.Errorf("%s: a record is believed that no replica has: %+v", name, e)
		}
	}
}
