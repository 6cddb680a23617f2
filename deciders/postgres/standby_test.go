package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// pair is a primary whose commits wait for a standby, which can be cut off.
type pair struct {
	primary, standby *stores.PostgresServer
	between          *stores.Relay
}

func newPair(t *testing.T, settings ...string) *pair {
	t.Helper()
	primary := stores.Postgres(t, settings...)
	between := stores.NewRelay(t, primary.Addr)
	standby := stores.PostgresStandby(t, &stores.PostgresServer{Addr: between.Addr})
	pr := &pair{primary, standby, between}
	pr.sync(t, pool(t, primary.Addr))
	return pr
}

// sync has commits wait for the standby from now on.
func (pr *pair) sync(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	exec(t, p, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	exec(t, p, "SELECT pg_reload_conf()")
	pr.inSync(t)
}

// inSync waits until commits wait for the standby, and get its answer.
func (pr *pair) inSync(t *testing.T) {
	t.Helper()
	p := pool(t, pr.primary.Addr)
	feedtest.Eventually(t, "the standby is synchronous", func() (ok bool) {
		err := p.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming')").Scan(&ok)
		return err == nil && ok
	})
}

// A write whose wait for the standby ended early is in the row for all to see, and on
// the primary alone. It counts for nothing until the standby has it, however it ended.
func TestUnreplicatedWrite(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{
		"read committed": "", "serializable": "options=-c%20default_transaction_isolation%3Dserializable", "quiet role": "options=-c%20client_min_messages%3Derror",
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); unreplicated(t, options) })
	}
}

func unreplicated(t *testing.T, options string) {
	pr := newPair(t)
	observer := pool(t, pr.primary.Addr)
	waiting := func(what string) func() {
		return func() {
			feedtest.Eventually(t, "a session waits for the standby", func() (ok bool) {
				err := observer.QueryRow(t.Context(), "SELECT "+what+"(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'candidate'").Scan(&ok)
				return err == nil && ok
			})
		}
	}
	polite := func(c *pgxpool.Config) { // asks the server to cancel, and waits for what it says
		postgres.Prepare(c)
		c.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 10 * time.Second}
		}
	}
	for name, c := range map[string]struct {
		adjust  func(*pgxpool.Config)
		timeout time.Duration
		end     func() // the wait; nil: the ctx does
	}{
		"ctx ended":                  {postgres.Prepare, time.Second, nil},
		"ctx ended, server answered": {polite, time.Second, nil},
		"terminated":                 {postgres.Prepare, time.Minute, waiting("pg_terminate_backend")},
		"cancelled by hand":          {postgres.Prepare, time.Minute, waiting("pg_cancel_backend")},
		"crash": {postgres.Prepare, time.Minute, func() {
			waiting("0 <")()
			pr.primary.Stop()
			pr.primary.Start(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := adjusted(t, pr.primary.Addr, "application_name=candidate&"+options, c.adjust)
			election := feedtest.Unique()
			d := postgres.NewDecider(p, "leaderelection", election, create)
			token := feedtest.Write(t, d, 1, nil)

			pr.between.Refuse()
			go func() {
				if c.end != nil {
					c.end()
				}
			}()
			_, err := d.WriteEntry(storetest.Within(t, c.timeout), feedtest.State(2, token))
			feedtest.Passing(t, err, election)
			other := postgres.NewDecider(observer, "leaderelection", election, nil)
			var seen *leaderelection.RaceEntry
			feedtest.Eventually(t, "the write is seen by others", func() bool {
				seen, err = other.ReadCurrent(t.Context())
				return err == nil && seen.ElectionNumber == 2
			})
			unconfirmed := func(when string) {
				t.Helper()
				e, err := d.ReadCurrent(storetest.Within(t, time.Second))
				if err == nil {
					t.Errorf("%s: the standby lacks it, and it is read back: %+v", when, e)
				}
				feedtest.Passing(t, err, election)
			}
			unconfirmed("after the write")
			if name == "ctx ended" && options == "" { // it says what it waits for, within the time that the campaign has
				_, err := d.ReadCurrent(storetest.Within(t, time.Minute))
				feedtest.Passing(t, err, "waits for a synchronous standby", `synchronous_standby_names is "*"`)
			}
			// A loser's answer must not tell of it either.
			if _, err := d.WriteEntry(storetest.Within(t, time.Second), feedtest.State(2, token)); err == nil {
				t.Error("a stale write is taken")
			} else if lost := new(leaderelection.LostRaceError); errors.As(err, &lost) && lost.Current != nil {
				t.Errorf("a lost race tells of %+v", lost.Current)
			}
			// An operator's request to hand over carries the record on.
			seen.Successor, seen.Extension = leaderelection.AnySuccessor, seen.Extension+1
			if _, err := other.WriteEntry(storetest.Within(t, time.Second), seen); err == nil {
				t.Error("a write is taken that the standby lacks")
			}
			unconfirmed("after another's write on top")

			pr.between.Heal()
			pr.inSync(t)
			feedtest.Reads(t, d, 2)
			feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
		})
	}
}

