package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// kinds are the requests that clients make.
var kinds = []struct {
	method  string
	clients int
	note    string
}{
	{http.MethodGet, 4, "sent again to the next leader where the first one died over it"},
	{http.MethodPost, 2, "sent once: lost where the connection breaks with the leader"},
}

// load is the clients, and what they have seen.
type load struct {
	firsts chan firstAnswer // of each leadership
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	greatest uint64 // the greatest leadership that any answer came from
	counts   map[string]count
	stale    []string // answers that must not have come
}

type count struct{ answered, lost int }

// firstAnswer is the first answer of a leadership.
type firstAnswer struct {
	leadership uint64
	by         string
	at         time.Time
}

func newLoad() *load {
	return &load{firsts: make(chan firstAnswer, 100), counts: map[string]count{}}
}

// startLoad lets clients ask url until stop is called.
func startLoad(url string) *load {
	l := newLoad()
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	client := &http.Client{Transport: transport, Timeout: 2 * patience}
	for _, k := range kinds {
		for range k.clients {
			l.done.Go(func() {
				pause := time.NewTicker(5 * time.Millisecond)
				defer pause.Stop()
				for ctx.Err() == nil {
					l.ask(client, k.method, url)
					<-pause.C
				}
			})
		}
	}
	return l
}

// stop waits until every request has been answered.
func (l *load) stop() {
	l.cancel()
	l.done.Wait()
}

// ask makes one request.
func (l *load) ask(client *http.Client, method, url string) {
	before := l.before()
	req, err := http.NewRequest(method, url, strings.NewReader("payload"))
	if err != nil {
		l.lose(method)
		return
	}
	res, err := client.Do(req)
	if err != nil {
		l.lose(method)
		return
	}
	defer res.Body.Close()
	var leadership uint64
	var by string
	if _, err := fmt.Fscan(res.Body, &leadership, &by); err != nil || res.StatusCode != http.StatusOK {
		l.lose(method)
		return
	}
	l.take(method, before, firstAnswer{leadership: leadership, by: by, at: time.Now()})
}

// before is the greatest leadership that has answered anybody yet.
func (l *load) before() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.greatest
}

// lose counts a request without an answer.
func (l *load) lose(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[method]
	c.lost++
	l.counts[method] = c
}

// lost is how many were lost so far.
func (l *load) lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.counts {
		n += c.lost
	}
	return n
}

// take takes in an answer. Leadership before had begun when the request was sent, so
// the views of those earlier had ended: none of them may answer it.
func (l *load) take(method string, before uint64, a firstAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[method]
	c.answered++
	l.counts[method] = c
	if a.leadership < before {
		l.stale = append(l.stale, fmt.Sprintf("%s with token %d answered a %s sent after an answer with token %d", a.by, a.leadership, method, before))
	}
	if a.leadership > l.greatest {
		l.greatest = a.leadership
		l.firsts <- a
	}
}
