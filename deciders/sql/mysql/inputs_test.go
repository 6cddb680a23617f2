package mysql_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// The tests of what one server is given, and what it makes of it.
func TestInputs(t *testing.T) {
	addr := stores.MariaDB(t, "--log-bin=bin", "--server-id=1").Addr
	for name, test := range map[string]func(t *testing.T, addr string){
		"foreign records": foreignRecords, "tables that will not do": tablesThatWillNotDo, "odd names": oddNames, "permissions": permissions,
		"sessions that will not do": sessions, "locked row": lockedRow, "read-only server": readOnly, "costs": costs, "no server": noServer,
	} {
		t.Run(name, func(t *testing.T) {
			c := config(addr)
			c.DBName = ""
			db := pool(t, c)
			storetest.Exec(t, db, "DROP DATABASE test")
			storetest.Exec(t, db, "CREATE DATABASE test")
			test(t, addr)
		})
	}
}

// What is in the table and no record of ours is reported, and left alone.
func foreignRecords(t *testing.T, addr string) {
	db := pool(t, config(addr))
	storetest.Exec(t, db, mysql.Dialect().Schema("leaderelection"))
	storetest.LeavesAlone(t, feedtest.NoRecords(), func(election string) leaderelection.RaceDecider { return decider(db, election) },
		func(election, content string) {
			storetest.Exec(t, db, "INSERT INTO leaderelection VALUES (?, 'v', 1, ?)", election, content)
		},
		func(election string) string {
			return storetest.Value[string](t, db, "SELECT record FROM leaderelection WHERE election = ? AND version = 'v'", election)
		})
}

func tablesThatWillNotDo(t *testing.T, addr string) {
	const rest = ", version VARBINARY(64) NOT NULL, written BIGINT NOT NULL, record MEDIUMBLOB NOT NULL)"
	for name, c := range map[string]struct {
		sql   string
		words []string
	}{
		"missing":       {"DO 1", []string{"1146", "CREATE TABLE", "create=true"}},
		"in memory":     {"CREATE TABLE leaderelection (election VARBINARY(255) PRIMARY KEY, version INT) ENGINE=MEMORY", []string{"MEMORY", "ENGINE=InnoDB"}},
		"MyISAM":        {"CREATE TABLE leaderelection (election VARBINARY(255) PRIMARY KEY" + rest + " ENGINE=MyISAM", []string{"MyISAM", "ENGINE=InnoDB"}},
		"a view":        {"CREATE VIEW leaderelection AS SELECT 'e' AS election", []string{"not an ordinary table", "VIEW"}},
		"ignores case":  {"CREATE TABLE leaderelection (election VARCHAR(255) PRIMARY KEY" + rest, []string{"VARCHAR", "VARBINARY(255)"}},
		"no key":        {"CREATE TABLE leaderelection (election VARBINARY(255)" + rest, []string{"unique index"}},
		"another key":   {"CREATE TABLE leaderelection (id INT, election VARBINARY(255), UNIQUE (election, id)" + rest, []string{"unique index"}},
		"half a key":    {"CREATE TABLE leaderelection (election VARBINARY(255), UNIQUE (election(3))" + rest, []string{"unique index"}},
		"other columns": {"CREATE TABLE leaderelection (election VARBINARY(255) PRIMARY KEY, leader TEXT)", []string{"1054", "must be as in", "CREATE TABLE"}},
	} {
		db := pool(t, config(addr))
		storetest.Exec(t, db, "DROP TABLE IF EXISTS leaderelection")
		storetest.Exec(t, db, "DROP VIEW IF EXISTS leaderelection")
		storetest.Exec(t, db, c.sql)
		if feedtest.Refuses(t, decider(db, "e"), append(c.words, "`leaderelection`", `"e"`)...); t.Failed() {
			t.Fatalf("that was: %s", name)
		}
		storetest.Exec(t, db, "DROP VIEW IF EXISTS leaderelection")
	}
	db := pool(t, config(addr))
	feedtest.Refuses(t, lesql.NewDecider(db, mysql.Dialect(), "nowhere.t", "e", create), "1049", "make the database")
	// What is written into columns that are too short is no record of ours.
	storetest.Exec(t, db, "SET GLOBAL sql_mode = ''")
	defer storetest.Exec(t, db, "SET GLOBAL sql_mode = DEFAULT")
	short := config(addr)
	storetest.Exec(t, db, "DROP TABLE IF EXISTS leaderelection")
	storetest.Exec(t, db, "CREATE TABLE leaderelection (election VARBINARY(255) PRIMARY KEY, version VARBINARY(64), written BIGINT, record TINYBLOB)")
	d := decider(pool(t, short), "e")
	e := feedtest.State(1, nil)
	e.ConnectionParams = make([]byte, 1000)
	if _, err := d.WriteEntry(t.Context(), e); err == nil {
		feedtest.Permanent(t, feedtest.ReadError(t, d), `"e"`)
	}
}

