//go:build go1.25

package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a database of one table, in memory, that knows the statements of a Decider,
// and a driver for it that may lie.
type server struct {
	mu   sync.Mutex
	rows map[string]row
	log  []string // the statements, as they came

	// Each may be nil. They are called without mu.
	before func(query string) error                                         // a statement is run
	write  func(query string, r result, err error) (result, error)          // it was
	read   func(rows [][]driver.Value, err error) ([][]driver.Value, error) // it was
}

type row struct {
	version, record string
	written         int64
}

// result is a driver.Result.
type result struct {
	affected, id   int64
	noRows, noTime error
}

func (r result) RowsAffected() (int64, error) { return r.affected, r.noRows }
func (r result) LastInsertId() (int64, error) { return r.id, r.noTime }

func newServer() *server { return &server{rows: map[string]row{}} }

// refused is an error of the server.
type refused int

func (refused) Error() string { return "refused by the server" }

const duplicate refused = 1062

// dialect is MySQL's, but for what a server has that is none.
func dialect() lesql.Dialect {
	d := lesql.MySQL(func(err error) int {
		var n refused
		errors.As(err, &n)
		return int(n)
	})
	d.Alone, d.Inspect = "", nil
	return d
}

// open returns a pool of connections to s.
func (s *server) open(t testing.TB) *sql.DB {
	db := sql.OpenDB(s)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *server) decider(t testing.TB, opts *lesql.Options) *lesql.Decider {
	return lesql.NewDecider(s.open(t), dialect(), "t", "e", opts)
}

// count is how many statements with these words have come.
func (s *server) count(words string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.log {
		if strings.Contains(q, words) {
			n++
		}
	}
	return n
}

func (s *server) Connect(context.Context) (driver.Conn, error) { return &conn{s}, nil }
func (s *server) Driver() driver.Driver                        { return nil }

type conn struct{ s *server }

func (*conn) Prepare(string) (driver.Stmt, error) { return nil, io.EOF }
func (*conn) Begin() (driver.Tx, error)           { return nil, io.EOF }
func (*conn) Close() error                        { return nil }

func (c *conn) came(query string) error {
	c.s.mu.Lock()
	c.s.log = append(c.s.log, query)
	before := c.s.before
	c.s.mu.Unlock()
	if before != nil {
		return before(query)
	}
	return nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.came(query); err != nil {
		return nil, err
	}
	r, err := c.s.exec(query, args)
	if w := c.s.write; w != nil {
		r, err = w(query, r, err)
	}
	return r, err
}

func (s *server) exec(query string, args []driver.NamedValue) (result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := func(i int) string { return args[i].Value.(string) }
	now := time.Now().UnixMicro()
	change := func(election, version string, to row) (result, error) {
		if had, has := s.rows[election]; !has || had.version != version {
			return result{}, nil
		}
		s.rows[election] = to
		return result{affected: 1, id: to.written}, nil
	}
	switch {
	case strings.HasPrefix(query, "INSERT"):
		if _, has := s.rows[text(0)]; has {
			return result{}, duplicate
		}
		s.rows[text(0)] = row{text(1), text(2), now}
		return result{affected: 1, id: now}, nil
	case strings.Contains(query, "written + 1"):
		r := s.rows[text(0)]
		r.written++
		done, err := change(text(0), text(1), r)
		done.id = 0 // there is no LAST_INSERT_ID in it
		return done, err
	case strings.HasPrefix(query, "UPDATE"):
		return change(text(2), text(3), row{text(0), text(1), now})
	}
	return result{}, nil
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.came(query); err != nil {
		return nil, err
	}
	all, err := c.s.query(args)
	if r := c.s.read; r != nil {
		all, err = r(all, err)
	}
	return &answer{all, err}, nil
}

func (s *server) query(args []driver.NamedValue) ([][]driver.Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(args) == 0 {
		return nil, nil
	}
	election := args[0].Value.(string)
	r, has := s.rows[election]
	if !has {
		return nil, nil
	}
	return [][]driver.Value{{[]byte(election), []byte(r.version), r.written, []byte(r.record)}}, nil
}

// answer is driver.Rows.
type answer struct {
	rows [][]driver.Value
	err  error // after them
}

func (a *answer) Columns() []string {
	if len(a.rows) > 0 {
		return make([]string, len(a.rows[0]))
	}
	return make([]string, 4)
}

func (a *answer) Close() error { return nil }

func (a *answer) Next(dest []driver.Value) error {
	switch {
	case len(a.rows) == 0 && a.err != nil:
		return a.err
	case len(a.rows) == 0:
		return io.EOF
	}
	copy(dest, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}

// What the tests go by keeps the contract itself.
func TestConformance(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		s := newServer()
		return func() leaderelection.RaceDecider { return s.decider(t, nil) }
	}, nil)
}

// A record that may not be safe yet stays in doubt with a new client: it is read back by a write.
func TestInherit(t *testing.T) {
	s := newServer()
	first, second := s.decider(t, nil), s.decider(t, nil)
	s.write = func(_ string, _ result, _ error) (result, error) { return result{}, io.ErrUnexpectedEOF }
	feedtest.Passing(t, feedtest.WriteError(t, first, 1, nil))
	touched := 0
	s.write = func(_ string, r result, err error) (result, error) { touched++; return r, err }
	second.Inherit(first)
	if feedtest.Reads(t, second, 1); touched != 1 {
		t.Errorf("after %d writes", touched)
	}
}

// A driver that hangs, and ignores its ctx, keeps nobody longer than that, and no more
// than so many goroutines.
func TestHangingDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		goOn := make(chan struct{})
		var hang atomic.Bool
		s.before = func(string) error {
			if hang.Load() {
				<-goOn
			}
			return nil
		}
		d := s.decider(t, nil)
		token := feedtest.Write(t, d, 1, nil)
		hang.Store(true)
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			var err error
			if i%2 == 0 {
				_, err = d.WriteEntry(ctx, feedtest.State(2, token))
			} else {
				_, err = d.ReadCurrent(ctx)
			}
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if n := s.count(""); n > 17 {
			t.Errorf("%d statements are under way at once", n)
		}
		hang.Store(false)
		close(goOn)
		synctest.Wait()
		// Of those that were given up one has landed by now, and counts when it is made sure of.
		feedtest.Reads(t, d, 2)
	})
}
