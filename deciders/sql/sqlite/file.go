package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// attentive makes connections that look, before each use, whether the files that they have
// open are those that are at their paths. SQLite does not: whoever has old ones open would
// go on writing there, and others lead by the new ones. A write also looks after it, and
// before it whether others of this process have the files open.
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

// opened is a connection to the files that were at path.
type opened struct {
	conn
	path  string
	files files
}

// files are those of a database: itself, the log and its index. Nil: there is none.
type files [3]os.FileInfo

// at returns the files that are at path now.
func at(path string) (f files, err error) {
	for i, end := range []string{"", "-wal", "-shm"} {
		if f[i], err = os.Stat(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return f, err
		} else if err != nil {
			f[i] = nil
		}
	}
	return f, nil
}

// has reports whether one of them is this file.
func (f files) has(file os.FileInfo) bool {
	for _, one := range f {
		if one != nil && os.SameFile(one, file) {
			return true
		}
	}
	return false
}

// own are the descriptors of this package's connections. Locks of POSIX are the process's, so
// who owns a file's descriptors is of the process as well.
var own struct {
	sync.Mutex
	files map[string]os.FileInfo // by descriptor
}

// Connect implements driver.Connector.
func (a attentive) Connect(ctx context.Context) (driver.Conn, error) {
	own.Lock()
	defer own.Unlock()
	others := descriptors()
	before, missing := os.Stat(a.path)
	if errors.Is(missing, os.ErrNotExist) {
		others = nil // what was not there nobody had open: a number of a file that is gone comes again
	}
	made, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, known := made.(conn)
	if !known {
		return nil, errors.Join(errors.New("modernc.org/sqlite is a version that this package does not know"), made.Close())
	}
	o := &opened{conn: c, path: a.path}
	err = o.read(ctx) // opens the rest
	if err == nil {
		o.files, err = at(a.path)
	}
	if err == nil && (o.files[0] == nil || missing == nil && !os.SameFile(before, o.files[0])) {
		err = errors.New("the database's file was moved or replaced while it was opened")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if own.files == nil {
		own.files = map[string]os.FileInfo{}
	}
	for name, file := range descriptors() {
		if was := others[name]; o.files.has(file) && (was == nil || !os.SameFile(was, file)) {
			own.files[name] = file
		}
	}
	return o, nil
}

// read reads something.
func (o *opened) read(ctx context.Context) error {
	rows, err := o.conn.QueryContext(ctx, "SELECT COUNT(*) FROM sqlite_master", nil)
	if err != nil {
		return err
	}
	if err := rows.Next(make([]driver.Value, 1)); err != nil && !errors.Is(err, io.EOF) {
		return errors.Join(err, rows.Close())
	}
	return rows.Close()
}

// Close implements driver.Conn.
func (o *opened) Close() error {
	own.Lock()
	defer own.Unlock()
	err := o.conn.Close()
	left := descriptors()
	for name, file := range own.files {
		if now := left[name]; now == nil || !os.SameFile(now, file) {
			delete(own.files, name)
		}
	}
	return err
}

// foreign returns an error if another SQLite library, or other code of this process, has the
// files open. When it closes them the kernel drops the locks of this process.
func (o *opened) foreign() error {
	own.Lock()
	defer own.Unlock()
	for name, file := range descriptors() {
		if was := own.files[name]; o.files.has(file) && (was == nil || !os.SameFile(was, file)) {
			return store.Wrong("something else in this process has a file of %s open (descriptor %s), and when it closes the file the kernel drops SQLite's locks: "+
				"use one pool of sqlite.NewDB in all of the process, or give the pool of its own driver to sql.NewDecider, and copy the database by VACUUM INTO", o.path, name)
		}
	}
	return nil
}

// moved reports whether other files are there now, or none. Made are those that there were none of.
func (o *opened) moved() (gone, made bool) {
	now, err := at(o.path)
	if err != nil {
		return false, false
	}
	for i, file := range o.files {
		switch {
		case file == nil:
			made = made || now[i] != nil
		case now[i] == nil || !os.SameFile(file, now[i]):
			gone = true
		}
	}
	return gone, made
}

// ResetSession implements driver.SessionResetter.
func (o *opened) ResetSession(ctx context.Context) error {
	if gone, made := o.moved(); gone || made {
		return driver.ErrBadConn
	}
	return o.conn.ResetSession(ctx)
}

// ExecContext implements driver.ExecerContext.
func (o *opened) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := o.foreign(); err != nil {
		return nil, err
	}
	if gone, _ := o.moved(); gone {
		return nil, driver.ErrBadConn
	}
	r, err := o.conn.ExecContext(ctx, query, args)
	if gone, _ := o.moved(); err == nil && gone {
		// Not ErrBadConn, by which it would be done again.
		return nil, fmt.Errorf("the files of %s were removed or replaced while it was written, so the outcome is not known", o.path)
	}
	return r, err
}
