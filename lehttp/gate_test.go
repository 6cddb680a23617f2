//go:build go1.25

package lehttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// campaigning is a candidate that leads a new election.
func campaigning(t *testing.T) (*le.Campaign, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := le.Config{Decider: memory.New(nil), LeaderID: "a", MaxClockSkew: S}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for !c.View().ValueInFuture() {
		time.Sleep(time.Millisecond)
	}
	return c, cancel
}

// A request that RequireLeader has admitted finishes under the lease, though the program has no lock,
// even if the handler begins late, panics, or has a safe method.
func TestAdmittedRequestsKeepTheLease(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s panics=%v", method, panics), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, stop := campaigning(t)
					h := lehttp.RequireLeader(c, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						stop() // before it has done anything
						time.Sleep(10 * time.Second)
						if view := le.ViewFrom(r.Context()); !view.ValueInFuture() || r.Context().Err() != nil {
							t.Errorf("10 s after leadership began to be given up, may act: %v, ctx: %v", view.ValueInFuture(), context.Cause(r.Context()))
						}
						if panics {
							panic(http.ErrAbortHandler)
						}
						_, _ = io.WriteString(w, "done")
					}))
					w := httptest.NewRecorder()
					func() {
						defer func() {
							if p := recover(); p != nil && p != http.ErrAbortHandler {
								panic(p)
							}
						}()
						h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
					}()
					if !panics && w.Body.String() != "done" {
						t.Errorf("%d %q", w.Code, w.Body)
					}
					begin := time.Now()
					<-c.Done()
					if took := time.Since(begin); took > time.Millisecond {
						t.Errorf("released %v after the request had returned", took)
					}
				})
			})
		}
	}
}

// While leadership is being given up nothing more is admitted, and a request that runs on for longer
// than DrainTimeout loses the lease, its ctx and its answer.
func TestAdmittedRequestOverrunsTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := campaigning(t)
		asked := false
		var h http.Handler
		h = lehttp.RequireLeader(c, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked {
				t.Error("a request was admitted while leadership was being given up")
				return
			}
			asked = true
			begin := time.Now()
			stop()
			time.Sleep(time.Second)
			second := httptest.NewRecorder()
			h.ServeHTTP(second, httptest.NewRequest(http.MethodGet, "/", nil))
			if second.Header().Get("Leaderelection-Not-Leading") != "refused" {
				t.Errorf("%d %q", second.Code, second.Body)
			}
			<-r.Context().Done()
			if took := time.Since(begin); took < le.DefaultTermLength || took > 2*le.DefaultTermLength+time.Second {
				t.Errorf("the ctx has ended after %v", took)
			}
			if cause := context.Cause(r.Context()); cause != le.ErrNotLeading {
				t.Error(cause)
			}
			_, _ = io.WriteString(w, "too late")
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Header().Get("Leaderelection-Not-Leading") != "lost" {
			t.Errorf("%d %q", w.Code, w.Body)
		}
		<-c.Done()
	})
}

// A stream does not hold up the next leader: its ctx ends, and what was hijacked is closed, within a
// second after leadership began to be given up. The lease is kept until the handler has returned.
func TestStreamsEndWhenLeadershipIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		begin  func(w http.ResponseWriter) (ended func(ctx context.Context))
		drains time.Duration
	}{
		"events": {http.MethodGet, func(w http.ResponseWriter) func(context.Context) {
			_, _ = io.WriteString(w, "event")
			_ = http.NewResponseController(w).Flush()
			return func(ctx context.Context) { <-ctx.Done() }
		}, time.Second},
		"hijacked": {http.MethodPost, func(w http.ResponseWriter) func(context.Context) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			return func(context.Context) {
				if _, err := io.Copy(io.Discard, conn); err == nil {
					panic("the client has ended it")
				}
				if _, err := conn.Write([]byte("x")); err == nil {
					panic("it may be written to")
				}
			}
		}, time.Second},
		"a flushed answer to POST": {http.MethodPost, func(w http.ResponseWriter) func(context.Context) {
			_ = http.NewResponseController(w).Flush()
			return func(ctx context.Context) {
				select {
				case <-ctx.Done():
					panic("the handler cannot finish")
				case <-time.After(15 * time.Second): // 5 s of them while leadership is being given up
				}
			}
		}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				campaign, stop := campaigning(t)
				begun, returned := make(chan struct{}), make(chan struct{})
				view := campaign.View()
				h := lehttp.RequireLeader(campaign, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					ended := c.begin(w)
					close(begun)
					ended(r.Context())
					time.Sleep(time.Second)
					if !view.ValueInFuture() {
						t.Error("the lease was not kept until the handler had returned")
					}
				}))
				near, far := net.Pipe()
				defer far.Close()
				go h.ServeHTTP(&hijackable{httptest.NewRecorder(), near}, httptest.NewRequest(c.method, "/", nil))
				<-begun
				time.Sleep(10 * time.Second)
				select {
				case <-returned:
					t.Fatal("it has ended while its process leads")
				default:
				}
				begin := time.Now()
				stop()
				<-returned
				if took := time.Since(begin) - time.Second; took > c.drains {
					t.Errorf("it has ended after %v", took)
				}
				<-campaign.Done()
			})
		})
	}
}

// hijackable is a recorder whose connection can be taken.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}
