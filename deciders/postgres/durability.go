package postgres

import (
	"context"
	"fmt"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var _ durability.Examiner = (*Decider)(nil)

// settings asks for what may lose a write. Anybody may ask; synchronous_commit is not
// among it, since a write raises it for itself.
const settings = `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
	pg_catalog.pg_is_in_recovery(), (SELECT count(*) FROM pg_catalog.pg_stat_replication)`

// Durability implements durability.Examiner: it asks the server what of "What can lose
// one" in the package's documentation applies. An UNLOGGED table is an error, as it is
// for each other call. It takes no permission beyond Permissions.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var fsync, pages, names string
	var standby bool
	var receivers int
	err := d.election.Ready(ctx)
	if err == nil {
		_, err = d.b.table.Find(ctx)
	}
	if err == nil {
		err = d.b.db.QueryRow(ctx, settings, d.b.table.Mode).Scan(&fsync, &pages, &names, &standby, &receivers)
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
		"set synchronous_standby_names, such as ANY 1 (a, b), or let a term pass before a new primary serves")
	return all, nil
}
