package fencesql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// Rows are made, replaced and refused, whatever the driver says of the rows affected.
func upsert(t *testing.T, s server) {
	addresses := map[string]string{"as it comes": s.address}
	if s.driver == "mysql" { // with this MySQL counts a row that was found as affected
		addresses["rows found"] = s.address + "&clientFoundRows=true"
	}
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			s := s
			s.address = address
			upserts(t, s)
		})
	}
}

func upserts(t *testing.T, s server) {
	db := s.open(t)
	storetest.Exec(t, db, "DROP TABLE IF EXISTS stock")
	storetest.Exec(t, db, "CREATE TABLE stock (shop VARCHAR(20), item BIGINT, pieces BIGINT, note VARCHAR(20), fence BIGINT, PRIMARY KEY (shop, item))")
	u := s.upsert(t, "stock", []string{"shop", "item"}, []string{"pieces", "note"})
	row := func(item int) string {
		var pieces, number sql.NullInt64
		var note string
		err := db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT pieces, note, fence FROM stock WHERE shop = 'a' AND item = %d", item)).Scan(&pieces, &note, &number)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s %d", pieces.Int64, note, number.Int64)
	}
	for i, c := range []struct {
		number   uint64
		pieces   int
		note     string
		want     error
		row      string
		greatest uint64
	}{
		{2, 1, "made", nil, "1 made 2", 0}, {2, 2, "same leader", nil, "2 same leader 2", 0}, {2, 2, "same leader", nil, "2 same leader 2", 0},
		{1, 3, "late", fence.ErrStale, "2 same leader 2", 2}, {1, 2, "same leader", fence.ErrStale, "2 same leader 2", 2},
		{5, 3, "newer", nil, "3 newer 5", 0}, {4, 4, "late", fence.ErrStale, "3 newer 5", 5}, {0, 4, "none", fence.ErrNoToken, "3 newer 5", 0},
		{math.MaxInt64 + 1, 4, "too great", fence.ErrMalformed, "3 newer 5", 0},
	} {
		err := u.Exec(t.Context(), db, fencetest.Orders(c.number), "a", 1, c.pieces, c.note)
		var stale *fence.StaleError
		if errors.As(err, &stale) && stale.Greatest != leaderelection.ElectionNumber(c.greatest) || !errors.Is(err, c.want) || row(1) != c.row {
			t.Errorf("%d: %v, and the row is %q; want %v (of %d) and %q", i, err, row(1), c.want, c.greatest, c.row)
		}
	}
	// A row from before there was a fence, and one of another key, which is apart.
	storetest.Exec(t, db, "INSERT INTO stock VALUES ('a', 2, 7, 'old', NULL)")
	if err := u.Exec(t.Context(), db, fencetest.Orders(1), "a", 2, 8, "fenced"); err != nil || row(2) != "8 fenced 1" || row(1) != "3 newer 5" {
		t.Errorf("%v, and the rows are %q and %q", err, row(1), row(2))
	}
	// In a transaction of one's own, which is left to its owner.
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := u.Exec(t.Context(), tx, fencetest.Orders(4), "a", 1, 9, "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("in a transaction: %v", err)
	}
	if err := u.Exec(t.Context(), tx, fencetest.Orders(6), "a", 1, 9, "mine"); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil || row(1) != "3 newer 5" {
		t.Errorf("%v, and the row is %q", err, row(1))
	}
	// What a transaction saw before another leader came does not pass for its own writing.
	old, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback()
	var seen int64
	if err := old.QueryRowContext(t.Context(), "SELECT pieces FROM stock WHERE item = 1").Scan(&seen); err != nil || seen != 3 {
		t.Fatal(seen, err)
	}
	if s.serializable(t) {
		t.Log("a reader holds the row: nobody comes between")
	} else if err := u.Exec(t.Context(), db, fencetest.Orders(7), "a", 1, 4, "next"); err != nil {
		t.Fatal(err)
	} else if err := u.Exec(t.Context(), old, fencetest.Orders(5), "a", 1, 5, "late"); err == nil {
		t.Error("a transaction of an older leader has written over a newer one's row")
	}
	if err := old.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := u.Exec(t.Context(), db, fencetest.Orders(6), "a", 1, 9); err == nil || !strings.Contains(err.Error(), "shop, item, pieces, note") {
		t.Errorf("a value is missing: %v", err)
	}
	storetest.Exec(t, db, "DROP TABLE stock")
	if err := u.Exec(t.Context(), db, fencetest.Orders(6), "a", 1, 9, "gone"); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "stock") {
		t.Errorf("without a table: %v", err)
	}
	together(t, s)
}

