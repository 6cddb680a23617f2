//go:build go1.25

package lehttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// serving is a server that Serve ends.
type serving struct {
	t        *testing.T
	pipes    *routetest.Pipes
	stop     context.CancelFunc // begins to end the campaign
	campaign campaign
	ended    chan error
}

// campaign is one that has ended when it is closed.
type campaign chan struct{}

func (c campaign) Done() <-chan struct{} { return c }

func (c campaign) Wait() error { <-c; return errCampaign }

var errCampaign = errors.New("the store refuses")

func serve(t *testing.T, h http.HandlerFunc, o *lehttp.ServeOptions) *serving {
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{t: t, pipes: routetest.NewPipes(), stop: cancel, campaign: make(campaign), ended: make(chan error, 1)}
	go func() {
		s.ended <- lehttp.Serve(ctx, s.campaign, &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}, s.pipes, o)
	}()
	return s
}

// kept is a connection that is used again and again.
type kept struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (s *serving) dial() *kept {
	s.t.Helper()
	c, err := s.pipes.Dial(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return &kept{s.t, c, bufio.NewReader(c)}
}

// ask makes a request, and returns whether the answer says that the connection is closed.
func (k *kept) ask() (closes bool) {
	k.t.Helper()
	if _, err := io.WriteString(k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil {
		k.t.Fatalf("a request was lost: %v", err)
	}
	res, err := http.ReadResponse(k.r, nil)
	if err != nil {
		k.t.Fatalf("a request was lost: %v", err)
	}
	if text, err := io.ReadAll(res.Body); string(text) != "done" || err != nil {
		k.t.Errorf("%d %q %v", res.StatusCode, text, err)
	}
	return res.Close
}

// open reports whether the server has not closed the connection.
func (k *kept) open() bool {
	_ = k.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := k.r.ReadByte()
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func done(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }

// Serve ends a server in the order in which no request is lost.
func TestServeEndsInOrder(t *testing.T) {
	for name, o := range map[string]*lehttp.ServeOptions{"default": nil, "longer": {Linger: 10 * time.Second}, "none": {Linger: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lingers := 2 * time.Second
				if o != nil {
					lingers = max(o.Linger, 0)
				}
				s := serve(t, done, o)
				used, silent := s.dial(), s.dial()
				defer silent.Close()
				if used.ask() || silent.ask() {
					t.Error("a connection was closed while the campaign went on")
				}
				s.stop()
				time.Sleep(5 * time.Second)
				if !used.ask() || used.open() || !silent.open() {
					t.Error("while leadership is given up, an answer must close its connection, and no other")
				}
				time.Sleep(5 * time.Second)
				begin := time.Now()
				close(s.campaign)
				if lingers > 0 {
					time.Sleep(lingers - time.Second)
					if late := s.dial(); !late.ask() || !silent.open() {
						t.Error("after the release a request must be answered, and its connection closed, and no other")
					}
				}
				if err := <-s.ended; err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took < lingers || took > lingers+time.Second {
					t.Errorf("it has ended after %v, want %v", took, lingers)
				}
				if silent.open() {
					t.Error("a silent connection is open at the end")
				}
			})
		})
	}
}

// Requests under way are finished, for at most Finish. Their answers close their connections, too.
func TestServeFinishes(t *testing.T) {
	for takes, fails := range map[time.Duration]bool{5 * time.Second: false, time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(takes)
				w.WriteHeader(http.StatusOK)
				done(w, r)
			}, nil)
			k := s.dial()
			defer k.Close()
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				if !fails {
					if !k.ask() {
						t.Error("the connection was not closed")
					}
					return
				}
				_, _ = io.WriteString(k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
				if _, err := k.r.ReadByte(); err == nil {
					t.Error("it was answered")
				}
			}()
			time.Sleep(time.Second)
			s.stop()
			close(s.campaign)
			begin := time.Now()
			err := <-s.ended
			if took := time.Since(begin); (err != nil) != fails || took > 13*time.Second {
				t.Errorf("a request of %v: %v after %v", takes, err, took)
			}
			<-asked
			time.Sleep(time.Hour) // the handler
		})
	}
}

// If the campaign has ended by itself, its error is not lost.
func TestServeSaysWhyTheCampaignEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, done, nil)
		k := s.dial()
		close(s.campaign)
		synctest.Wait()
		if !k.ask() {
			t.Error("the connection is not closed")
		}
		if err := <-s.ended; err != errCampaign {
			t.Error(err)
		}
		s.stop()
	})
}

// A server that fails says so at once, and a handler can do all with its ResponseWriter that it could.
func TestServeFailsAndPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, done, nil)
		_ = s.pipes.Close()
		if err := <-s.ended; err == nil {
			t.Error("a listener has failed, and Serve says nothing")
		}
		s = serve(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("do")); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "ne")
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}, nil)
		k := s.dial()
		s.stop()
		if !k.ask() {
			t.Error("the connection is not closed")
		}
		s.pipes.Close()
		<-s.ended
	})
}