// A pool that does not hear how the wait for a standby has ended writes nothing, where
// commits wait for one: from its first write on, or from when the server is told to wait.
func TestUnheard(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	t.Parallel()
	server := stores.Postgres(t)
	unprepared := adjusted(t, server.Addr, "", func(*pgxpool.Config) {})
	p := pool(t, server.Addr)
	prepared := decider(p)
	before := postgres.NewDecider(unprepared, "leaderelection", "e", create)
	token := feedtest.Write(t, before, 1, nil) // nothing waits, so there is nothing to hear
	(&pair{primary: server, standby: stores.PostgresStandby(t, server)}).sync(t, p)
	for name, d := range map[string]*postgres.Decider{
		"a pool":         postgres.NewDecider(unprepared, "leaderelection", "e", nil),
		"no connections": postgres.NewDecider(alone{p}, "leaderelection", "e", nil),
	} {
		_, err := d.WriteEntry(storetest.Within(t, 20*time.Second), feedtest.State(2, token))
		feedtest.Permanent(t, err, "postgres.Prepare", "synchronous_standby_names")
		if e := feedtest.Read(t, prepared); e.ElectionNumber != 1 {
			t.Errorf("%s: it has written %+v", name, e)
		}
	}
	_, err := before.WriteEntry(storetest.Within(t, 20*time.Second), feedtest.State(2, token))
	feedtest.Permanent(t, err, "postgres.Prepare")
	if e, err := before.ReadCurrent(storetest.Within(t, 20*time.Second)); err == nil {
		t.Errorf("it reads back what it cannot prove: %+v", e)
	}
	feedtest.Write(t, prepared, 3, feedtest.Read(t, prepared).Token)
}

// alone is a DB that has no Acquire.
type alone struct{ postgres.DB }

// Whatever the session's default is, an answered write is on the standby.
func TestCommitLevels(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	pr := newPair(t)
	decider := func(level string) *postgres.Decider {
		return postgres.NewDecider(pool(t, pr.primary.Addr, "options=-c%20synchronous_commit%3D"+level), "leaderelection", level, create)
	}
	tokens := map[string]leaderelection.LeaderToken{}
	levels := []string{"off", "local", "remote_write", "on", "remote_apply"}
	for _, level := range levels {
		tokens[level] = feedtest.Write(t, decider(level), 1, nil)
	}
	pr.between.Refuse()
	for _, level := range levels {
		if _, err := decider(level).WriteEntry(storetest.Within(t, 300*time.Millisecond), feedtest.State(2, tokens[level])); err == nil {
			t.Errorf("with synchronous_commit=%s a write is answered that the standby lacks", level)
		}
	}
}