// serializable reports whether a read in a transaction locks what it reads.
func (s server) serializable(t *testing.T) bool {
	if s.driver != "mysql" {
		return s.driver == "sqlite" // it has one writer, and its transactions are immediate
	}
	return storetest.Value[string](t, s.open(t), "SELECT @@tx_isolation") == "SERIALIZABLE"
}

// Of many that write one row at once, the greatest number stays.
func together(t *testing.T, s server) {
	db := s.open(t)
	storetest.Exec(t, db, "CREATE TABLE stock (item BIGINT PRIMARY KEY, pieces BIGINT, fence BIGINT)")
	u := s.upsert(t, "stock", []string{"item"}, []string{"pieces"})
	var wg sync.WaitGroup
	for n := uint64(1); n <= 12; n++ {
		wg.Go(func() {
			for tries := 0; ; tries++ {
				err := u.Exec(t.Context(), db, fencetest.Orders(n), 1, int64(n))
				if err == nil || errors.Is(err, fence.ErrStale) {
					if err != nil && n == 12 {
						t.Errorf("the newest: %v", err)
					}
					return
				}
				if tries == 100 { // serialization failures and deadlocks pass
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n, f := number(t, db, "SELECT pieces FROM stock"), number(t, db, "SELECT fence FROM stock"); n != 12 || f != 12 {
		t.Errorf("%d pieces and the fence %d, want those of the newest", n, f)
	}
}

func TestNewUpsertRefuses(t *testing.T) {
	id, state := []string{"id"}, []string{"state"}
	for says, c := range map[string]struct {
		dialect      fencesql.Dialect
		table        string
		key, columns []string
		fence        string
	}{
		"zero Dialect":                 {fencesql.Dialect{}, "t", id, state, "fence"},
		"not a valid name of a table":  {fencesql.SQLite(), "t; DROP TABLE t", id, state, "fence"},
		"no key":                       {fencesql.SQLite(), "t", nil, state, "fence"},
		"not a valid name of a column": {fencesql.SQLite(), "t", id, []string{"a = 1"}, "fence"},
		"id twice":                     {fencesql.SQLite(), "t", id, id, "fence"},
		"state twice":                  {fencesql.SQLite(), "t", id, state, "state"},
		`"" is not a valid name`:       {fencesql.SQLite(), "t", id, state, ""},
	} {
		if _, err := fencesql.NewUpsert(c.dialect, c.table, c.key, c.columns, c.fence); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
	// What it was given it does not change.
	key := append(make([]string, 0, 9), "id")
	if _, err := fencesql.NewUpsert(fencesql.SQLite(), "t", key, state, "fence"); err != nil || slices.Contains(key[:2], "state") {
		t.Errorf("%v, and the key became %q", err, key[:2])
	}
}

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
		err := server{dialect: fencesql.MySQL()}.named(t, "fences", &fencesql.Options{OneWriter: c.oneWriter}).Raise(t.Context(), db, fencetest.Orders(1))
		if c.says == "" && !errors.Is(err, errOther) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "OneWriter")) {
			t.Errorf("%v, one writer %v: %v", c.settings, c.oneWriter, err)
		}
		_ = db.Close()
	}
}

// A table that a crash empties, or that has no transactions, keeps no fence.
func unfit(t *testing.T, s server) {
	db := s.open(t)
	storetest.Exec(t, db, map[string]string{
		"pgx":   "CREATE UNLOGGED TABLE loose (election VARCHAR(255) PRIMARY KEY, number BIGINT NOT NULL)",
		"mysql": "CREATE TABLE loose (election VARBINARY(255) PRIMARY KEY, number BIGINT NOT NULL) ENGINE=MyISAM",
	}[s.driver])
	loose := s.named(t, "loose", nil)
	says := map[string]string{"pgx": "UNLOGGED", "mysql": "MyISAM"}[s.driver]
	if err := add(t.Context(), db, loose, fencetest.Orders(1), "1"); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q", err, says)
	}
}

// A healthy leader whose row was not written, or did not change, is not told that it is
// deposed.
func skipped(t *testing.T, s server) {
	db := s.open(t)
	storetest.Exec(t, db, "CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(9), fence BIGINT)")
	u := s.upsert(t, "orders", []string{"id"}, []string{"state"})
	for range 2 { // the second changes nothing
		if err := u.Exec(t.Context(), db, fencetest.Orders(4), 1, "sent"); err != nil {
			t.Error(err)
		}
	}
	if s.driver != "pgx" { // whose triggers alone skip a row
		return
	}
	storetest.Exec(t, db, "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	storetest.Exec(t, db, "CREATE TRIGGER skip BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION skip()")
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
