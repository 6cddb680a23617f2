package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/lock"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// SQLite is the Dialect of SQLite 3.16 and newer, for the processes of one machine. Code returns
// the (extended) result code of SQLite's errors, 0 for other errors. It depends on the driver's
// type of errors. Package deciders/sql/sqlite has it for modernc.org/sqlite.
func SQLite(code func(err error) int) Dialect {
	return Dialect{
		Name: "sqlite",
		Table: `CREATE TABLE IF NOT EXISTS %s (
	election TEXT NOT NULL PRIMARY KEY,
	version TEXT NOT NULL,
	written INTEGER NOT NULL,
	record TEXT NOT NULL
)
`,
		// Milliseconds are what every version of SQLite has.
		Now:        "CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000",
		Judge:      func(err error) Fault { return judgeSQLite(code(err), err) },
		Late:       "the database was not available in time (the limit may be shorter than busy_timeout): if somebody keeps it locked, end long transactions",
		Inspect:    inspectSQLite,
		Lock:       lockSQLite,
		Durability: durabilitySQLite,
	}
}

// judgeSQLite explains an error by its code, see https://www.sqlite.org/rescode.html.
func judgeSQLite(code int, err error) Fault {
	switch code {
	case 1555, 2067: // of a primary key, of a unique index
		return Fault{Duplicate, ""}
	case 1032:
		return Fault{Permanent, "the database's file was moved or removed while it is open: stop all candidates, and put it back"}
	}
	switch code & 0xff {
	case 1:
		switch text := err.Error(); {
		case strings.Contains(text, "no such table"):
			return Fault{NoTable, ""}
		case strings.Contains(text, "no such column"), strings.Contains(text, "has no column"), strings.Contains(text, "is not a table"), strings.Contains(text, "it is a view"):
			return Fault{NotAsDocumented, ""}
		case strings.Contains(text, "unknown database"):
			return Fault{Permanent, "attach that database in each connection, or name another"}
		}
	case 5, 6:
		return Fault{Passing, "somebody keeps the database locked for longer than busy_timeout: end long transactions"}
	case 3, 8, 23:
		return Fault{Permanent, "candidates need write permission for the database's file and its directory, observers as well"}
	case 10:
		return Fault{Passing, "the disk fails"}
	case 11, 26:
		return Fault{Permanent, "the file is not a sound SQLite database: name another, or restore it while no candidate runs"}
	case 13:
		return Fault{Passing, "the disk is full"}
	case 14:
		return Fault{Permanent, "make the database's file and directory, and let the candidates read and write them; sqlite.Options.Create (create=true in an address) makes the file"}
	case 19, 20:
		return Fault{NotAsDocumented, ""}
	}
	return Fault{}
}

// lockSQLite keeps other candidates from writing. SQLite's own locks are the process's: they
// fall when any code of the process closes the file, and SQLite does not notice. This one is
// of a file that nobody else opens, and of the open file itself.
func lockSQLite(ctx context.Context, file string) (io.Closer, error) {
	i, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	held, err := lock.Wait(ctx, file+"-leaderelection.lock", lock.Writers{Of: i})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// inspectSQLite says why a table will not do.
func inspectSQLite(ctx context.Context, db Asker, schema, table string) (string, error) {
	if schema == "" {
		schema = "main"
	}
	var file string
	err := db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = ?`, schema).Scan(&file)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", store.Wrong("there is no database %q in this connection", schema)
	case err != nil:
		return "", err
	case file == "":
		return "", store.Wrong("the database is in memory, and each connection has its own: name a file, or use deciders/memory")
	}
	quoted := Dialect{}.withDefaults().Quote(schema)
	var journal, kind string
	if err := db.QueryRowContext(ctx, "PRAGMA "+quoted+".journal_mode").Scan(&journal); err != nil {
		return "", err
	}
	if !strings.EqualFold(journal, "wal") {
		return "", store.Wrong("its journal_mode is %s, in which who reads while another writes may undo the write, and two lead: set PRAGMA journal_mode = WAL while nothing else has the file open", journal)
	}
	err = db.QueryRowContext(ctx, `SELECT type FROM `+quoted+`.sqlite_master WHERE name = ? COLLATE NOCASE`, table).Scan(&kind)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case kind != "table":
		return "", store.Wrong("it is not an ordinary table but a %s: name another", kind)
	}
	var unique int
	err = db.QueryRowContext(ctx, `SELECT COUNT(*) FROM pragma_index_list(?, ?) AS l WHERE l."unique" = 1 AND l.partial = 0
	AND (SELECT COUNT(*) = 1 AND MAX(c.name) = 'election' AND MAX(c.coll) = 'BINARY' FROM pragma_index_xinfo(l.name, ?) AS c WHERE c.key = 1)`, table, schema, schema).Scan(&unique)
	switch {
	case err != nil:
		return "", err
	case unique == 0:
		return "", store.Wrong("it has no unique index on its column election alone that tells upper case from lower: make one")
	}
	return file, nil
}

// durabilitySQLite asks one connection of the pool; the others are made alike.
func durabilitySQLite(ctx context.Context, db *sql.DB) ([]durability.Warning, error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var synchronous int
	if err := c.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return nil, err
	}
	var all warnings
	if synchronous < 2 { // FULL
		all.add(fmt.Sprintf("synchronous is %d: a loss of power forgets confirmed writes, and an election number may come twice", synchronous), "set PRAGMA synchronous = FULL in each connection")
	}
	return all, nil
}
