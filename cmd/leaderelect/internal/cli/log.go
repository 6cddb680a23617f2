package cli

import (
	"bytes"
	"io"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
)

// flushPatience is how long the end of this program waits for what it has said to be taken, by the
// log's reader and by a supervisor together.
const flushPatience = 500 * time.Millisecond

// ending is how long that may still take. The time begins with the first call.
func (a *app) ending() time.Duration {
	if a.endBy.IsZero() {
		if a.patience == 0 {
			a.patience = flushPatience
		}
		a.endBy = time.Now().Add(a.patience)
	}
	return time.Until(a.endBy)
}

// log is the one way to standard error of all that is said while this program works: nothing waits
// for its reader.
func (a *app) log() *outbox.Log {
	a.logs.Do(func() {
		a.journalled = journalled(a.errOut)
		a.lines = &outbox.Log{Out: a.errOut, Lost: func(lines int) []byte {
			var line bytes.Buffer
			slog.New(a.handler(&line)).Warn("lines of this log are missing here: nobody took them", "lines", lines)
			return line.Bytes()
		}}
	})
	return a.lines
}

// logger writes to the log, in the format and from the level asked for.
func (a *app) logger() *slog.Logger { return slog.New(a.handler(a.log())) }

// handler is the log's, for what is written to out.
func (a *app) handler(out io.Writer) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.common.logLevel)) // checked by settle
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: a.attr}
	handler := func(out io.Writer) slog.Handler {
		if a.common.logFormat == "json" {
			return slog.NewJSONHandler(out, o)
		}
		return slog.NewTextHandler(out, o)
	}
	if a.journalled {
		return journal(out, handler)
	}
	return handler(out)
}
