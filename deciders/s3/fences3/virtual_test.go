//go:build go1.25

package fences3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3/fences3"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Leaders of successive leaderships, each of which goes on writing long after its term,
// over connections on which anything goes wrong, by seed and in virtual time: the
// order in which the server accepted writes never goes back, and what Put says of
// each is true.
func TestSeeds(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, seed+1) })
		})
	}
}

// ledger is a server, and the writes that it accepted, in order.
type ledger struct {
	http.Handler
	mu       sync.Mutex
	contents []string
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	l.Handler.ServeHTTP(w, r)
	// Transport's is a recorder.
	if r.Method == http.MethodPut && w.(*httptest.ResponseRecorder).Code == http.StatusOK && len(body) > 0 {
		l.contents = append(l.contents, string(body))
	}
}

func (l *ledger) accepted() []string { l.mu.Lock(); defer l.mu.Unlock(); return l.contents }

// number is that of the token in a content.
func number(t *testing.T, content string) leaderelection.ElectionNumber {
	t.Helper()
	_, after, _ := strings.Cut(content, "fencing(")
	text, _, _ := strings.Cut(after, ")")
	token, err := fence.ParseToken(text)
	if err != nil {
		t.Errorf("%q: %v", content, err)
	}
	return token.Number
}

// outcome is what Put said of a content.
type outcome struct {
	token   fence.Token
	content string
	err     error
}

func play(t *testing.T, seed uint64) {
	server := &ledger{Handler: fakes3.Handler()}
	calm := client("http://s3.example", &httpfault.Transport{Handler: server}, quick())
	if _, err := calm.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatal(err)
	}
	const leaderships, term = 4, 5 * time.Second
	var mu sync.Mutex
	var outcomes []outcome
	var wg sync.WaitGroup
	for leadership := range uint64(leaderships) {
		for writer := range uint64(2) {
			rng := rand.New(rand.NewPCG(seed, 2*leadership+writer))
			w := &httpfault.Transport{Handler: server, Fault: storm(rng)}
			var retryer aws.Retryer = aws.NopRetryer{}
			if rng.IntN(2) == 0 {
				retryer = quick()
			}
			c := client("http://s3.example", w, retryer)
			wg.Go(func() {
				time.Sleep(time.Duration(leadership) * term)
				for end := time.Now().Add(2*term + time.Duration(rng.Int64N(int64(2*term)))); time.Now().Before(end); {
					o := outcome{token: fencetest.Orders(leadership + 1)}
					o.content = fmt.Sprintf("%s of writer %d at %v", fences3.Mark(o.token), writer, time.Now().UnixNano())
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.Int64N(int64(4*time.Second))))
					o.err = one{c, "k", nil}.Put(ctx, o.token, o.content)
					cancel()
					mu.Lock()
					outcomes = append(outcomes, o)
					mu.Unlock()
					time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				}
			})
		}
	}
	wg.Wait()
	time.Sleep(time.Minute) // what was abandoned arrives
	last := fencetest.Orders(leaderships)
	if err := (one{calm, "k", nil}).Put(t.Context(), last, fences3.Mark(last)+" in calm weather"); err != nil {
		t.Error(err)
	}
	judge(t, server.accepted(), outcomes)
}

// storm lets go wrong a random share of what a leader sends; the share of some is
// none.
func storm(rng *rand.Rand) func(*http.Request) httpfault.Fault {
	var mu sync.Mutex
	bad := max(0, rng.Float64()*0.8-0.2)
	return func(*http.Request) httpfault.Fault {
		mu.Lock()
		defer mu.Unlock()
		some := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
		f := httpfault.Fault{Request: some(100 * time.Millisecond), Answer: some(100 * time.Millisecond)}
		if rng.Float64() >= bad {
			return f
		}
		f.Silent = rng.IntN(2) == 0
		switch rng.IntN(7) {
		case 0:
			f.LoseRequest = true
		case 1, 2:
			f.LoseAnswer = true
		case 3:
			f.Request = some(20 * time.Second) // as of a process that is stopped there
		case 4:
			f.Answer = some(20 * time.Second)
		case 5:
			f.Status, f.Body = http.StatusServiceUnavailable, "<Error><Code>SlowDown</Code></Error>"
		case 6:
			f.Garble = true
		}
		return f
	}
}

// judge compares what was accepted with what Put said.
func judge(t *testing.T, accepted []string, outcomes []outcome) {
	t.Helper()
	greatest, at := leaderelection.NoElections, map[string]int{}
	for i, content := range accepted {
		n := number(t, content)
		if n < greatest {
			t.Errorf("%q was accepted after a write under %d", content, greatest)
		}
		greatest, at[content] = n, i+1
	}
	var done, stale, unknown int
	for _, o := range outcomes {
		switch {
		case o.err == nil:
			if done++; at[o.content] == 0 {
				t.Errorf("%q is said to be written, and was not", o.content)
			}
		case errors.Is(o.err, fence.ErrStale):
			if stale++; at[o.content] == len(accepted) || o.token.Number == greatest {
				t.Errorf("%q is said to be stale: %v", o.content, o.err)
			}
		default:
			unknown++
		}
	}
	t.Logf("%d accepted; %d done, %d stale, %d unknown", len(accepted), done, stale, unknown)
	if done == 0 {
		t.Error("nothing was ever done")
	}
}
