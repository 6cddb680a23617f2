package fencesql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// cluster is a MySQL server that says of itself what a node of a cluster does, and knows
// no other statement.
type cluster struct{ settings [][]driver.Value }

func (c cluster) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c cluster) Driver() driver.Driver                        { return nil }
func (cluster) Prepare(string) (driver.Stmt, error)            { return nil, errOther }
func (cluster) Begin() (driver.Tx, error)                      { return nil, errOther }
func (cluster) Close() error                                   { return nil }

var errOther = errors.New("another statement")

// QueryContext implements driver.QueryerContext.
func (c cluster) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	switch {
	case strings.HasPrefix(query, "SHOW GLOBAL VARIABLES"):
		return &shown{c.settings}, nil
	case strings.HasPrefix(query, "SHOW GLOBAL STATUS"):
		return &shown{c.settings[:1]}, nil
	case strings.Contains(query, "information_schema.tables"):
		return &shown{}, nil
	}
	return nil, errOther
}

type shown struct{ rows [][]driver.Value }

func (*shown) Columns() []string { return []string{"Variable_name", "Value"} }
func (*shown) Close() error      { return nil }
func (s *shown) Next(dest []driver.Value) error {
	if len(s.rows) == 0 {
		return io.EOF
	}
	copy(dest, s.rows[0])
	s.rows = s.rows[1:]
	return nil
}

// Where several nodes take writes a lock says nothing, unless one alone is written to.
func TestSeveralWriters(t *testing.T) {
	for _, c := range []struct {
		settings  [][]driver.Value
		oneWriter bool
		says      string
	}{
		{settings: [][]driver.Value{{"wsrep_cluster_size", "3"}, {"wsrep_on", "ON"}}, says: "3 nodes of a Galera cluster"},
		{settings: [][]driver.Value{{"wsrep_cluster_size", "3"}, {"wsrep_on", "ON"}}, oneWriter: true},
		{settings: [][]driver.Value{{"wsrep_cluster_size", "1"}, {"wsrep_on", "ON"}}},
		{settings: [][]driver.Value{{"wsrep_cluster_size", "0"}, {"wsrep_on", "OFF"}}},
		{settings: [][]driver.Value{{"other", ""}, {"group_replication_group_name", "g"}, {"group_replication_single_primary_mode", "OFF"}}, says: "several primaries"},
		{settings: [][]driver.Value{{"other", ""}, {"group_replication_group_name", "g"}, {"group_replication_single_primary_mode", "ON"}}},
	} {
		db := sql.OpenDB(cluster{c.settings})
		table, err := fencesql.NewTable(fencesql.MySQL(), "fences", &fencesql.Options{OneWriter: c.oneWriter})
		if err != nil {
			t.Fatal(err)
		}
		err = table.Raise(t.Context(), db, fencetest.Orders(1))
		if c.says == "" && !errors.Is(err, errOther) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "OneWriter")) {
			t.Errorf("%v, one writer %v: %v", c.settings, c.oneWriter, err)
		}
		_ = db.Close()
	}
}

// A table that a crash empties, or that has no transactions, keeps no fence.
func unfit(t *testing.T, s server) {
	db := s.open(t)
	exec1(t, db, map[string]string{
		"pgx":   "CREATE UNLOGGED TABLE loose (election VARCHAR(255) PRIMARY KEY, number BIGINT NOT NULL)",
		"mysql": "CREATE TABLE loose (election VARBINARY(255) PRIMARY KEY, number BIGINT NOT NULL) ENGINE=MyISAM",
	}[s.driver])
	loose, err := fencesql.NewTable(s.dialect, "loose", nil)
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{"pgx": "UNLOGGED", "mysql": "MyISAM"}[s.driver]
	if err := add(t.Context(), db, loose, fencetest.Orders(1), "1"); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q", err, says)
	}
}

// A healthy leader whose row was not written, or did not change, is not told that it is
// deposed.
func skipped(t *testing.T, s server) {
	db := s.open(t)
	exec1(t, db, "CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(9), fence BIGINT)")
	u, err := fencesql.NewUpsert(s.dialect, "orders", []string{"id"}, []string{"state"}, "fence")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second changes nothing
		if err := u.Exec(t.Context(), db, fencetest.Orders(4), 1, "sent"); err != nil {
			t.Error(err)
		}
	}
	if s.driver != "pgx" { // whose triggers alone skip a row
		return
	}
	exec1(t, db, "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	exec1(t, db, "CREATE TRIGGER skip BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION skip()")
	for _, c := range []struct {
		number uint64
		id     int
		want   error
	}{{4, 1, fence.ErrNotWritten}, {5, 1, fence.ErrNotWritten}, {4, 2, fence.ErrNotWritten}, {3, 1, fence.ErrStale}} {
		err := u.Exec(t.Context(), db, fencetest.Orders(c.number), c.id, "paid")
		if !errors.Is(err, c.want) || errors.Is(err, fence.ErrStale) != (c.want == fence.ErrStale) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