// Names are taken as they are, whatever is in them.
func oddNames(t *testing.T, addr string) {
	db := pool(t, config(addr))
	storetest.Exec(t, db, "CREATE DATABASE IF NOT EXISTS `My Schema`")
	defer storetest.Exec(t, db, "DROP DATABASE `My Schema`")
	for _, table := range []string{"Elections", "select", "a`b", "My Schema.t; DROP TABLE x", strings.Repeat("t", 64)} {
		for _, election := range []string{"e", "E", "e ", "it's", `"\`, strings.Repeat("e", 255), "?", "élection", "\xff"} {
			d := lesql.NewDecider(db, mysql.Dialect(), table, election, create)
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 1, nil)
			feedtest.Reads(t, d, 1)
		}
	}
}

// The least permissions that the documentation names, and less.
func permissions(t *testing.T, addr string) {
	db := pool(t, config(addr))
	storetest.Exec(t, db, mysql.Dialect().Schema("leaderelection"))
	for _, user := range []string{"candidate", "observer", "nobody"} {
		storetest.Exec(t, db, "CREATE OR REPLACE USER "+user+" IDENTIFIED BY 'secret'")
	}
	storetest.Exec(t, db, "GRANT SELECT, INSERT, UPDATE ON test.leaderelection TO candidate")
	storetest.Exec(t, db, "GRANT SELECT ON test.leaderelection TO observer")
	storetest.Exec(t, db, "GRANT SELECT ON mysql.proc TO nobody")
	as := func(user, more string) *lesql.Decider { return my.Opened(t, "mysql://"+user+"@"+addr+"/"+more) }
	t.Setenv("MYSQL_PWD", "secret")
	candidate, observer := as("candidate", "test?election=e"), as("observer", "test?election=e")
	token := feedtest.Write(t, candidate, 1, feedtest.Read(t, candidate).Token)
	feedtest.Write(t, candidate, 2, token)
	feedtest.Reads(t, observer, 2)
	for _, d := range []*lesql.Decider{candidate, observer} {
		if _, err := d.Durability(t.Context()); err != nil {
			t.Error(err)
		}
	}
	feedtest.Denied(t, feedtest.WriteError(t, observer, 3, feedtest.Read(t, observer).Token), "1142", "GRANT SELECT, INSERT, UPDATE")
	feedtest.Refuses(t, as("nobody", "test?election=e"), "1044")
	feedtest.Refuses(t, as("nobody", "mysql?election=e&table=test.leaderelection"), "1142", "GRANT")
	feedtest.Refuses(t, as("nobody", "mysql?election=e&create=true"), "1142", "CREATE")
	feedtest.Refuses(t, as("candidate:wr0ng", "test?election=e"), "1045", "check user and password")
	feedtest.Refuses(t, as("stranger:secret", "test?election=e"), "check user and password")
	_, err := as("candidate:wr0ng", "test?election=e").ReadCurrent(t.Context())
	if strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a password is in the error: %v", err)
	}
}

// A session in which a write is not committed by itself, or is not replicated as it is,
// writes nothing.
func sessions(t *testing.T, addr string) {
	storetest.Exec(t, pool(t, config(addr)), mysql.Dialect().Schema("leaderelection"))
	good := decider(pool(t, config(addr)), "e")
	token := feedtest.Write(t, good, 1, nil)
	for name, adjust := range map[string]func(db *sql.DB){
		"autocommit is off":    func(db *sql.DB) { storetest.Exec(t, db, "SET SESSION autocommit = 0") },
		"an open transaction":  func(db *sql.DB) { storetest.Exec(t, db, "START TRANSACTION") },
		"logs statements only": func(db *sql.DB) { storetest.Exec(t, db, "SET SESSION binlog_format = 'STATEMENT'") },
	} {
		db := pool(t, config(addr))
		db.SetMaxOpenConns(1)
		adjust(db)
		for _, err := range []error{feedtest.WriteError(t, decider(db, "e"), 2, token), feedtest.WriteError(t, decider(db, "new"), 2, nil)} {
			if feedtest.Permanent(t, err, "autocommit"); t.Failed() {
				t.Fatalf("that was: %s", name)
			}
		}
		feedtest.Reads(t, decider(db, "e"), 1)
	}
	feedtest.Write(t, good, 2, token)
}

// Who holds the row's lock keeps others from writing for as long as they wait for it.
func lockedRow(t *testing.T, addr string) {
	db := pool(t, config(addr))
	storetest.Exec(t, db, mysql.Dialect().Schema("leaderelection"))
	token := feedtest.Write(t, decider(db, "e"), 1, nil)
	tx := locks(t, db)
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "UPDATE leaderelection SET written = 5"); err != nil {
		t.Fatal(err)
	}
	c := config(addr)
	c.Params = map[string]string{"innodb_lock_wait_timeout": "0"}
	d := decider(pool(t, c), "e")
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "1205", "holds the row's lock")
	if e := feedtest.Read(t, decider(pool(t, c), "e")); e.ElectionNumber != 1 || e.Token.CommitTS().Year() == 1970 {
		t.Errorf("what is not committed is read: %+v, written %v", e, e.Token.CommitTS())
	}
}

// A server that takes no writes any more is told of, and left.
func readOnly(t *testing.T, addr string) {
	db := pool(t, config(addr))
	storetest.Exec(t, db, mysql.Dialect().Schema("leaderelection"))
	storetest.Exec(t, db, "CREATE OR REPLACE USER candidate IDENTIFIED BY 'secret'")
	storetest.Exec(t, db, "GRANT SELECT, INSERT, UPDATE ON test.leaderelection TO candidate")
	d := my.Opened(t, "mysql://candidate:secret@"+addr+"/test?election=e")
	plain, err := sql.Open("mysql", "candidate:secret@tcp("+addr+")/test")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	token := feedtest.Write(t, d, 1, nil)
	storetest.Exec(t, db, "SET GLOBAL read_only = 1")
	defer storetest.Exec(t, db, "SET GLOBAL read_only = 0")
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "takes no writes")
	feedtest.Passing(t, feedtest.WriteError(t, decider(plain, "e"), 2, token), "1290", "read_only", "connect to the primary")
	feedtest.Reads(t, d, 1)
}

// An extension is one statement and one round trip, and so is a look.
func costs(t *testing.T, addr string) {
	db := pool(t, config(addr))
	asked := func() (n int) {
		for _, name := range []string{"Questions", "Com_stmt_prepare"} { // the first has not the second
			more, err := strconv.Atoi(status(t, db, name))
			if err != nil {
				t.Fatal(err)
			}
			n += more
		}
		return n
	}
	d := maker(pool(t, config(addr)), "e")
	token := feedtest.Write(t, d, 1, nil)
	const times = 10
	for what, call := range map[string]func(){
		"extensions": func() { token = feedtest.Write(t, d, 1, token) },
		"looks":      func() { feedtest.Read(t, d) },
	} {
		before := asked()
		for range times {
			call()
		}
		if n := asked() - before - 2; n != times {
			t.Errorf("%d %s take %d statements", times, what, n)
		}
	}
}

func noServer(t *testing.T, addr string) {
	d := my.Opened(t, "mysql://root@127.0.0.1:1/test?election=e")
	feedtest.Passing(t, feedtest.ReadError(t, d), "refused", "`leaderelection`")
	feedtest.Refuses(t, my.Opened(t, "mysql://root@"+addr+"/nowhere?election=e"), "1049", "make the database")
	feedtest.Permanent(t, feedtest.ReadError(t, my.Opened(t, "mysql://root@"+addr+"/test?election=e&tls=true")), "TLS")
}

// TLS that checks the server's certificate, with one of the client's own; and each of
// these wrong. Then authority, certificate and key are replaced, and with them the server's.
func TestAccess(t *testing.T) {
	a := feedtest.NewAuthority(t, "server", "candidate")
	other := feedtest.NewAuthority(t, "candidate")
	dir, err := os.MkdirTemp("", "leaderelection-tls")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	install := func() { // for the server's user to read
		for _, file := range []string{"ca.pem", "server.pem", "server.key"} {
			content, err := os.ReadFile(a.Path(file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), content, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	install()
	addr := stores.MariaDB(t, "--ssl-ca="+filepath.Join(dir, "ca.pem"), "--ssl-cert="+filepath.Join(dir, "server.pem"), "--ssl-key="+filepath.Join(dir, "server.key")).Addr
	db := pool(t, config(addr))
	storetest.Exec(t, db, mysql.Dialect().Schema("leaderelection"))
	storetest.Exec(t, db, "CREATE USER candidate IDENTIFIED BY 'secret' REQUIRE X509")
	storetest.Exec(t, db, "GRANT ALL ON test.* TO candidate")
	at := func(host, more string) *lesql.Decider {
		return my.Opened(t, "mariadb://candidate:secret@"+strings.Replace(addr, "127.0.0.1", host, 1)+"/test?election=e&"+more)
	}
	d := at("127.0.0.1", storetest.TLS(a, "candidate"))
	feedtest.Read(t, at("localhost", storetest.TLS(a, "candidate")))
	feedtest.Refuses(t, at("127.0.0.1", storetest.TLS(other, "candidate")), "certificate", "authorities")
	feedtest.Refuses(t, at("127.0.0.1", "tls=true"), "certificate")
	feedtest.Refuses(t, at("127.0.0.1", "tls=true&"+storetest.TLS(a, "")), "1045")
	feedtest.Refuses(t, at("127.0.0.1", ""), "1045")

	storetest.Renewed(t, d, a, func() {
		install()
		storetest.Exec(t, db, "FLUSH SSL")
		storetest.Exec(t, db, "KILL HARD USER candidate")
	})
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, mysql.Open, map[string]string{
		"postgres://localhost/db?election=e":                     "scheme",
		"mysql://localhost/db":                                   "?election=",
		"mysql://localhost?election=e":                           "must name one database",
		"mysql://localhost/a/b?election=e":                       "must name one database",
		"mysql:db?election=e":                                    "name a host",
		"mysql:///db?election=e":                                 "name a host",
		"mysql://localhost/db?election=e&socket=/run/s":          "one of them",
		"mysql://localhost/db?election=e&autocommit=0":           `no parameter "autocommit"`,
		"mysql://localhost/db?election=e&create=perhaps":         `"create"`,
		"mysql://localhost/db?election=e&tls=maybe":              `"tls"`,
		"mysql://localhost/db?election=e&tls_ca=/no/y":           "/no/y",
		"mysql://u@h/db?election=e&tls=preferred&tls_ca=/no/x":   "leave out tls=preferred",
		"mysql://localhost/db?election=e&timeout=5":              `"timeout"`,
		"mysql://u:s3cret@localhost/db?election=e&password=s3cr": `no parameter "password"`,
	})
	d := my.Opened(t, "mysql://user@/db?election=e&socket=/nowhere/s&timeout=1s")
	feedtest.Passing(t, feedtest.ReadError(t, d), "/nowhere/s")
}
