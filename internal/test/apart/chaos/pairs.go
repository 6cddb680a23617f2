//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// pair is a primary and its standby, whose answer the primary waits for. Its address moves
// with the primary, as a load balancer or keepalived has it. A fail-over kills the primary,
// promotes the standby, and makes a new standby in the place of the old primary: nobody
// may write to both.
type pair struct {
	w       *world
	s       *cluster
	primary *host
	run     func(h *host) error // the server with what is there
	clone   func(h *host) error // makes h a standby of the primary, from nothing
	promote func(h *host) error
}

// address is the pair's.
const address = "10.77.0.200"

func (p *pair) failover() error {
	old, next := p.primary, p.s.nodes[0]
	if next == old {
		next = p.s.nodes[1]
	}
	old.kill()
	if err := p.promote(next); err != nil {
		return err
	}
	p.primary = next
	if err := p.w.net.move(address, old, next); err != nil {
		return err
	}
	p.w.say("%s is the primary now", next.name)
	if err := os.RemoveAll(p.w.data(old)); err != nil {
		return err
	}
	return p.clone(old)
}

// move takes an address from one host to another. From may be nil.
func (n *network) move(addr string, from, to *host) error {
	if from != nil {
		if err := from.run(exec.Command("ip", "address", "del", addr+"/32", "dev", "chaos0")); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.hosts[[4]byte{10, 77, 0, 200}] = to
	n.mu.Unlock()
	return to.run(exec.Command("ip", "address", "add", addr+"/32", "dev", "chaos0"))
}

// until tries again what a server is not ready for yet.
func until(what string, f func() error) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// as is a command that runs as the user of PostgreSQL, since neither server runs as root.
func as(args ...string) []string {
	return append([]string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"}, args...)
}

// own makes a directory that this user owns.
func own(dir string) error {
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func command(args []string) *exec.Cmd {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = os.TempDir()
	return c
}

// postgresPair is a primary whose commits wait for its standby.
func postgresPair(w *world) (*cluster, error) {
	s, err := w.servers(2)
	if err != nil {
		return nil, err
	}
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		return nil, fmt.Errorf("PostgreSQL is not in /usr/lib/postgresql: apt-get install postgresql")
	}
	bin := func(name string) string { return filepath.Join(bins[len(bins)-1], name) }
	data := func(h *host) string { return filepath.Join(w.data(h), "data") }
	p := &pair{w: w, s: s, primary: s.nodes[0]}
	p.run = func(h *host) error {
		_ = os.Remove(filepath.Join(data(h), "postmaster.pid")) // all that was there is killed
		return w.serverIn(w.data(h), nil, h, as(bin("postgres"), "-D", data(h), "-c", "unix_socket_directories=", "-c", "listen_addresses=*",
			"-c", "shared_buffers=16MB", "-c", "synchronous_standby_names=*", "-c", "wal_keep_size=64MB", "-c", "log_min_messages=fatal")...)
	}
	p.clone = func(h *host) error {
		if err := own(w.data(h)); err != nil {
			return err
		}
		if err := until("pg_basebackup", func() error {
			_ = os.RemoveAll(data(h))
			return h.run(command(as(bin("pg_basebackup"), "--host", p.primary.addr, "--username", "postgres", "--pgdata", data(h),
				"--write-recovery-conf", "--checkpoint", "fast", "--no-sync")))
		}); err != nil {
			return err
		}
		return p.run(h)
	}
	p.promote = func(h *host) error {
		return until("pg_ctl promote", func() error {
			return h.run(command(as(bin("pg_ctl"), "promote", "-D", data(h), "-s")))
		})
	}
	s.start, s.failover = p.run, p.failover
	first := p.primary
	if err := own(w.data(first)); err != nil {
		return nil, err
	}
	if err := first.run(command(as(bin("initdb"), "--pgdata", data(first), "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"))); err != nil {
		return nil, err
	}
	hba := "host all all all trust\nhost replication all all trust\n"
	if err := os.WriteFile(filepath.Join(data(first), "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return nil, err
	}
	if err := p.run(first); err != nil {
		return nil, err
	}
	if err := p.clone(s.nodes[1]); err != nil {
		return nil, err
	}
	s.url = "postgres://postgres@" + address + ":5432/postgres?election=one&create=true&sslmode=disable&connect_timeout=2"
	return s, w.net.move(address, nil, first)
}

// mariaDBPair is a primary whose commits wait for its replica (semi-synchronous, without
// the timeout after which they no longer would).
func mariaDBPair(w *world) (*cluster, error) {
	s, err := w.servers(2)
	if err != nil {
		return nil, err
	}
	p := &pair{w: w, s: s, primary: s.nodes[0]}
	ask := func(h *host, sql string) error {
		return until("mariadb", func() error {
			return h.run(command([]string{"mariadb", "--no-defaults", "--socket", filepath.Join(w.data(h), "socket"), "--user", "root", "--execute", sql}))
		})
	}
	master := "SET GLOBAL rpl_semi_sync_slave_enabled=0; SET GLOBAL rpl_semi_sync_master_enabled=1; SET GLOBAL read_only=0;"
	p.run = func(h *host) error {
		data := filepath.Join(w.data(h), "data")
		args := as("/usr/sbin/mariadbd", "--no-defaults", "--datadir="+data, "--bind-address=0.0.0.0", "--socket="+filepath.Join(w.data(h), "socket"),
			"--pid-file="+filepath.Join(w.data(h), "pid"), "--tmpdir="+w.data(h), "--skip-name-resolve", "--performance-schema=OFF",
			"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1",
			fmt.Sprintf("--server-id=%d", h.ip[3]), "--log-bin=binlog", "--log-slave-updates", "--gtid-strict-mode",
			"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=3600000", "--rpl-semi-sync-master-wait-no-slave=ON")
		if h == p.primary {
			args = append(args, "--rpl-semi-sync-master-enabled=ON")
		} else {
			args = append(args, "--rpl-semi-sync-slave-enabled=ON", "--read-only=ON")
		}
		return w.serverIn(w.data(h), nil, h, args...)
	}
	install := func(h *host) error {
		if err := own(w.data(h)); err != nil {
			return err
		}
		c := command(as("mariadb-install-db", "--no-defaults", "--datadir="+filepath.Join(w.data(h), "data"),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"))
		c.Env = append(os.Environ(), "TMPDIR="+w.data(h))
		if err := h.run(c); err != nil {
			return err
		}
		return p.run(h)
	}
	p.clone = func(h *host) error { // all there ever was is in the primary's binary log
		if err := install(h); err != nil {
			return err
		}
		return ask(h, fmt.Sprintf("RESET MASTER; SET GLOBAL gtid_slave_pos=''; CHANGE MASTER TO master_host='%s', master_user='chaos', master_password='chaos', master_connect_retry=1, master_use_gtid=slave_pos; START SLAVE", p.primary.addr))
	}
	p.promote = func(h *host) error {
		return ask(h, "STOP SLAVE; RESET SLAVE ALL; "+master)
	}
	s.start, s.failover = p.run, p.failover
	first := p.primary
	if err := install(first); err != nil {
		return nil, err
	}
	if err := ask(first, "SET GLOBAL rpl_semi_sync_master_enabled=0; RESET MASTER; CREATE DATABASE elections; CREATE USER chaos IDENTIFIED BY 'chaos'; GRANT ALL ON *.* TO chaos; "+master); err != nil {
		return nil, err
	}
	if err := p.clone(s.nodes[1]); err != nil {
		return nil, err
	}
	s.url = "mysql://chaos:chaos@" + address + ":3306/elections?election=one&create=true&timeout=2s"
	return s, w.net.move(address, nil, first)
}
