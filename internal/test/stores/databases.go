package stores

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FerretDBServer is a FerretDB: a process that keeps its data and its address when
// it is stopped and started again.
type FerretDBServer struct {
	nested
	// URI is what a MongoDB client connects to.
	URI string
}

// FerretDB starts FerretDB, which speaks MongoDB's protocol, empty. Commands are
// passed on to it one at a time, since its updates are not atomic; with the
// argument -raw as they come.
func FerretDB(t testing.TB, args ...string) *FerretDBServer {
	t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	args = append([]string{"-data", t.TempDir(), "-listen", listen}, args...)
	f := &FerretDBServer{nested{server: "ferretdb", args: args}, "mongodb://" + listen + "/"}
	f.Start(t)
	return f
}

// MariaDB starts an empty server with a database test, whose user root needs no
// password, with these options, such as "--transaction-isolation=READ-COMMITTED". Its
// defaults are those of the server, which are MySQL's where it matters here.
func MariaDB(t testing.TB, options ...string) *Process {
	t.Helper()
	server := Need(t, "mariadbd")
	dir := serverDir(t, "mariadb")
	data, first := filepath.Join(dir, "data"), filepath.Join(dir, "first.sql")
	write(t, first, "CREATE DATABASE IF NOT EXISTS test;\n")
	runAsServer(t, dir, Need(t, "mariadb-install-db"), "--no-defaults", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	return Start(t, Program{Name: "mariadbd", Dir: dir, Ready: acceptsMariaDB, Command: func(port int) []string {
		return slices.Concat(asServer(t), []string{server, "--no-defaults", "--datadir=" + data, fmt.Sprintf("--port=%d", port),
			"--bind-address=127.0.0.1", "--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--init-file=" + first, "--tmpdir=" + dir, "--skip-name-resolve", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
			"--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF"}, options)
	}})
}

// acceptsMariaDB is a Ready: the server greets who connects, by a packet whose fifth
// byte is the version of its protocol.
func acceptsMariaDB(ctx context.Context, addr string) error {
	greeting, err := answer(ctx, addr, "")
	if err == nil && (len(greeting) < 5 || greeting[4] != 10) {
		err = fmt.Errorf("no greeting of MariaDB: %q", greeting)
	}
	return err
}

// answer connects, says something if there is something to say, and returns what comes first.
func answer(ctx context.Context, addr, say string) (string, error) {
	return talk(ctx, addr, say, func(c io.Reader) (string, error) {
		first := make([]byte, 512)
		n, err := c.Read(first)
		return string(first[:n]), err
	})
}

// PostgresServer is a PostgreSQL server in processes of its own, which keeps its
// address and its data when it is stopped and started again.
type PostgresServer struct {
	*Process
	// Addr is where it serves: host and port.
	Addr string

	data string
	args []string
}

// Postgres makes an empty database cluster, and starts a server with these
// settings, such as "fsync=on", on it. The superuser is postgres, and nobody
// needs a password; see HBA.
func Postgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	dir := serverDir(t, "postgres")
	p := &PostgresServer{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), data: filepath.Join(dir, "data")}
	runAsServer(t, dir, program(t, "initdb"), "--pgdata", p.data, "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	p.run(t, settings)
	return p
}

// PostgresStandby copies a server, and starts the copy as a hot standby that follows
// it, with these settings. Replication is asynchronous. A standby serves reads; the
// SQL function pg_promote makes a primary of it.
func PostgresStandby(t testing.TB, primary *PostgresServer, settings ...string) *PostgresServer {
	t.Helper()
	Nightly(t, "it starts a standby")
	dir := serverDir(t, "postgres")
	p := &PostgresServer{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), data: filepath.Join(dir, "data")}
	host, port := split(t, primary.Addr)
	runAsServer(t, dir, program(t, "pg_basebackup"), "--host", host, "--port", port, "--username", "postgres", "--pgdata", p.data,
		"--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	p.run(t, settings)
	return p
}

// run starts a server for the first time; it ends with the test.
func (p *PostgresServer) run(t testing.TB, settings []string) {
	t.Helper()
	for _, s := range append([]string{"fsync=off", "unix_socket_directories=", "listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=16MB", "log_min_messages=fatal"}, settings...) {
		p.args = append(p.args, "-c", s)
	}
	p.Start(t)
	t.Cleanup(p.Stop) // before its directory goes
}

