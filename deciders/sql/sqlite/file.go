package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"os"
)

// attentive makes connections that look, before each use, whether the file that they have
// open is the one that is at its path. In WAL mode SQLite does not: whoever has the old
// file open would go on writing there, and others lead by the new one.
type attentive struct {
	driver.Connector
	path string
}

// conn is what the driver's connections have, and database/sql makes use of.
type conn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// opened is a connection to the file that was at path.
type opened struct {
	conn
	path string
	file os.FileInfo
}

// Connect implements driver.Connector.
func (a attentive) Connect(ctx context.Context) (driver.Conn, error) {
	before, missing := os.Stat(a.path)
	made, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, known := made.(conn)
	if !known {
		return nil, errors.Join(errors.New("modernc.org/sqlite is a version that this package does not know"), made.Close())
	}
	o := &opened{conn: c, path: a.path, file: before}
	if missing != nil {
		o.file, err = os.Stat(a.path) // it was made
	}
	if err != nil || o.moved() {
		return nil, errors.Join(errors.New("the database's file was moved or replaced while it was opened"), err, c.Close())
	}
	return o, nil
}

// moved reports whether another file is there now, or none.
func (o *opened) moved() bool {
	now, err := os.Stat(o.path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(now, o.file)
}

// ResetSession implements driver.SessionResetter.
func (o *opened) ResetSession(ctx context.Context) error {
	if o.moved() {
		return driver.ErrBadConn
	}
	return o.conn.ResetSession(ctx)
}
