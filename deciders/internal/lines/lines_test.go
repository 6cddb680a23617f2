package lines_test

import (
	"net"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/lines"
)

// A connection is closed if it is silent since then, and only then.
func TestDrop(t *testing.T) {
	var l lines.Lines
	pipe := func() (ours, theirs net.Conn) {
		a, b := net.Pipe()
		t.Cleanup(func() { _ = b.Close() })
		return l.Add(a), b
	}
	silent, _ := pipe()
	alive, server := pipe()
	since := time.Now()
	answered := make(chan error, 1)
	go func() {
		_, err := server.Write([]byte{1})
		answered <- err
	}()
	if _, err := alive.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	made, _ := pipe()
	l.Drop(since)
	for name, want := range map[net.Conn]bool{silent: true, alive: false, made: false} {
		if closed := name.SetDeadline(time.Time{}) != nil; closed != want {
			t.Errorf("closed: %v, want %v (the silent one %v)", closed, want, name == silent)
		}
	}
	_ = made.Close()
	l.Drop(time.Now().Add(time.Hour))
	if alive.SetDeadline(time.Time{}) == nil {
		t.Error("one that was heard before is still open")
	}
}