// Primary and leader are cut off from the standby, and then the primary dies: the
// standby's new leader does not lead before the old one's view has ended.
func TestFailOverToStandby(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	const term, skew = 4 * time.Second, 200 * time.Millisecond
	pr := newPair(t)
	start := func(id, addr string) (*leaderelection.Campaign, <-chan struct{}) {
		return feedtest.Campaign(t, opened(t, addr, "&listen=false"), id, term, skew)
	}
	old, elected := start("old", pr.primary.Addr)
	<-elected
	pr.between.Refuse()
	cut := time.Now()
	_, elected = start("new", pr.standby.Addr)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for range again.C {
		if time.Since(cut) > term-skew/2 { // the view that the standby knows of is over
			break
		}
	}
	pr.primary.Stop()
	exec(t, pool(t, pr.standby.Addr), "SELECT pg_promote()", pgx.QueryExecModeSimpleProtocol)
	<-elected
	if left := time.Until(old.View().Get()); old.View().ValueInFuture() {
		t.Errorf("the new leader leads, and the old one for %v more", left)
	}
	t.Logf("a new leader %v after the cut", time.Since(cut).Round(time.Millisecond))
}

// With synchronous_commit=off a crash forgets what others have written a moment
// before, and not what a Decider has.
func TestAsynchronousCommit(t *testing.T) {
	server := stores.Postgres(t, "synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0", "autovacuum=off")
	p := pool(t, server.Addr)
	exec(t, p, "CREATE TABLE other (n int)")
	d := decider(p)
	token := feedtest.Write(t, d, 1, nil)
	forgotten := 0
	for number := uint64(2); number < 5; number++ {
		token = feedtest.Write(t, d, number, token)
		exec(t, p, "INSERT INTO other VALUES ($1)", number)
		server.Stop() // as a crash does
		server.Start(t)
		again := pool(t, server.Addr)
		if value[int](t, again, "SELECT count(*) FROM other WHERE n = $1", number) == 0 {
			forgotten++
		}
		d = postgres.NewDecider(again, "leaderelection", "e", nil)
		if e := feedtest.Read(t, d); uint64(e.ElectionNumber) != number || e.Token != token {
			t.Errorf("the crash took back the record of leadership %d: %+v", number, e)
		}
		p = again
	}
	if forgotten == 0 {
		t.Error("no crash has forgotten anything: nothing was shown")
	}
}

// Each setting by which a server forgets what it has confirmed is warned of, and a
// server without one is not.
func TestDurability(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	server := stores.Postgres(t, "fsync=on")
	p := pool(t, server.Addr)
	warns := func(p *pgxpool.Pool, words ...string) {
		t.Helper()
		feedtest.Examines(t, decider(p), words...)
	}
	set := func(setting, value string) {
		t.Helper()
		exec(t, p, "ALTER SYSTEM SET "+setting+" = '"+value+"'")
		exec(t, p, "SELECT pg_reload_conf()")
		feedtest.Eventually(t, setting+" is "+value, func() (ok bool) {
			err := p.QueryRow(t.Context(), "SELECT current_setting($1) = $2", setting, value).Scan(&ok)
			return err == nil && ok
		})
	}
	warns(p)
	set("full_page_writes", "off")
	warns(p, "full_page_writes is off", "full_page_writes = on")
	set("full_page_writes", "on")

	standby := stores.PostgresStandby(t, server, "fsync=on")
	feedtest.Eventually(t, "the standby receives", func() (ok bool) { // it serves before it does
		err := p.QueryRow(t.Context(), "SELECT count(*) = 1 FROM pg_stat_replication").Scan(&ok)
		return err == nil && ok
	})
	warns(p, "synchronous_standby_names is", "1 receivers", "FIRST 2 (a, b)")
	warns(pool(t, standby.Addr), "pg_is_in_recovery", "name the primary")
	set("synchronous_standby_names", "*") // the only one
	warns(p)
	set("synchronous_standby_names", "ANY 1 (walreceiver, b)")
	warns(p, "when 1 of 2 standbys have it", "the most advanced of at least 2")
	set("synchronous_standby_names", "FIRST 2 (walreceiver, b)")
	warns(p)
	unsafe := pool(t, stores.Postgres(t, "fsync=off").Addr)
	warns(unsafe, "fsync is off", "fsync = on")
	exec(t, unsafe, "ALTER TABLE leaderelection SET UNLOGGED")
	_, err := postgres.NewDecider(unsafe, "leaderelection", "e", nil).Durability(t.Context())
	feedtest.Permanent(t, err, "UNLOGGED", "SET LOGGED")
}

