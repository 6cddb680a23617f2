//go:build go1.25

package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a reader that takes something while takes is closed.
type pipe struct {
	mu    sync.Mutex
	takes chan struct{} // closed while it takes everything
	err   error         // why it refuses everything
	text  strings.Builder
}

func (p *pipe) Write(line []byte) (int, error) {
	p.mu.Lock()
	takes, err := p.takes, p.err
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	<-takes
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

func (p *pipe) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *pipe) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func newLog() (*Log, *pipe) {
	p := &pipe{takes: make(chan struct{})}
	return &Log{Out: p, Lost: func(lines int) []byte { return fmt.Appendf(nil, "lost %d\n", lines) }}, p
}

// A log that nobody reads takes no time. Lines that do not fit are counted, and when the log is read
// again, it has the count in their place, even if nothing more is logged.
func TestNobodyReadsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog()
		begin := time.Now()
		line := []byte("x\n")
		for i := range mostLines + 8 { // one of them is being written
			line = fmt.Appendf(line[:0], "line %d\n", i) // the log keeps a copy
			if n, err := l.Write(line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
			synctest.Wait()
		}
		if l.Flush(time.Second); time.Since(begin) != time.Second {
			t.Errorf("the end took %v", time.Since(begin))
		}
		close(p.takes)
		synctest.Wait()
		l.Write([]byte("after\n"))
		l.Flush(0)
		synctest.Wait()
		text := p.all()
		if n := strings.Count(text, "line "); n != mostLines+1 || !strings.HasSuffix(text, fmt.Sprintf("line %d\nlost 7\nafter\n", mostLines)) {
			t.Errorf("%d lines, and at the end %q", n, text[max(0, len(text)-60):])
		}
		if time.Since(begin) != time.Second {
			t.Errorf("all took %v", time.Since(begin))
		}
	})
}

// Lines that are refused are lost, and counted before the next that is taken.
func TestTheLogIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog()
		close(p.takes)
		p.refuse(syscall.ENOSPC)
		for range 3 {
			l.Write([]byte("nowhere\n"))
			synctest.Wait()
		}
		p.refuse(nil)
		l.Write([]byte("there is room\n"))
		synctest.Wait()
		if got := p.all(); got != "lost 3\nthere is room\n" {
			t.Errorf("%q", got)
		}
	})
}

// Do waits for its turn and for the work, until its ctx ends; what has not begun by then is not done, and
// what has begun delays what comes after it.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Box
		hangs := make(chan struct{})
		begin := time.Now()
		if err := b.Within(t.Context(), time.Second, func() error { <-hangs; return nil }); !errors.Is(err, ErrHangs) {
			t.Errorf("%v", err)
		}
		if err := b.Within(t.Context(), time.Second, func() error { panic("its time is over") }); !errors.Is(err, ErrHangs) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(syscall.EINTR)
		if err := b.Do(ctx, func() error { panic("its ctx has ended") }); !errors.Is(err, syscall.EINTR) {
			t.Errorf("%v", err)
		}
		if b.Put(0, func() {}) || !b.Put(1, func() {}) || b.Put(1, func() {}) {
			t.Error("not one waits")
		}
		if b.Flush(time.Second) || time.Since(begin) != 3*time.Second {
			t.Errorf("it took %v", time.Since(begin))
		}
		close(hangs)
		if err := b.Do(t.Context(), func() error { return syscall.ENOSPC }); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v", err)
		}
		if !b.Flush(0) && !b.Flush(time.Second) {
			t.Error("something is left to do")
		}
	})
}
