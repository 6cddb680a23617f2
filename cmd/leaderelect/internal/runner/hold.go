package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// HolderConfig is how to lead without a command.
type HolderConfig struct {
	Times      Times
	ExpiryFile string    // empty: none
	Out        io.Writer // gets the fencing token
	Logger     *slog.Logger
	Begun      func()          // it leads, and has said so
	Failed     func(error)     // it could not say so: the lease is released
	Stopped    context.Context // ends when this program is asked to end
	Waits      bool            // somebody reads Out, and ends the work when leadership is to be given up
	Lost       func(error)     // it does not lead any more, though nobody asked this program to end
}

// Holder leads for one leadership, for the program that has started this one. Elected is its
// OnElected.
type Holder struct {
	nudge
	c    HolderConfig
	file *expiryFile
	out  outbox.Box // of what is written to c.Out
}

// NewHolder returns one.
func NewHolder(c HolderConfig) *Holder {
	return &Holder{c: c, nudge: make(nudge, 1), file: newExpiryFile(c.ExpiryFile)}
}

// Check reports what would keep it from leading.
func (h *Holder) Check() error {
	if h.c.ExpiryFile == "" {
		return nil
	}
	return h.file.try()
}

// Elected is the one leadership. It returns when somebody has asked this program to end: the
// work is over then, and the lease is released. If leadership is to be given up by another's
// request, that is told (EndLine), and the lease is kept, for the DrainTimeout, until this program
// is asked to end. If that does not happen, or leadership is lost, the work goes on until this program
// has ended, and a little longer: so it does not return, and the lease runs out by itself.
func (h *Holder) Elected(ctx context.Context, view *leaderelection.TimeView) {
	alarm, err := proc.NewAlarm()
	if err != nil {
		h.c.Failed(err)
		return
	}
	defer alarm.Close()
	end := view.Get()
	err = h.begin(ctx, view.ElectionNumber(), end)
	var failed error
	switch {
	case err == nil:
		h.c.Begun()
		err = h.hold(ctx, view, end, alarm)
	case h.c.Stopped.Err() != nil:
		err = nil
	case ctx.Err() != nil:
		err = fmt.Errorf("leadership is over: %w", context.Cause(ctx))
	case !errors.Is(err, outbox.ErrHangs): // nobody knows that this process leads
		failed, err = err, nil
	}
	if err == nil {
		err = h.remove()
	}
	if err != nil {
		h.c.Lost(errors.Join(failed, err))
		select {}
	}
	if failed != nil {
		h.c.Failed(failed)
	}
}

// begin says that this process leads. It has until the grace before the view's end for that: what is
// written later would say so to somebody who has no time left.
func (h *Holder) begin(ctx context.Context, number leaderelection.ElectionNumber, end time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.c.Stopped, func() { cancel(context.Cause(h.c.Stopped)) })()
	due := h.due(end)
	if h.c.ExpiryFile != "" {
		if err := h.file.begin(ctx, due.Left(), end); err != nil {
			return err
		}
	}
	if err := h.out.Within(ctx, due.Left(), func() error {
		_, err := fmt.Fprintln(h.c.Out, uint64(number))
		return err
	}); err != nil {
		return fmt.Errorf("saying that this process leads: %w", err)
	}
	return nil
}

// remove takes the file away. While that is not known the lease must not be released: the file says that
// somebody may act, until the term is over.
func (h *Holder) remove() error {
	if h.c.ExpiryFile == "" {
		return nil
	}
	if err := h.file.remove(h.file.patience); err != nil {
		return fmt.Errorf("the lease is not released, but runs out, since a file may say that it goes on: %w", err)
	}
	return nil
}

// EndLine is printed when the leader is asked to hand over, or is not to lead any more: the work is
// to be ended, and then this program. It is for the reader of what this program prints.
const EndLine = "end"

// due is when this process must end if the view does at end: the grace before that, and the margin, in which
// it says why.
func (h *Holder) due(end time.Time) proc.Deadline {
	return proc.At(end, h.c.Times.Span).Sub(h.c.Times.Grace + h.c.Times.Margin)
}

