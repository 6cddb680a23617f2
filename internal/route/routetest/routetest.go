// Package routetest is what the tests of the routers share.
package routetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Certificate returns a certificate for name, signed by itself, which pool then trusts.
func Certificate(t testing.TB, name string, pool *x509.CertPool) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Pipes is a listener that is dialled through memory, and can be cut: from then on nothing
// passes, and neither side gets an error.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	cut   atomic.Bool
}

// NewPipes returns one that is not cut.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// Cut cuts it.
func (p *Pipes) Cut() { p.cut.Store(true) }

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Dial makes a connection.
func (p *Pipes) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return &cuttable{here, p}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// cuttable is the client's side.
type cuttable struct {
	net.Conn
	p *Pipes
}

func (c *cuttable) Write(b []byte) (int, error) {
	if c.p.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Load is what requests under way to a leader have found out. Its methods may be called by any number of
// goroutines at once.
type Load struct {
	Greatest atomic.Uint64 // the greatest leadership that any answer came from
	Answered atomic.Int64
	mu       sync.Mutex
	faults   []string
}

// Answer notes an answer by a leadership to a request that was sent when before was the greatest. An answer
// from an earlier one is a fault: it is from a process whose view has ended.
func (l *Load) Answer(before, number uint64) {
	if number < before {
		l.Fault("answered by leadership %d after one by leadership %d", number, before)
	}
	for old := l.Greatest.Load(); old < number && !l.Greatest.CompareAndSwap(old, number); old = l.Greatest.Load() {
	}
	l.Answered.Add(1)
}

// Fault notes what is wrong.
func (l *Load) Fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// Report fails t by what is wrong, a dozen at most.
func (l *Load) Report(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.faults)
	faults := slices.Compact(l.faults)
	for _, f := range faults[:min(12, len(faults))] {
		t.Error(f)
	}
}
