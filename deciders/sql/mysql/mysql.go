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
	"database/sql"
	"errors"
	"io"
	"log"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
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
