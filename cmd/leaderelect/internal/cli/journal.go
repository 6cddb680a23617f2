package cli

import (
	"context"
	"io"
	"log/slog"
	"sync"
)

// journal has each line of a log begin with its priority, as systemd's journal takes it from what
// a unit writes to its standard error (sd-daemon(3)). It makes the handler by what it is given to
// write to.
func journal(out io.Writer, handler func(io.Writer) slog.Handler) slog.Handler {
	w := &prioritised{out: out}
	return journalHandler{handler(w), w}
}

// The priorities of syslog(3), as lines begin with them.
const (
	priorityError   = "<3>"
	priorityWarning = "<4>"
	priorityInfo    = "<6>"
	priorityDebug   = "<7>"
)

func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return priorityError
	case level >= slog.LevelWarn:
		return priorityWarning
	case level >= slog.LevelInfo:
		return priorityInfo
	}
	return priorityDebug
}

// prioritised puts prefix before each line that a handler writes, which it does at once.
type prioritised struct {
	out    io.Writer
	mu     sync.Mutex
	prefix string
}

func (p *prioritised) Write(line []byte) (int, error) {
	if _, err := p.out.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

type journalHandler struct {
	slog.Handler
	w *prioritised
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.prefix = priority(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journalHandler{h.Handler.WithAttrs(attrs), h.w}
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	return journalHandler{h.Handler.WithGroup(name), h.w}
}
