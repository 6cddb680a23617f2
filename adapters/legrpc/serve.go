package legrpc

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const (
	// lingers is how long a server whose campaign has ended waits for its clients to leave.
	lingers = 5 * time.Second
	// stopsWithin is how long its last calls may take after that.
	stopsWithin = time.Second
)

// Serve serves on listener until ended is closed, and then ends the server. Use it in place of
// server.Serve, so that a restart loses no call. Pass the Done of the server's campaign, or of its
// shard.Member. The server must have the interceptors of this package.
//
//	err := legrpc.Serve(server, listener, campaign.Done())
//
// While the campaign gives up leadership, the interceptors refuse new calls, and those under way end
// under the lease. When it has ended, Serve goes on refusing calls until all clients have left: a
// channel that follows the election does so when it learns of the release or of the next leader. It
// waits at most 5 s for clients that do not follow. Then it calls GracefulStop, and after 1 s more Stop,
// since a health service's Watch would last forever.
//
// Serve returns nil when the server has ended. A campaign does not end before the handlers of its calls
// have returned, so each handler must respect its ctx. If the listener fails before, it returns that error
// at once, and the campaign goes on: then end the campaign, and wait for it.
func Serve(server *grpc.Server, listener net.Listener, ended <-chan struct{}) error {
	clients := &counted{Listener: listener, left: make(chan struct{}, 1)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(clients) }()
	select {
	case err := <-served:
		return err
	case <-ended:
	}
	late := time.NewTimer(lingers)
	defer late.Stop()
	for waits := true; waits && clients.any(); {
		select {
		case <-clients.left:
		case <-late.C:
			waits = false
		case err := <-served:
			return err
		}
	}
	stopped := make(chan struct{})
	go func() { server.GracefulStop(); close(stopped) }() // it would wait for a handler that does not end
	select {
	case <-stopped:
	case <-time.After(stopsWithin):
		server.Stop()
	}
	return <-served
}

// counted is a listener that knows how many of its connections are open.
type counted struct {
	net.Listener
	left chan struct{} // has a value when a connection was closed

	mu   sync.Mutex
	open int
}

func (c *counted) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open > 0
}

func (c *counted) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.add(1)
	return &fromClient{Conn: conn, of: c}, nil
}

// fromClient is a connection that counted counts.
type fromClient struct {
	net.Conn
	of   *counted
	once sync.Once
}

func (f *fromClient) Close() error {
	f.once.Do(func() {
		f.of.add(-1)
		select {
		case f.of.left <- struct{}{}:
		default:
		}
	})
	return f.Conn.Close()
}
