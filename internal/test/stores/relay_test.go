package stores_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// A relay that is cut lets nothing through, closes nothing, and loses nothing. One that refuses closes,
// one that severs closes in the middle of a request, and one that is mute holds answers alone.
func TestRelay(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	r := stores.NewRelay(t, echo.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	send := func(c net.Conn, text string) {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(c net.Conn, text string) {
		t.Helper()
		b := make([]byte, len(text))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
			t.Fatalf("%q came back for %q: %v", b, text, err)
		}
	}
	quiet := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(make([]byte, 2)); n > 0 || !os.IsTimeout(err) {
			t.Errorf("%d bytes came through, and %v", n, err)
		}
		_ = c.SetReadDeadline(time.Time{})
	}
	ends := func(c net.Conn) {
		t.Helper()
		if got, err := io.ReadAll(c); os.IsTimeout(err) || len(got) > 1 {
			t.Errorf("%q came through, and %v", got, err)
		}
	}
	c := dial()
	send(c, "hi")
	arrives(c, "hi")
	r.Cut()
	late := dial()
	for _, c := range []net.Conn{c, late} {
		send(c, "yo")
		quiet(c)
	}
	r.Heal()
	arrives(c, "yo")
	arrives(late, "yo")
	r.Delay(50 * time.Millisecond)
	begun := time.Now()
	send(c, "hi")
	arrives(c, "hi")
	if took := time.Since(begun); took < 50*time.Millisecond {
		t.Errorf("with a delay of 50 ms an answer took %v", took)
	}
	r.Delay(0)

	r.Mute()
	send(c, "yo")
	quiet(c)
	r.Heal()
	arrives(c, "yo")

	r.Sever(3)
	send(c, "hi")
	arrives(c, "hi")
	send(c, "yo")
	ends(c)
	r.Heal()

	r.Refuse()
	ends(late)
	if c, err := net.Dial("tcp", r.Addr); err == nil {
		c.Close()
		t.Error("a relay that refuses was reached")
	}
	r.Heal()
	c = dial()
	send(c, "hi")
	arrives(c, "hi")

	r.Cut() // the end of the test closes what is held
	send(c, "yo")
	dial()
}
