package stores

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// PgBouncer starts a connection pooler in front of a server, in transaction mode: a
// client has a session of the server for one transaction, and the next one in
// another. There are this many sessions.
func PgBouncer(t testing.TB, server *PostgresServer, sessions int) *Process {
	t.Helper()
	bouncer := Need(t, "pgbouncer")
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	dir := serverDir(t, "pgbouncer")
	users := filepath.Join(dir, "users.txt")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(users, `"postgres" ""`+"\n")
	return Start(t, Program{Name: "pgbouncer", Dir: dir, Ready: acceptsPostgres, Command: func(listen int) []string {
		config := filepath.Join(dir, fmt.Sprintf("%d.ini", listen))
		write(config, fmt.Sprintf(`[databases]
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
