package sql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

// mysqlSettings are asked for by name, since each server has some of them only. Anybody
// may ask.
const (
	mysqlVariables = `SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'sync_binlog', 'log_bin',
	'read_only', 'super_read_only', 'tx_isolation', 'transaction_isolation',
	'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_timeout', 'rpl_semi_sync_source_timeout',
	'wsrep_on', 'wsrep_provider_options')`
	mysqlStatus = `SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status',
	'Slaves_connected', 'Replicas_connected', 'wsrep_cluster_status', 'wsrep_cluster_size')`
)

// neverAlone is the least rpl_semi_sync_..._timeout, in milliseconds, that is taken for
// one that never comes: a day.
const neverAlone = 24 * 3600 * 1000

// durabilityMySQL is MySQL's Dialect.Durability.
func durabilityMySQL(ctx context.Context, db *sql.DB) ([]durability.Warning, error) {
	s := settings{}
	for _, query := range []string{mysqlVariables, mysqlStatus} {
		if err := s.ask(ctx, db, query); err != nil {
			return nil, err
		}
	}
	var all warnings
	if v := s.first("innodb_flush_log_at_trx_commit"); v != "1" {
		all.add("innodb_flush_log_at_trx_commit is "+v+": a crash of the machine forgets confirmed writes, and two may lead", "set innodb_flush_log_at_trx_commit = 1")
	}
	if s.is("innodb_doublewrite", "OFF", "DETECT_ONLY") {
		all.add("innodb_doublewrite is off: a crash of the machine may leave a torn page, and with it no record or an old one", "set innodb_doublewrite = ON")
	}
	if v := s.first("sync_binlog"); s.is("log_bin", "ON") && v != "1" && !s.is("wsrep_on", "ON") {
		all.add("sync_binlog is "+v+" with a binary log: after a crash of the machine the server undoes confirmed writes that the log lacks, and two may lead", "set sync_binlog = 1")
	}
	if s.is("read_only", "ON", "1") || s.is("super_read_only", "ON") {
		all.add("read_only is on: this server takes no writes of candidates, and may be behind", "name the primary in the URL")
	}
	if s.is("tx_isolation", "READ-UNCOMMITTED") || s.is("transaction_isolation", "READ-UNCOMMITTED") {
		all.add("the session's isolation level is READ UNCOMMITTED: reads show leaders whose writes are then undone", "leave the level at the server's default, or set READ COMMITTED")
	}
	if s.is("wsrep_on", "ON") {
		all.galera(s)
	} else {
		all.replication(s)
	}
	return all, nil
}

type warnings []durability.Warning

func (w *warnings) add(detail, advice string) {
	*w = append(*w, durability.Warning{Detail: detail, Advice: advice})
}

// galera says what may lose a write of a cluster.
func (w *warnings) galera(s settings) {
	if !s.is("wsrep_cluster_status", "Primary") {
		w.add("wsrep_cluster_status is "+s.first("wsrep_cluster_status")+": this node has no quorum, and takes no writes", "connect to a node of the primary component")
	}
	options := strings.ReplaceAll(strings.ToLower(s.first("wsrep_provider_options")), " ", "")
	for _, o := range []string{"pc.ignore_sb=true", "pc.ignore_quorum=true", "pc.ignore_sb=1", "pc.ignore_quorum=1", "pc.ignore_sb=yes", "pc.ignore_quorum=yes"} {
		if strings.Contains(options, o+";") {
			w.add("wsrep_provider_options has "+o+": both halves of a cluster that is split take writes, and two lead", "set it to false")
		}
	}
	if s.first("wsrep_cluster_size") == "1" {
		w.add("the Galera cluster has one node: while it is gone nobody leads, and writes that are not on its disk are lost", "use three nodes, or more")
	}
}

// replication says what a fail-over may lose.
func (w *warnings) replication(s settings) {
	enabled := s.is("rpl_semi_sync_master_enabled", "ON") || s.is("rpl_semi_sync_source_enabled", "ON")
	timeout := s.first("rpl_semi_sync_master_timeout", "rpl_semi_sync_source_timeout")
	ms, _ := strconv.ParseUint(timeout, 10, 64)
	replicas := s.first("Slaves_connected", "Replicas_connected")
	const promote = "; or let a term pass before a new primary serves, and make sure that the old primary does not serve any longer"
	switch {
	case enabled && (s.is("Rpl_semi_sync_master_status", "OFF") || s.is("Rpl_semi_sync_source_status", "OFF")):
		w.add("semi-synchronous replication has given up waiting: the server confirms writes that no replica has. A fail-over forgets them, and two may lead",
			"bring the replicas back, and set the timeout so that it never comes (rpl_semi_sync_master_timeout=4294967295)"+promote)
	case enabled && ms < neverAlone:
		w.add(fmt.Sprintf("semi-synchronous replication waits for only %s ms, and then the server confirms writes that no replica has. A fail-over forgets them, and two may lead", timeout),
			"set the timeout so that it never comes (rpl_semi_sync_master_timeout=4294967295): then nobody leads while no replica answers"+promote)
	case !enabled && s.is("log_bin", "ON") && replicas != "" && replicas != "0":
		w.add("replication to "+replicas+" replicas is asynchronous: a fail-over to one that lags forgets a confirmed write, and two may lead",
			"set rpl_semi_sync_master_enabled=ON with rpl_semi_sync_master_timeout=4294967295, and rpl_semi_sync_slave_enabled=ON at the replicas"+promote)
	}
}

// settings are a server's variables and status, by their names in lower case.
type settings map[string]string

func (s settings) ask(ctx context.Context, db *sql.DB, query string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		s[strings.ToLower(name)] = value
	}
	return rows.Err()
}

// first is the value of the first of these that the server has.
func (s settings) first(names ...string) string {
	for _, name := range names {
		if v, has := s[strings.ToLower(name)]; has {
			return v
		}
	}
	return ""
}

func (s settings) is(name string, values ...string) bool {
	for _, v := range values {
		if strings.EqualFold(s.first(name), v) {
			return true
		}
	}
	return false
}
