//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
)

// scene is the stage: a database, and the workers.
type scene struct {
	out     io.Writer
	server  *server // nil: it is the user's
	dsn     string
	tables  *tables
	workers []*worker
}

func (s *scene) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// prepare finds a database, and makes the tables.
func (s *scene) prepare(ctx context.Context, dsn string) (err error) {
	if s.dsn = dsn; dsn == "" {
		if s.server, err = startServer(ctx); err != nil {
			return err
		}
		s.dsn = s.server.dsn
	}
	db, err := sql.Open("pgx", s.dsn)
	if err != nil {
		return fmt.Errorf("-dsn: %w", err)
	}
	var version string
	if err := db.QueryRowContext(ctx, "SHOW server_version").Scan(&version); err != nil {
		_ = db.Close()
		return fmt.Errorf("PostgreSQL does not answer: %w", err)
	}
	if s.tables, err = newTables(db, "fencing_"+strings.ToLower(rand.Text()[:12])); err != nil {
		return err
	}
	if err := s.tables.create(ctx); err != nil {
		return fmt.Errorf("making the tables: %w", err)
	}
	what := "the one given"
	if s.server != nil {
		what = "started for this"
	}
	s.say("PostgreSQL %s (%s), schema %s", version, what, s.tables.schema)
	return nil
}

// end stops and removes all that there is of it.
func (s *scene) end() error {
	for _, w := range s.workers {
		w.end()
	}
	var errs []error
	if s.tables != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // also when the scene was broken off
		if err := s.tables.drop(ctx); err != nil && s.server == nil {
			errs = append(errs, fmt.Errorf("the schema %s is left behind: %w", s.tables.schema, err))
		}
		cancel()
		errs = append(errs, s.tables.db.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.stop())
	}
	return errors.Join(errs...)
}

// turn lets a worker write to both tables, and says what became of it.
func (s *scene) turn(w *worker) error {
	fenced, unfenced, err := w.write()
	if err != nil {
		return err
	}
	s.say("          the fenced table:   %s", fenced)
	s.say("          the unfenced table: %s", unfenced)
	return nil
}

// worker is one in a process of its own: this program, started again.
type worker struct {
	name   string
	ctx    context.Context
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	errs   strings.Builder
	token  leaderelection.ElectionNumber
	frozen bool
}

// start starts a worker, which is killed when ctx ends.
func (s *scene) start(ctx context.Context, name string) (*worker, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{name: name, ctx: ctx, cmd: exec.CommandContext(ctx, exe)}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+name, dsnEnv+"="+s.dsn, schemaEnv+"="+s.tables.schema)
	w.cmd.SysProcAttr = child(syscall.SIGKILL)
	w.cmd.Stderr = &w.errs
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.stdout = bufio.NewScanner(stdout)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	s.workers = append(s.workers, w)
	return w, nil
}

// line returns what the worker says next.
func (w *worker) line() (string, error) {
	if w.stdout.Scan() {
		return w.stdout.Text(), nil
	}
	if w.ctx.Err() != nil {
		return "", context.Cause(w.ctx)
	}
	_ = w.cmd.Wait() // for all of its last words
	return "", fmt.Errorf("the %s worker has ended (%v): %s", w.name, w.cmd.ProcessState, w.errs.String())
}

// elected returns when the worker leads, and may write.
func (w *worker) elected() error {
	line, err := w.line()
	if err != nil {
		return err
	}
	token, err := fence.ParseToken(line)
	w.token = token.Number
	return err
}

// freeze stops the process, and returns when it stands still.
func (w *worker) freeze() error {
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(w.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			return fmt.Errorf("the %s worker was not stopped: %v, %v", w.name, status, err)
		}
		w.frozen = true
		return nil
	}
}

// write lets the worker write, having let it go on where it is frozen, and returns
// what became of that in the fenced and the unfenced table.
func (w *worker) write() (fenced, unfenced string, err error) {
	if _, err := fmt.Fprintln(w.stdin); err != nil {
		return "", "", err
	}
	if w.frozen {
		if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return "", "", err
		}
		w.frozen = false
	}
	if fenced, err = w.line(); err != nil {
		return "", "", err
	}
	unfenced, err = w.line()
	return fenced, unfenced, err
}

// end kills the worker, frozen or not.
func (w *worker) end() {
	_ = w.stdin.Close()
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}
