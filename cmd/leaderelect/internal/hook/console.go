package hook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Console toggles the service by words typed at a terminal, in place of an
// election: LEADER, NOTLEADER and ERROR. It returns at the end of in or of ctx,
// when the end command has run.
func (h *Hook) Console(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	fmt.Fprintln(out, "Type LEADER, NOTLEADER or ERROR, as an election would say it.")
	c := console{h: h, out: out}
	for {
		select {
		case <-ctx.Done():
			return c.lose(context.WithoutCancel(ctx))
		case line, more := <-lines:
			if !more {
				return c.lose(context.WithoutCancel(ctx))
			}
			c.obey(ctx, strings.ToUpper(strings.TrimSpace(line)))
		}
	}
}

// console is an election that somebody types.
type console struct {
	h       *Hook
	out     io.Writer
	leading bool
	token   uint64
}

func (c *console) obey(ctx context.Context, word string) {
	switch word {
	case "":
	case "LEADER":
		if c.leading {
			fmt.Fprintln(c.out, "leading already")
			return
		}
		if err := c.h.Healthy(ctx); err != nil {
			fmt.Fprintln(c.out, "not elected:", err)
			return
		}
		c.lead(ctx)
	case "NOTLEADER":
		if !c.leading {
			fmt.Fprintln(c.out, "not leading")
			return
		}
		_ = c.lose(ctx) // logged
	case "ERROR":
		_ = c.lose(ctx)
		c.h.standDown(fmt.Errorf("an error of the election was typed"))
	default:
		fmt.Fprintf(c.out, "%q is none of LEADER, NOTLEADER and ERROR\n", word)
	}
}

func (c *console) lead(ctx context.Context) {
	c.token++
	began := time.Now()
	err := c.h.Begin(ctx, c.token)
	c.leading = true
	if err == nil {
		fmt.Fprintf(c.out, "begun, after %v\n", time.Since(began).Round(time.Millisecond))
		return
	}
	fmt.Fprintln(c.out, "failed:", err)
	if c.lose(ctx) == nil {
		c.h.standDown(err)
	}
}

// lose runs the end command, if something was begun.
func (c *console) lose(ctx context.Context) error {
	if !c.leading {
		return nil
	}
	c.leading = false
	began := time.Now()
	err := c.h.End(ctx, c.token)
	if err != nil {
		fmt.Fprintln(c.out, "failed:", err)
		c.h.standDown(err)
		return err
	}
	fmt.Fprintf(c.out, "ended, after %v\n", time.Since(began).Round(time.Millisecond))
	return nil
}
