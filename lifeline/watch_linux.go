package lifeline

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// watches reports deaths. The kernel reports when a file that was open for writing is closed
// (inotify). If inotify is not to be had, the files are polled.
type watches struct {
	mu      sync.Mutex
	inotify *os.File // nil: none yet
	polling bool     // a goroutine polls what inotify does not watch
	closing bool
	ended   chan struct{} // closed with it
	all     map[*watch]struct{}
	done    sync.WaitGroup
}

// watch is one call of OnDeath.
type watch struct {
	name string
	tell func()
	wd   int32 // inotify's number for it; 0: it is polled
}

// pollEvery is how often files are looked at that inotify does not watch: its limits
// (fs.inotify.max_user_instances and max_user_watches) may be used up.
const pollEvery = 25 * time.Millisecond

// OnDeath calls tell once, in its own goroutine, when the death of the incarnation name is
// proved. If it is proved already, OnDeath calls tell at once. Call stop to end the watch; tell
// may still be running then. All watches of a Lifeline together cost one file descriptor and one
// goroutine, and no work while nobody dies. If the incarnation has no file here, tell is never
// called.
func (l *Lifeline) OnDeath(name string, tell func()) (stop func()) {
	w := &watch{name: name, tell: tell}
	l.add(w)
	if l.Dead(name) { // looked at after the watch has begun, so that nothing is missed between
		l.report(w)
	}
	return func() { l.drop(w) }
}

// add begins the watch w.
func (l *Lifeline) add(w *watch) {
	if checkName(w.name) != nil {
		return
	}
	fd, err := openat(int(l.dir.Fd()), w.name, openNameFlags, 0)
	if err != nil {
		return // no file, so no proof, ever: a name is there before anybody knows of it
	}
	defer syscall.Close(fd)
	s := &l.watches
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	if s.all == nil {
		s.all, s.ended = map[*watch]struct{}{}, make(chan struct{})
	}
	s.all[w] = struct{}{}
	if s.inotify == nil {
		if n, err := inotifyInit(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK); err == nil {
			s.inotify = os.NewFile(uintptr(n), "inotify")
			s.done.Add(1)
			go l.readEvents(s.inotify)
		}
	}
	if s.inotify != nil {
		if c, err := s.inotify.SyscallConn(); err == nil {
			_ = c.Control(func(n uintptr) {
				if wd, err := syscall.InotifyAddWatch(int(n), "/proc/self/fd/"+strconv.Itoa(fd), syscall.IN_CLOSE_WRITE); err == nil {
					w.wd = int32(wd)
				}
			})
		}
	}
	if w.wd == 0 && !s.polling {
		s.polling = true
		s.done.Add(1)
		go l.poll()
	}
}

// inotifyInit is syscall.InotifyInit1, but for tests of what happens without it.
var inotifyInit = syscall.InotifyInit1

// readEvents reads the kernel's reports, until the descriptor is closed.
func (l *Lifeline) readEvents(inotify *os.File) {
	defer l.watches.done.Done()
	buffer := make([]byte, 4096)
	for {
		n, err := inotify.Read(buffer)
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			continue
		}
		for b := buffer[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			size := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			b = b[min(size, len(b)):]
			if mask&(syscall.IN_CLOSE_WRITE|syscall.IN_Q_OVERFLOW) != 0 {
				l.wasClosed(wd, mask&syscall.IN_Q_OVERFLOW != 0)
			}
		}
	}
}

// wasClosed looks at the files of a watch descriptor, or at all of them.
func (l *Lifeline) wasClosed(wd int32, all bool) {
	s := &l.watches
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.all {
		if (w.wd == wd || all) && !s.closing {
			s.done.Add(1)
			go l.lookAgain(w)
		}
	}
}

// lookAgain waits for the lock of a file that was closed: the kernel reports the close just before
// it unlocks the file. If the file is still locked after some seconds, another process has closed
// it.
func (l *Lifeline) lookAgain(w *watch) {
	defer l.watches.done.Done()
	for pause := 100 * time.Microsecond; pause < 2*time.Second; pause *= 2 {
		if l.Dead(w.name) {
			l.report(w)
			return
		}
		select {
		case <-time.After(pause):
		case <-l.watches.ended:
			return
		}
	}
}

// poll looks at the files that inotify does not watch, as long as there are any.
func (l *Lifeline) poll() {
	s := &l.watches
	defer s.done.Done()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ended:
		}
		s.mu.Lock()
		var of []*watch
		for w := range s.all {
			if w.wd == 0 {
				of = append(of, w)
			}
		}
		if len(of) == 0 || s.closing {
			s.polling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for _, w := range of {
			if l.Dead(w.name) {
				l.report(w)
			}
		}
	}
}

// report calls tell for a proved death, once.
func (l *Lifeline) report(w *watch) {
	if l.drop(w) {
		go w.tell()
	}
}

// drop ends a watch, and reports whether the watch was still there. Inotify forgets a file that is
// gone by itself. A file that other watches share stays watched for them.
func (l *Lifeline) drop(w *watch) bool {
	s := &l.watches
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, runs := s.all[w]; !runs {
		return false
	}
	delete(s.all, w)
	if w.wd == 0 || s.inotify == nil {
		return true
	}
	for o := range s.all {
		if o.wd == w.wd {
			return true
		}
	}
	if c, err := s.inotify.SyscallConn(); err == nil {
		_ = c.Control(func(n uintptr) { _, _ = syscall.InotifyRmWatch(int(n), uint32(w.wd)) })
	}
	return true
}

func (s *watches) close() {
	s.mu.Lock()
	if !s.closing && s.all != nil {
		close(s.ended)
	}
	s.closing = true
	clear(s.all)
	if s.inotify != nil {
		s.inotify.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}
