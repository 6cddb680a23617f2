package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
)

// serialise passes the commands that arrive on l on to the server at addr, each
// when the one before it, on whatever connection, has been answered.
func serialise(l net.Listener, addr string) {
	var turn sync.Mutex
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", addr)
			if err != nil {
				slog.Error("serialise", "err", err)
				return
			}
			defer server.Close()
			for err == nil {
				err = pass(&turn, client, server)
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				slog.Debug("serialise", "err", err)
			}
		}()
	}
}

// pass passes one command on, and its answer back.
func pass(turn *sync.Mutex, client, server io.ReadWriter) error {
	command, err := message(client)
	if err != nil {
		return err
	}
	answer, err := func() ([]byte, error) {
		turn.Lock()
		defer turn.Unlock()
		if _, err := server.Write(command); err != nil {
			return nil, err
		}
		if !answered(command) {
			return nil, nil
		}
		return message(server)
	}()
	if err != nil {
		return err
	}
	_, err = client.Write(answer)
	return err
}

// message reads one message of MongoDB's wire protocol: its length, in little
// endian, is its first four bytes.
func message(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < 16 || n > 48_000_000 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m := append(make([]byte, 0, n), head[:]...)[:n]
	_, err := io.ReadFull(r, m[4:])
	return m, err
}

// answered reports whether a command is answered: all are but an OP_MSG with the
// flag moreToCome.
func answered(m []byte) bool {
	const opMsg, moreToCome = 2013, 1 << 1
	return len(m) < 20 || binary.LittleEndian.Uint32(m[12:]) != opMsg || binary.LittleEndian.Uint32(m[16:])&moreToCome == 0
}
