// Package routetest is what the tests of the routers share.
package routetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
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
		query := make([]byte, binary.BigEndian.Uint16(size))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		out := answer(query, ip)
		if out == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}

// answer returns the message that answers query: with ip where it asks for an IPv4 address,
// else with nothing. It returns nil if query is no query of one name. See RFC 1035, section 4.1.
func answer(query []byte, ip [4]byte) []byte {
	const header, typeA, classIN = 12, 1, 1
	if len(query) < header {
		return nil
	}
	name := bytes.IndexByte(query[header:], 0) // no label holds a zero byte, and a query compresses nothing
	end := header + name + 1 + 4
	if name < 0 || len(query) < end {
		return nil
	}
	big := binary.BigEndian
	out := append([]byte{}, query[:end]...)
	big.PutUint16(out[2:], 0x8180) // an answer, without an error
	big.PutUint16(out[6:], 0)      // answers
	big.PutUint16(out[8:], 0)      // authorities
	big.PutUint16(out[10:], 0)     // additional records
	if big.Uint16(out[end-4:]) == typeA {
		big.PutUint16(out[6:], 1)
		out = big.AppendUint16(out, 0xc000|header) // the name asked for
		out = big.AppendUint16(out, typeA)
		out = big.AppendUint16(out, classIN)
		out = big.AppendUint32(out, 1) // seconds to live
		out = big.AppendUint16(out, uint16(len(ip)))
		out = append(out, ip[:]...)
	}
	return out
}
