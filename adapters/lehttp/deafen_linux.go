package lehttp

import (
	"math"
	"net"
	"syscall"
)

// deafen has the kernel refuse each new connection to l, while those whose handshake has begun are still
// accepted. It reports whether it could. To close a listener resets the connections that were made and
// not yet accepted, and their clients cannot know whether a request was worked on. A while after deafen
// there are none of these.
//
// It binds the listener to a network interface that does not exist, so that no new packet is for it. That
// takes Linux 5.7, or CAP_NET_RAW.
func deafen(l net.Listener) bool {
	s, ok := l.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	const bindToIfindex = 62 // SO_BINDTOIFINDEX
	deaf := false
	err = raw.Control(func(fd uintptr) {
		deaf = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, bindToIfindex, math.MaxInt32) == nil
	})
	return err == nil && deaf
}
