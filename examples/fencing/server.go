//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a PostgreSQL of our own, in a directory of its own, which listens on a
// socket there and nowhere else.
type server struct {
	dsn   string
	dir   string
	cmd   *exec.Cmd
	log   strings.Builder
	ended chan struct{} // closed when it has
}

// bins is where PostgreSQL's programs may be, beside PATH.
var bins = []string{
	"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
	"/usr/pgsql-*/bin",                  // Red Hat, by PostgreSQL's own packages
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew
	"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/latest/bin",
}

var errNoServer = errors.New("there is no PostgreSQL to write to: name one, as -dsn postgres://user@host/database, or install one, which this starts for itself (apt-get install postgresql, or brew install postgresql)")

// program finds one of PostgreSQL's.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range bins {
		if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%w; looked for %s in PATH and in %s", errNoServer, name, strings.Join(bins, ", "))
}

// startServer makes an empty database cluster, and a server for it.
func startServer(ctx context.Context) (s *server, err error) {
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := program("postgres")
	if err != nil {
		return nil, err
	}
	s = &server{ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "fencing"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	as, err := serverUser(s.dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(s.dir, "data")
	first := exec.CommandContext(ctx, initdb, "--pgdata", data, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	first.Dir, first.SysProcAttr = s.dir, child(syscall.SIGKILL)
	first.SysProcAttr.Credential = as
	if out, err := first.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", initdb, err, out)
	}
	s.cmd = exec.Command(postgres, "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+s.dir, "-c", "fsync=off")
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, &s.log, &s.log
	s.cmd.SysProcAttr = child(syscall.SIGQUIT)
	s.cmd.SysProcAttr.Credential = as
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return nil, err
	}
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	s.dsn = "host=" + s.dir + " user=postgres dbname=postgres"
	return s, s.await(ctx)
}

// await returns when the server serves.
func (s *server) await(ctx context.Context) error {
	db, err := sql.Open("pgx", s.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if db.PingContext(ctx) == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-s.ended:
			return fmt.Errorf("%s has ended (%v):\n%s", s.cmd.Path, s.cmd.ProcessState, s.log.String())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop stops the server, and removes its directory.
func (s *server) stop() error {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGINT) // ends all connections, then itself
		late := time.NewTimer(10 * time.Second)
		defer late.Stop()
		select {
		case <-s.ended:
		case <-late.C:
			_ = s.cmd.Process.Signal(syscall.SIGQUIT) // its children as well, unlike SIGKILL
			<-s.ended
		}
	}
	return os.RemoveAll(s.dir)
}

// serverUser is who runs the server, and owns its directory, where this is root,
// which PostgreSQL refuses. Nil: who runs this.
func serverUser(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres: run this as another user, or with -dsn")
}
