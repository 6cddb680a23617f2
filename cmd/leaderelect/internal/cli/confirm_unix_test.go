//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/c8e606e4/leaderelection"
)

// terminal is a terminal's two ends: what types, and what a program reads.
func terminal(t *testing.T) (typist, tty *os.File) {
	t.Helper()
	typist, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { typist.Close() })
	if err := unix.IoctlSetPointerInt(int(typist.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(typist.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return typist, tty
}

// On a terminal transfer asks whether there is such a candidate, and only yes is yes.
func TestTransferAsks(t *testing.T) {
	at := place(t, leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 7, TermExpiry: time.Now().Add(time.Hour), TermLength: time.Hour, Incarnation: "i"})
	for _, answer := range []string{"no\n", "\n", "y\n", "yes\n"} { // what the last one writes stays
		asked := answer == "yes\n"
		typist, tty := terminal(t)
		if _, err := typist.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		run(t.Context(), []string{"transfer", "--timeout", "300ms", at, "b"}, tty, &out, &errOut)
		out.Write(errOut.Bytes())
		if !strings.Contains(out.String(), "nobody leads for up to 1h0m0s") || strings.Contains(out.String(), "asked, but not within") != asked {
			t.Errorf("%q: %s", answer, out.String())
		}
		if _, said, _ := says(t, "status", at); strings.Contains(said, "hand over to b") != asked {
			t.Errorf("%q: then %s", answer, said)
		}
	}
}
