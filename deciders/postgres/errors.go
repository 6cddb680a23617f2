package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/c8e606e4/leaderelection"
)

// The codes of errors of the server that are no news; see
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	uniqueViolation      = "23505"
	duplicateTable       = "42P07"
	undefinedTable       = "42P01"
	serializationFailure = "40001"
)

// code is that of an error of the server, else empty.
func code(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// permanent is an error that no retry can cure.
func permanent(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), leaderelection.ErrPermanent)
}

// failed says what was being done, to which row, and what to do about it.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	if errors.Is(err, leaderelection.ErrLostRace) {
		return err
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	} else if ctx.Err() == nil {
		err = d.explain(err)
	}
	return fmt.Errorf("leaderelection/postgres: %s %s: %w", doing, d.place, err)
}

// explain adds what to do about an error, and whether trying again can help.
func (d *Decider) explain(err error) error {
	if errors.Is(err, leaderelection.ErrPermanent) {
		return err
	}
	if c := code(err); c != "" {
		return d.refused(err, c)
	}
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, puddle.ErrClosedPool):
		return permanent("%w: keep the pool open while the election goes on", err)
	case errors.As(err, &hostname), errors.As(err, &authority), errors.As(err, &certificate):
		return permanent("%w: check the server's certificate, sslmode and sslrootcert", err)
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return permanent("%w: switch TLS on at the server, or lower sslmode", err)
	}
	return err
}

// refused explains an error of the server by its code. What may pass, and so is no
// more than explained: servers that start, stop or recover (57P0x), that have too
// many clients (53300) or too little room (53100), statements that were cancelled
// (57014, 55P03), deadlocks and serialization failures (40xxx).
func (d *Decider) refused(err error, code string) error {
	switch code {
	case undefinedTable:
		d.found.Store(nil) // it was there
		if d.opts.CreateTable {
			return fmt.Errorf("%w: it will be made again", err)
		}
		return d.missing(err)
	case "28P01", "28000":
		return permanent("%w: check user, password and pg_hba.conf", err)
	case "3D000":
		return permanent("%w: make the database, or name another", err)
	case "42501":
		return permanent("%w: candidates need GRANT SELECT, INSERT, UPDATE ON %s, observers SELECT, whoever is to create it CREATE on its schema", err, d.quoted)
	case "3F000":
		return permanent("%w: make the schema, or name another", err)
	case "22P05", "22021":
		return permanent("%w: the record has letters that the database's encoding has not; use a database in UTF8", err)
	case "42703", "42804", "42P10", "42883", "42846", "22P02", "42809", "23502", "23514", "428C9":
		return permanent("%w: the table must be as in\n%s", err, Schema(d.table))
	case "25006":
		return fmt.Errorf("%w: this is a standby, or a read-only session: connect to the primary (target_session_attrs=read-write)", err)
	case "53300":
		return fmt.Errorf("%w: raise max_connections, or let the clients have fewer", err)
	case "54000":
		return fmt.Errorf("%w: a session that listens has been in one transaction for very long: see pg_notification_queue_usage()", err)
	}
	return err
}
