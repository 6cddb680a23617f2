package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

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