// Start starts a server that was stopped, and returns when it serves.
func (p *PostgresServer) Start(t testing.TB) {
	t.Helper()
	_, port := split(t, p.Addr)
	prog := Program{Name: "postgres", Dir: filepath.Dir(p.data)}
	p.Process = prog.start(t, slices.Concat(asServer(t), []string{program(t, "postgres"), "-D", p.data, "-p", port}, p.args))
	p.Process.Addr = p.Addr
	p.serves(t, acceptsPostgres)
}

// Stop ends the server and all its processes at once, as a crash would, and waits
// for their end.
func (p *PostgresServer) Stop() {
	text, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if first, _, _ := strings.Cut(string(text), "\n"); err == nil {
		if pid, err := strconv.Atoi(first); err == nil && pid > 1 {
			// It takes its children along, which are groups of their own.
			quit(pid)
		}
	}
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	select {
	case <-p.ended:
	case <-patience.C:
	}
	p.Process.Stop()
}

// HBA replaces the server's rules of who may connect (pg_hba.conf), and has it read
// them.
func (p *PostgresServer) HBA(t testing.TB, rules ...string) {
	t.Helper()
	write(t, filepath.Join(p.data, "pg_hba.conf"), strings.Join(rules, "\n")+"\n")
	p.Stop()
	p.Start(t)
}

// Give puts a file of that name where the server runs, which is its own and no
// other's: a key, for instance.
func (p *PostgresServer) Give(t testing.TB, name string, content []byte) {
	t.Helper()
	file := filepath.Join(p.data, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	owner(t, file)
}

// Set changes settings, such as "ssl=on", at the next start.
func (p *PostgresServer) Set(settings ...string) {
	for _, s := range settings {
		p.args = append(p.args, "-c", s)
	}
}

// acceptsPostgres is a Ready: the server lets connections begin. It is asked in the
// first words of the protocol whether it speaks TLS, and answers by one letter; while
// it starts or recovers it lets them begin, too, but refuses what comes next, with an
// error.
func acceptsPostgres(ctx context.Context, addr string) error {
	// StartupMessage of protocol 3.0 for a database that there is.
	body := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	said, err := answer(ctx, addr, "\x00\x00\x00"+string(rune(len(body)+4))+body)
	// 57P03: it is starting up. Any other error is one of somebody who serves.
	if strings.Contains(said, "57P03") {
		err = fmt.Errorf("%q", said)
	}
	return err
}

// program finds one of PostgreSQL's, which Debian keeps out of PATH.
func program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		Missing(t, "PostgreSQL's "+name+" is neither in PATH nor in /usr/lib/postgresql: apt-get install postgresql")
	}
	return found[len(found)-1]
}

// serverDir makes a directory for a server, removed at the end of the test. It is
// not t.TempDir's, whose parent another user may not search.
func serverDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "leaderelection-"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	owner(t, dir)
	return dir
}

// runAsServer runs a program to its end.
func runAsServer(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	command := slices.Concat(asServer(t), []string{name}, args)
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Dir, c.Env = dir, append(c.Environ(), "TMPDIR="+dir) // MariaDB's temporary tables of two at once go by one name
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("stores: %s: %v\n%s", name, err, out)
	}
}

// serverUser is who runs the server where this is root, which PostgreSQL refuses.
func serverUser(t testing.TB) *user.User {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return u
		}
	}
	Missing(t, "there is no user to run PostgreSQL as, other than root")
	return nil
}

// asServer is what to put before a command, so that it is not run as root.
func asServer(t testing.TB) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		return []string{Need(t, "env")}
	}
	u := serverUser(t)
	return []string{Need(t, "setpriv"), "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups"}
}

// owner gives a file or directory to who runs the server.
func owner(t testing.TB, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	u := serverUser(t)
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// PgBouncer starts a connection pooler in front of a server, in transaction mode: a
// client has a session of the server for one transaction, and the next one in
// another. There are this many sessions.
func PgBouncer(t testing.TB, server *PostgresServer, sessions int) *Process {
	t.Helper()
	bouncer := Need(t, "pgbouncer")
	host, port := split(t, server.Addr)
	dir := serverDir(t, "pgbouncer")
	users := filepath.Join(dir, "users.txt")
	write(t, users, `"postgres" ""`+"\n")
	return Start(t, Program{Name: "pgbouncer", Dir: dir, Ready: acceptsPostgres, Command: func(listen int) []string {
		config := filepath.Join(dir, fmt.Sprintf("%d.ini", listen))
		write(t, config, fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = %d
`, host, port, listen, users, sessions))
		return slices.Concat(asServer(t), []string{bouncer, config})
	}})
}
