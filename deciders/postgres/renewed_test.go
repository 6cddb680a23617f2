package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A password that is renewed in its file counts for each later connection, of the pool and of the feed.
func TestRenewedPasswords(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE app LOGIN PASSWORD 'first'`)
	exec(t, p, `GRANT CREATE ON SCHEMA public TO app`)
	p.Close()
	server.HBA(t, "host all postgres 127.0.0.1/32 trust", "host all app 127.0.0.1/32 scram-sha-256")
	p = pool(t, server.Addr)
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env, passfile, service := filepath.Join(dir, "env"), filepath.Join(dir, "passfile"), filepath.Join(dir, "service")
	renew := func(password string) {
		exec(t, p, `ALTER ROLE app PASSWORD '`+password+`'`)
		line := fmt.Sprintf("%s:%s:*:app:%s\n", host, port, password)
		for file, text := range map[string]string{env: line, passfile: line, service: "[ours]\nuser=app\npassword=" + password + "\n"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew("first")
	at := func(user string) string {
		return "postgres://" + user + server.Addr + "/postgres?sslmode=disable&application_name=renewed"
	}
	t.Setenv("PGPASSFILE", env)
	const election = "&election=e&create=true"
	deciders := map[string]*postgres.Decider{
		"PGPASSFILE": opened(t, at("app@")+election),
		"passfile":   opened(t, at("app@")+election+"&passfile="+passfile),
		"service":    opened(t, at("")+election+"&service=ours&servicefile="+service),
		"listen_url": opened(t, at("app@")+election+"&listen_url="+url.QueryEscape(at("app@")+"&passfile="+passfile)),
	}
	for _, password := range []string{"first", "second"} {
		if password != "first" {
			renew(password)
			exec(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'renewed'")
		}
		for name, d := range deciders {
			t.Run(password+" by "+name, func(t *testing.T) {
				var err error
				feedtest.Eventually(t, "it is read", func() bool {
					_, err = d.ReadCurrent(t.Context())
					return err == nil
				})
				feedtest.Number(t, feedtest.Follow(t, d), 0)
			})
		}
	}
}
