package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
)

var _ durability.Examiner = (*Decider)(nil)

// settings asks for what may lose a write. Anybody may ask; synchronous_commit is not
// among it, since a write raises it for itself.
const settings = `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
	pg_catalog.pg_is_in_recovery(), (SELECT count(*) FROM pg_catalog.pg_stat_replication),
	(SELECT COALESCE(string_agg(DISTINCT n.nspname::text, ', '), '') FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind = 'r' AND c.relname = $1::text AND n.nspname <> $2::text AND n.nspname !~ '^pg_')`

// Durability implements durability.Examiner. It asks the server which of the causes under "What
// PostgreSQL promises" in the package's documentation apply. An UNLOGGED table is an error, as for
// each other call. It needs no more than Permissions.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var fsync, pages, names, others string
	var standby bool
	var receivers int
	var at *relation
	err := d.election.Ready(ctx)
	if err == nil {
		at, err = d.b.find(ctx)
	}
	if err == nil {
		err = commit.Run(ctx, d.b.db, commit.Check, []any{d.b.mode})
	}
	if err == nil {
		err = d.b.db.QueryRow(ctx, settings, d.b.mode, at.table, at.schema).Scan(&fsync, &pages, &names, &standby, &receivers, &others)
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the server of", err)
	}
	var all []durability.Warning
	warn := func(is bool, detail, advice string) {
		if is {
			all = append(all, durability.Warning{Detail: detail, Advice: advice})
		}
	}
	warn(standby, "pg_is_in_recovery is true: this server is a standby, takes no writes, and may be behind", "name the primary in the URL, as with target_session_attrs=read-write")
	warn(fsync == "off", "fsync is off: a crash of the machine forgets confirmed writes, and two may lead", "set fsync = on")
	warn(pages == "off", "full_page_writes is off: a crash of the machine may leave a torn page, and with it no record or an old one, so that two may lead", "set full_page_writes = on")
	warn(!standby && names == "" && receivers > 0,
		fmt.Sprintf(`synchronous_standby_names is "", and replication has %d receivers: a fail-over to one that lags forgets a confirmed write, and two may lead`, receivers),
		"name in it each standby that a fail-over may promote, all of which must answer, such as FIRST 2 (a, b); or let a term pass before a new primary serves")
	must, of := commit.Quorum(names, receivers)
	warn(!standby && names != "" && must < of,
		fmt.Sprintf("synchronous_standby_names is %q: a write is confirmed when %d of %d standbys have it, a fail-over to another standby forgets it, and two may lead", names, must, of),
		fmt.Sprintf("let a fail-over promote only the most advanced of at least %d of these standbys; or name two or more, all of which must answer; or let a term pass before a new primary serves", of-must+1))
	warn(!standby && names != "" && receivers > of,
		fmt.Sprintf("synchronous_standby_names is %q, and replication has %d receivers: a fail-over to one that is not named forgets confirmed writes, and two may lead", names, receivers),
		"never promote the others, or name them")
	warn(others != "" && !strings.Contains(d.b.name, "."),
		fmt.Sprintf("this is %s, and there are tables of that name in the schemas %s: a candidate with another search_path takes part in another election, and leads as well", at, others),
		"name the schema, as in table="+at.schema+"."+at.table+", or drop the others")
	return all, nil
}
