// Package routetest is what the tests of the routers share.
package routetest

import (
	"context"
	"io"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolve makes every name resolve to ip, until the test ends.
func Resolve(t testing.TB, ip [4]byte) {
	t.Helper()
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go answerDNS(there, ip)
		return here, nil
	}}
}

// answerDNS says that every name is at ip, over a stream.
func answerDNS(conn net.Conn, ip [4]byte) {
	defer conn.Close()
	for {
		size := make([]byte, 2)
		if _, err := io.ReadFull(conn, size); err != nil {
			return
		}
		raw := make([]byte, int(size[0])<<8|int(size[1]))
		var m dnsmessage.Message
		if _, err := io.ReadFull(conn, raw); err != nil || m.Unpack(raw) != nil {
			return
		}
		m.Response, m.Additionals = true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: ip}}}
		}
		out, err := m.Pack()
		if err != nil {
			return
		}
		if _, err := conn.Write(append([]byte{byte(len(out) >> 8), byte(len(out))}, out...)); err != nil {
			return
		}
	}
}
