package stores

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// MariaDB starts an empty server with a database test, whose user root needs no
// password, with these options, such as "--transaction-isolation=READ-COMMITTED". Its
// defaults are those of the server, which are MySQL's where it matters here.
func MariaDB(t testing.TB, options ...string) *Process {
	t.Helper()
	server := Need(t, "mariadbd")
	dir := serverDir(t, "mariadb")
	data, first := filepath.Join(dir, "data"), filepath.Join(dir, "first.sql")
	if err := os.WriteFile(first, []byte("CREATE DATABASE IF NOT EXISTS test;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	install := slices.Concat(asServer(t), []string{Need(t, "mariadb-install-db"), "--no-defaults", "--datadir=" + data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"})
	c := exec.CommandContext(t.Context(), install[0], install[1:]...)
	c.Dir, c.Env = dir, append(c.Environ(), "TMPDIR="+dir) // temporary tables of two at once go by one name
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("stores: mariadb-install-db: %v\n%s", err, out)
	}
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
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	greeting := make([]byte, 512)
	if n, err := c.Read(greeting); err != nil {
		return err
	} else if n < 5 || greeting[4] != 10 {
		return fmt.Errorf("no greeting of MariaDB: %q", greeting[:n])
	}
	return nil
}
