// Package mysql keeps an election in MySQL or MariaDB by github.com/go-sql-driver/mysql:
//
//	db, err := mysql.NewDB(config) // a *sql.DB as elections need it
//	...
//	decider := sql.NewDecider(db, mysql.Dialect(), "leaderelection", "web", nil)
//
// See deciders/sql for what is written where, what can lose a confirmed write, permissions and
// costs. This package links the driver, deciders/sql does not.
package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// Dialect is sql.MySQL with the driver's errors.
func Dialect() lesql.Dialect {
	d := lesql.MySQL(func(err error) int {
		var refused *mysql.MySQLError
		if errors.As(err, &refused) {
			return int(refused.Number)
		}
		return 0
	})
	judge := d.Judge
	d.Judge = func(err error) lesql.Fault {
		f := judge(err)
		switch {
		case f != lesql.Fault{}:
		case errors.Is(err, mysql.ErrNoTLS):
			f = lesql.Fault{Kind: lesql.Permanent, Advice: "switch TLS on at the server, or leave tls out"}
		case errors.Is(err, mysql.ErrInvalidConn):
			f.Advice = "the connection broke, so the outcome is not known"
		case errors.Is(err, mysql.ErrPktTooLarge):
			f = lesql.Fault{Kind: lesql.Permanent, Advice: "raise max_allowed_packet above a megabyte"}
		case strings.Contains(err.Error(), "this user requires"), errors.Is(err, mysql.ErrUnknownPlugin):
			f.Kind, f.Advice = lesql.Permanent, "give the user a password plugin that the driver knows, or connect with TLS"
		}
		return f
	}
	return d
}

// What NewDB sets if the configuration does not say otherwise, so that an outage keeps
// neither the connections nor a candidate busy for longer than it lasts.
const (
	dialTimeout = 5 * time.Second
	maxConns    = 8               // one is mostly in use
	maxIdle     = 1               // of several that die without a word, each would cost a call
	maxLifetime = 3 * time.Minute // so that a fail-over by DNS is followed
)

// NewDB opens a pool as elections need it. It does not connect. It sets InterpolateParams, so that
// a write is one round trip and not two. Unless config says otherwise, it also sets a Timeout,
// autocommit=1, and innodb_lock_wait_timeout=2. With the latter a wait for another's lock ends
// before the campaign gives the call up, and the error names the reason. NewDB does not change
// config, which must not have a Collation that InterpolateParams refuses.
func NewDB(config *mysql.Config) (*sql.DB, error) {
	c := config.Clone()
	c.InterpolateParams = true
	if c.Timeout == 0 {
		c.Timeout = dialTimeout
	}
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	for name, value := range map[string]string{"autocommit": "1", "innodb_lock_wait_timeout": "2"} {
		if _, set := c.Params[name]; !set {
			c.Params[name] = value
		}
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxIdle)
	db.SetConnMaxLifetime(maxLifetime)
	return db, nil
}

// silent is for pools of Open's: the driver tells of broken connections, which a call's
// error tells as well.
var silent = log.New(io.Discard, "", 0)

// Open returns a handle on the election that u names, with a pool of its own, which
// Close closes:
//
//	mysql://user@host:3306/database?election=web
//	mariadb://user@host/database?election=web&create=true&tls_ca=ca.pem
//	mysql://user@/database?election=web&socket=/run/mysqld/mysqld.sock
//
// The parameter election is required. Others are:
//
//	table     the table; "database.table" is in another database ("leaderelection")
//	create    true: Options.CreateTable
//	socket    the socket of a server on this machine
//	timeout   the limit for making a connection (5s)
//	tls       true checks the server's certificate; the three below imply it. Without
//	          them, skip-verify checks nothing, and preferred takes what the server offers
//	tls_ca, tls_cert, tls_key
//	          files in PEM form, read again for each connection
//
// A missing password is taken from MYSQL_PWD, a missing user from $USER. Open does not connect.
func Open(ctx context.Context, u *url.URL) (*lesql.Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.OpenError("sql", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*lesql.Decider, error) {
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, fmt.Errorf("the scheme is %q, and must be mysql or mariadb", u.Scheme)
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	election, table, create := p.String("election"), cmp.Or(p.String("table"), "leaderelection"), p.Bool("create")
	if election == "" {
		p.Wrong("it lacks the parameter election: add ?election=name")
	} else if err := lesql.Check(table, election); err != nil {
		p.Wrong("%w", err)
	}
	config, files, err := parse(u, p)
	if err != nil {
		return nil, err
	}
	db, done, err := clients.Open(ctx, fmt.Sprint(config.FormatDSN(), files), func(context.Context) (*sql.DB, func() error, error) {
		db, err := NewDB(config)
		if err != nil {
			return nil, nil, err
		}
		return db, db.Close, nil
	})
	if err != nil {
		return nil, err
	}
	return lesql.NewDecider(db, Dialect(), table, election, &lesql.Options{CreateTable: create, Close: done, Drop: func() {
		db.SetMaxIdleConns(-1) // closes them
		db.SetMaxIdleConns(maxIdle)
	}}), nil
}

// parse takes the rest of u.
func parse(u *url.URL, p *store.Params) (*mysql.Config, store.TLSFiles, error) {
	c := mysql.NewConfig()
	c.Logger = silent
	c.User = cmp.Or(u.User.Username(), os.Getenv("USER"))
	var given bool
	if c.Passwd, given = u.User.Password(); !given {
		c.Passwd = os.Getenv("MYSQL_PWD")
	}
	c.DBName = strings.TrimPrefix(u.Path, "/")
	c.Timeout = p.Duration("timeout")
	socket := p.String("socket")
	files, wrong := encrypted(c, p, u.Hostname())
	if err := p.Rest(); err != nil {
		return nil, files, err
	}
	switch {
	case wrong != nil:
		return nil, files, wrong
	case u.Opaque != "" || u.Hostname() == "" && socket == "":
		return nil, files, errors.New("it must begin with " + u.Scheme + ":// and name a host, or have the parameter socket")
	case c.DBName == "" || strings.Contains(c.DBName, "/"):
		return nil, files, errors.New("it must name one database after the host: " + u.Scheme + "://host/database")
	case u.Hostname() != "" && socket != "":
		return nil, files, errors.New("it has a host and the parameter socket: one of them is enough")
	case socket != "":
		c.Net, c.Addr = "unix", socket
	default:
		c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	}
	return c, files, nil
}

// encrypted sets up TLS.
func encrypted(c *mysql.Config, p *store.Params, host string) (store.TLSFiles, error) {
	mode := p.OneOf("tls", "true", "false", "skip-verify", "preferred")
	files := p.TLSFiles()
	if files.None() {
		c.TLSConfig = mode
		return files, nil
	}
	if mode != "" && mode != "true" {
		files.Exclude(p, "tls="+mode)
	}
	if _, err := files.Load(); err != nil {
		return files, err
	}
	return files, c.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) (err error) {
		if c.TLS, err = files.Load(); c.TLS != nil {
			c.TLS.ServerName = host
		}
		return err
	}))
}