// hold keeps on until this program is asked to end: nil. Else until less than the grace is left of
// the view, or that is over.
func (h *Holder) hold(ctx context.Context, view *leaderelection.TimeView, end time.Time, alarm *proc.Alarm) error {
	ended := ctx.Done()
	for {
		if next := view.Get(); next.After(end) {
			end = next
			if h.c.ExpiryFile != "" {
				h.file.tell(end, h.c.Logger)
			}
		}
		due := h.due(end)
		switch cause := context.Cause(ctx); {
		case h.c.Stopped.Err() != nil && view.ValueInFuture():
			return nil
		case cause != nil && !view.ValueInFuture():
			return fmt.Errorf("leadership is over: %w", cause)
		case cause != nil && !h.c.Waits:
			return fmt.Errorf("leadership is over: %w", cause)
		case cause != nil && ended != nil:
			ended = nil
			h.c.Logger.Warn("leadership is to be given up: end the work and then this program, so that it releases the lease", "cause", cause)
			h.out.Put(1, func() { _, _ = fmt.Fprintln(h.c.Out, EndLine) }) // who does not read it finds out by the end of this program
		case cause != nil && due.Left() <= 0:
			return fmt.Errorf("leadership is over, and this program was not asked to end in time: %w", cause)
		case due.Left() <= 0:
			return fmt.Errorf("the lease was not extended in time: it ends in %v", time.Until(end).Round(time.Millisecond))
		}
		alarm.Set(due)
		select {
		case <-ended:
		case <-h.c.Stopped.Done():
		case <-h.nudge:
		case <-alarm.C:
		}
	}
}

// expiryFile tells a command until when it may act as leader. It is replaced as a
// whole, so that a reader never finds half of it.
//
//	1790000000
//	2026-09-21T13:46:40.123456789Z
//
// The first line is in whole seconds since 1970, rounded down, for date +%s.
//
// Its file system may hang. So all that is done to the file is done by the box, one thing after
// another: begin and remove wait for it, for a while, and tell does not. An extension that could not
// be written leaves a time that is too early, which is safe; a command that must not begin without the
// file, or a lease that must not be released while the file says that somebody may act, waits to know.
type expiryFile struct {
	path     string        // as it was given; empty: one is made
	patience time.Duration // in which it is to be made
	box      outbox.Box

	// Of the box's goroutine, and known to others when begin has succeeded:
	file string
	own  string // a directory to remove, too
	says bool   // it was written

	newest  atomic.Pointer[time.Time] // that is to be written
	writing atomic.Int32              // writes that have not ended
	late    atomic.Bool               // it has been said that they do not end
}

func newExpiryFile(path string) *expiryFile {
	return &expiryFile{path: path, patience: 2 * time.Second}
}

// advise says what err is about, and what to do.
func (f *expiryFile) advise(err error) error {
	switch {
	case err == nil:
		return nil
	case f.path == "":
		return fmt.Errorf("the expiry file: %w; have TMPDIR name a directory that can be written to and has room, or give --expiry-file", err)
	}
	return fmt.Errorf("the expiry file: %w; give --expiry-file a name in a directory that can be written to and has room", err)
}

