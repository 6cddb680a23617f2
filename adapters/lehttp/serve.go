package lehttp

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/internal/route"
)

// ServeOptions are the settings of [Serve]. The zero value is right for most.
type ServeOptions struct {
	// Linger is how long the server goes on after the campaign has ended. Choose it longer than
	// load balancers need to notice that /readyz fails (see Probes), and than routers need to
	// learn of the release. Zero means 2 s, negative none.
	Linger time.Duration
	// Finish is how long requests may take after that. Those that are not answered by then are
	// broken off. Zero means 10 s.
	Finish time.Duration
}

// Ending is what [Serve] ends with: a *leaderelection.Campaign or a *shard.Member.
type Ending interface {
	Done() <-chan struct{}
	Wait() error
}

// Serve serves HTTP in a candidate of an election, or in a member of a group, and ends so that no
// request is lost. It ends by itself when the campaign has ended:
//
//  1. When ctx has ended, leadership is being given up. Each answer says "Connection: close", so that
//     its client makes a new connection, perhaps to another process. Nothing is refused.
//  2. When the campaign has ended, the leadership is released. For the time of Linger the server goes
//     on, and its handlers pass what still comes to the next leader (see RequireOptions.Otherwise).
//  3. It takes no new connections, and closes those that were silent since.
//  4. It returns when all requests were answered, for at most Finish.
//
// Ctx is the one with which the campaign, or the member, was started, and whose end ends it. Routers
// must outlive Serve: see [Follow].
//
//	campaign, err := config.Start(ctx)
//	...
//	err = lehttp.Serve(ctx, campaign, &http.Server{Handler: mux}, listener, nil)
//
// Serve wraps the server's Handler, and closes the listener. If the server has a TLSConfig with
// certificates, it serves HTTPS.
//
// Serve returns nil after an end that ctx has begun, and what the campaign's Wait returns if that has
// ended by itself. It returns an error if requests were broken off, or if the server has failed. In the
// last case the campaign still runs.
func Serve(ctx context.Context, campaign Ending, server *http.Server, listener net.Listener, opts *ServeOptions) error {
	o := route.Or(opts)
	ending, giveUp := context.WithCancel(ctx)
	defer giveUp()
	server.Handler = closing(ending, server.Handler)
	failed := make(chan error, 1)
	go func() {
		if t := server.TLSConfig; t != nil && (len(t.Certificates) > 0 || t.GetCertificate != nil || t.GetConfigForClient != nil) {
			failed <- server.ServeTLS(listener, "", "")
		} else {
			failed <- server.Serve(listener)
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-campaign.Done():
	}
	giveUp()
	linger := time.NewTimer(cmp.Or(o.Linger, 2*time.Second))
	defer linger.Stop()
	select {
	case err := <-failed:
		return err
	case <-linger.C:
	}
	if deafen(listener) {
		linger.Reset(handshake)
		<-linger.C
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(o.Finish, 10*time.Second))
	defer cancel()
	if err := server.Shutdown(finish); err != nil {
		_ = server.Close()
		return fmt.Errorf("leaderelection: the server has ended, and has broken off requests: %w", err)
	}
	<-failed
	if ctx.Err() != nil {
		return nil
	}
	return campaign.Wait()
}

// handshake is how long a connection may take to be made that was begun before deafen.
const handshake = 200 * time.Millisecond

// closing returns h, or the default handler. When ctx has ended, its answers say that their connection
// is closed.
func closing(ctx context.Context, h http.Handler) http.Handler {
	if h == nil {
		h = http.DefaultServeMux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &closer{ResponseWriter: w, ctx: ctx}
		h.ServeHTTP(c, r)
		c.begin()
	})
}

// closer is the ResponseWriter of closing.
type closer struct {
	http.ResponseWriter
	ctx   context.Context
	begun atomic.Bool
}

// begin is called before the header leaves.
func (c *closer) begin() {
	if !c.begun.Swap(true) && c.ctx.Err() != nil {
		c.Header().Set("Connection", "close")
	}
}

func (c *closer) WriteHeader(code int) {
	if code >= http.StatusOK {
		c.begin()
	}
	c.ResponseWriter.WriteHeader(code)
}

func (c *closer) Write(p []byte) (int, error) {
	c.begin()
	return c.ResponseWriter.Write(p)
}

// ReadFrom lets a file be sent by the kernel.
func (c *closer) ReadFrom(from io.Reader) (int64, error) {
	c.begin()
	return io.Copy(c.ResponseWriter, from)
}

// Unwrap is for http.ResponseController.
func (c *closer) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Flush and Hijack are for handlers that ask for these interfaces.
func (c *closer) Flush() { _ = c.FlushError() }

// FlushError is Flush for http.ResponseController.
func (c *closer) FlushError() error {
	c.begin()
	return http.NewResponseController(c.ResponseWriter).Flush()
}

func (c *closer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.begun.Store(true)
	return http.NewResponseController(c.ResponseWriter).Hijack()
}