// hanging is a pool to which the server does not answer from some time on.
type hanging struct {
	*pgxpool.Pool
	reads, notes atomic.Bool
}

func (h *hanging) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if h.reads.Load() {
		<-ctx.Done()
	}
	return h.Pool.QueryRow(ctx, sql, args...)
}

func (h *hanging) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if h.notes.Load() && strings.Contains(sql, "pg_notify") {
		<-ctx.Done()
	}
	return h.Pool.Exec(ctx, sql, args...)
}

// A server that falls silent just when the feed asks it something ends the feed, too,
// not only one that falls silent in between.
func TestServerHangsWhileItIsAsked(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	t.Parallel()
	p := pool(t, stores.Postgres(t).Addr)
	writer := decider(p)
	token := feedtest.Write(t, writer, 1, nil)
	for name, c := range map[string]struct {
		hang func(*hanging)
		late bool // after the feed has begun
	}{
		"at its first read":    {hang: func(h *hanging) { h.reads.Store(true) }},
		"at its own word":      {hang: func(h *hanging) { h.notes.Store(true) }},
		"at what it must read": {hang: func(h *hanging) { h.reads.Store(true) }, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hanging{Pool: p}
			d := postgres.NewDecider(h, "leaderelection", "e", nil)
			feedtest.Read(t, d) // the table has been looked at
			if !c.late {
				c.hang(h)
			}
			feed := feedtest.Follow(t, d)
			if c.late {
				feedtest.Next(t, feed)
				c.hang(h)
				e := feedtest.State(2, token)
				e.ConnectionParams = make([]byte, 100_000) // too long for a notification
				if _, err := writer.WriteEntry(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			feedtest.Passing(t, feedtest.Next(t, feed).Err, `"e"`, "the server does not answer")
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

// split is a pool behind what sends reads to a replica that lags, and loses some writes.
type split struct {
	*pgxpool.Pool
	lags, loses atomic.Bool
	reads       atomic.Int64
}

func (s *split) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if s.lags.Load() {
		s.reads.Add(1)
		sql = strings.Replace(sql, `"leaderelection"`, "replica", 1)
	}
	return s.Pool.QueryRow(ctx, sql, args...)
}

func (s *split) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if s.loses.Load() {
		return nil, errors.New("the connection broke")
	}
	return s.Pool.Acquire(ctx)
}

// inDoubt has a handle whose write 4 has no response, and which reads of record 2, as of a replica that lags.
func inDoubt(t *testing.T) (s *split, d *postgres.Decider) {
	t.Helper()
	p := pool(t, stores.Postgres(t).Addr)
	s = &split{Pool: p}
	d, writer := decider(s), decider(p)
	token := feedtest.Write(t, writer, 2, feedtest.Write(t, d, 1, nil))
	exec(t, p, "CREATE TABLE replica AS SELECT * FROM leaderelection")
	token = feedtest.Write(t, writer, 3, token)
	s.loses.Store(true)
	feedtest.Passing(t, feedtest.WriteError(t, d, 4, token), "the connection broke")
	s.loses.Store(false)
	s.lags.Store(true)
	return s, d
}

// A record of one's own that is in doubt, and that only a replica still has, is not made
// sure of again and again. It stays in doubt with a new client.
func TestDoubtAndLaggingReads(t *testing.T) {
	t.Parallel()
	s, d := inDoubt(t)
	second := decider(s)
	feedtest.Reads(t, second, 2) // as any other's record
	second.Inherit(d)
	for _, d := range []*postgres.Decider{d, second} {
		before := s.reads.Load()
		_, err := d.ReadCurrent(storetest.Within(t, 30*time.Second))
		feedtest.Passing(t, err, "replica", "primary")
		if n := s.reads.Load() - before; n > 4 {
			t.Errorf("it was read %d times", n)
		}
	}
	s.lags.Store(false)
	feedtest.Reads(t, d, 3)
}