// make finds the file's place, and makes its directory if it is to have one of its own.
func (f *expiryFile) make() (err error) {
	switch {
	case f.file != "":
		return nil
	case f.path != "":
		if f.file, err = filepath.Abs(f.path); err != nil {
			return fmt.Errorf("--expiry-file: %w", err)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "leaderelect-")
	if err != nil {
		return fmt.Errorf("a directory for it: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the command may run as another user
		_ = os.Remove(dir)
		return fmt.Errorf("a directory for it: %w", err)
	}
	f.own, f.file = dir, filepath.Join(dir, "expiry")
	return nil
}

// try reports what would keep a leader from writing it. A file that is there already is left as it is:
// it may be another leader's.
func (f *expiryFile) try() error {
	err := f.box.Within(context.Background(), 5*f.patience, func() error {
		f := newExpiryFile(f.path)
		if err := f.make(); err != nil {
			return err
		}
		if f.own != "" {
			defer os.Remove(f.own)
		}
		if info, err := os.Stat(f.file); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s exists, and is not a file", f.file)
		}
		if info, err := os.Stat(filepath.Dir(f.file)); err == nil && everybodys(info) {
			return fmt.Errorf("everybody may replace files in %s, and so tell the command that it may act: take a directory that is this user's, or give this one the sticky bit (chmod +t)", filepath.Dir(f.file))
		}
		try, err := written(f.file, time.Now())
		if err == nil {
			err = os.Remove(try)
		}
		return err
	})
	return f.advise(err)
}

// everybodys reports whether each user may replace the files of others in a directory.
func everybodys(dir os.FileInfo) bool {
	return runtime.GOOS != "windows" && dir.Mode().Perm()&0o002 != 0 && dir.Mode()&os.ModeSticky == 0
}

// text is what the file says.
func text(end time.Time) []byte {
	end = end.UTC()
	return fmt.Appendf(nil, "%d\n%s\n", end.Unix(), end.Format(time.RFC3339Nano))
}

// written makes a new file next to file that says end. Its name cannot be guessed, and what has that
// name already is not opened: others may write to the directory.
func written(file string, end time.Time) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text(end))
	if runtime.GOOS != "windows" {
		err = errors.Join(err, f.Chmod(0o644)) // the command may run as another user
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// replace has the file say the newest end.
func (f *expiryFile) replace() error {
	if err := f.make(); err != nil {
		return err
	}
	name, err := written(f.file, *f.newest.Load())
	if err != nil {
		return err
	}
	if err := os.Rename(name, f.file); err != nil {
		_ = os.Remove(name)
		return err
	}
	f.says = true
	return nil
}

// begin writes the file, and returns when it says end, or why it may not.
func (f *expiryFile) begin(ctx context.Context, limit time.Duration, end time.Time) error {
	f.newest.Store(&end)
	f.late.Store(false)
	return f.advise(f.box.Within(ctx, limit, f.replace))
}

// tell has the file say end as soon as that can be written. Until then it says an earlier time.
func (f *expiryFile) tell(end time.Time, log *slog.Logger) {
	f.newest.Store(&end)
	if f.writing.Load() > 0 && !f.late.Swap(true) {
		log.Warn("the expiry file is not written, since its file system is slow, or hangs: the time in it is too early", "file", f.file)
	}
	f.writing.Add(1)
	if !f.box.Put(1, func() {
		defer f.writing.Add(-1)
		switch err := f.replace(); {
		case err != nil:
			log.Warn("the expiry file cannot be written: the time in it is too early", "err", err)
		case f.late.Swap(false):
			log.Info("the expiry file is written again")
		}
	}) {
		f.writing.Add(-1) // the one that waits will do
	}
}

// all is what there is of it, in the order in which it can be removed.
func (f *expiryFile) all() []string {
	if f.own != "" {
		return []string{f.file, f.own}
	}
	return []string{f.file}
}

// remove takes it away when the leadership is over, waits for that no longer than within, and reports what it
// may have left behind.
func (f *expiryFile) remove(within time.Duration) error {
	done := make(chan error, 1)
	f.box.Put(math.MaxInt, func() { // it is done in any case
		var err error
		if f.file != "" {
			for _, path := range f.all() {
				if e := os.Remove(path); e != nil && f.says && !errors.Is(e, os.ErrNotExist) {
					err = errors.Join(err, e)
				}
			}
		}
		f.file, f.own, f.says = "", "", false
		done <- err
	})
	over := time.NewTimer(within)
	defer over.Stop()
	var err error
	select {
	case err = <-done:
	case <-over.C:
		err = fmt.Errorf("%w: not removed after %v", outbox.ErrHangs, within)
	}
	if err != nil {
		return fmt.Errorf("the expiry file: %w", err)
	}
	return nil
}
